"""Which column of a table of aggregates a contribution goes to: that of its unit, which every later attempt writes again."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.errors import Fenced, LedgerContradiction, WrongUse
from tidemark.ledger.book import REMEDY, Book
from tidemark.ledger.records import reads_again
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.sinks.first_reads import FirstWindows, units
from tidemark.sinks.hbase.aggregates.rows import block_qualifier


@dataclass(frozen=True)
class BlockColumns:
    """The columns of the window that is written. `covers`: its offsets."""

    covers: RangeSet

    def column(self, at: TopicPartition, block: int | None) -> bytes:
        """The column of a block, or of the part of it that the window has: `block` may begin below the window.

        None for the block of a row that no window of the ledger has read first. Raises LedgerContradiction then too.
        """
        start = None if block is None else self.covers.at_or_above(at, block)
        if start is None:
            where = "that the window has not read" if block is None else f"in the block from {block} on"
            raise LedgerContradiction(
                f"a row of {at} is {where}, and the window that the ledger has now has none there: it was "
                f"changed while it was worked on. {REMEDY}."
            )
        return block_qualifier(at, start)


@dataclass(frozen=True)
class WrittenColumns:
    """The columns that one attempt writes. `first`: the windows that it reads again; None where it is the first to read."""

    columns: BlockColumns
    first: FirstWindows | None


def written(book: Book, lane: str, seq: int, generation: int, block: int, sink: str) -> WrittenColumns:
    """The columns of a window that an attempt of this generation is writing.

    Raises WrongUse for a replay of only a part of some unit, and Fenced when another attempt has taken the window.
    """
    covers = _covers(book, lane, seq, generation)
    if not reads_again(lane):
        return WrittenColumns(BlockColumns(covers), None)
    first = FirstWindows(book.committed())
    # The replay was planned in whole units, unless the sink came into the stream file later.
    if lacking := first.whole(covers, [block]) - covers - first.erased:
        raise WrongUse(
            f"sink {sink} makes aggregates of {units([block])}, and {lane}/{seq} reads only a part of some: without "
            f"{', '.join(map(str, lacking))}. Give it up (tidemark ledger abandon), and ask for a new one"
        )
    # A block keeps its column, even if its first offset was erased.
    return WrittenColumns(BlockColumns(covers | first.erased), first.touched(covers))


def _covers(book: Book, lane: str, seq: int, generation: int) -> RangeSet:
    """The offsets of the window that is written."""
    stored = book.head(lane)
    # With at_most_once the window is committed before it is written.
    for one in (stored.head.pending, stored.head.last) if stored is not None else ():
        if one is not None and one.attempt is not None and one.attempt.generation == generation:
            return book.covers(one.window)
    raise Fenced(
        f"generation {generation} no longer holds window {seq} of {book.stream}/{lane}. This attempt stops, and nothing "
        "that it wrote counts."
    )
