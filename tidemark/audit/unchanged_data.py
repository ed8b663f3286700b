"""Results that an audit need not compute again: of messages and code that have not changed.

A window counts the messages that it reads, with the XORs of their hashes and of their source digests, and their rows.
If today's code and stream file are the window's, and Kafka's messages have the same sums, today's code would count the
same.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from msgspec import structs

from tidemark.errors import LedgerContradiction, LedgerUnreadable
from tidemark.ledger.ledger import Committed, LedgerSnapshot
from tidemark.ledger.records import BlockTallies, Record
from tidemark.offsets.blocks import BlockTally, PartitionBlocks
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally, sum_tallies


@dataclass(frozen=True)
class CountedRange:
    """Neighbouring offsets of one partition that windows have read whole, and what these windows counted there.

    `blocks` are of `size` offsets, or of WHOLE.
    """

    offsets: OffsetRange
    tally: PartitionTally
    blocks: tuple[BlockTally, ...]
    size: int

    @property
    def at(self) -> TopicPartition:
        return self.offsets.partition

    def is_as_read(self, now: PartitionTally) -> bool:
        """Whether the messages that Kafka has now are those that the windows read. `now` counts all of the stretch.

        Source digests cover no times, so the first and last time are compared as well. They also differ where Spark cannot
        hold a message's time: such a message is never taken for known.
        """
        return _as_read(now) == _as_read(self.tally)

    def followed_by(self, other: CountedRange) -> CountedRange:
        """Both, for neighbours of one partition with blocks of one size."""
        return CountedRange(
            OffsetRange(self.at, self.offsets.start, other.offsets.until),
            sum_tallies(self.tally, other.tally),
            _added((*self.blocks, *other.blocks)),
            self.size,
        )

    def in_blocks_of(self, size: int) -> CountedRange:
        """The same with blocks of a multiple of the size, or of WHOLE."""
        larger = (structs.replace(block, block=block.block * self.size // size) for block in self.blocks)
        return replace(self, blocks=_added(larger), size=size)


def stretches(
    view: LedgerSnapshot,
    wanted: RangeSet,
    code_version: str,
    stream_digest: str,
    blocks_of: Callable[[Record], BlockTallies | None],
    lacking: Callable[[str], None],
    *,
    size: int,
    enough: int,
) -> list[CountedRange]:
    """The stretches of the `wanted` offsets that windows have read by this code and stream file, ascending.

    Uses a window's reading of a partition only if the window still decides some of it and the ledger has its tallies.
    What newer windows have taken of it makes no difference: today's code would count the same there. Of two readings that
    share offsets, the longer one is used.
    `blocks_of` returns a window's tallies by blocks, or None if each partition lies in one block. Windows with lost
    tallies are left out, and `lacking` gets each. The blocks of all stretches have one size: `size`, or more if a
    window's blocks are larger. Neighbours are joined until they have `enough` offsets, so that many small windows make
    few stretches.
    """
    known: list[CountedRange] = []
    for window in view.windows:
        attempt = window.record.attempt
        if (attempt.code_version, attempt.stream_digest) == (code_version, stream_digest):
            try:
                known += _of_window(view, window, wanted, blocks_of, size)
            except (LedgerContradiction, LedgerUnreadable) as problem:
                lacking(str(problem))
    largest = max((stretch.size for stretch in known), default=size)
    known = [stretch.in_blocks_of(largest) for stretch in _disjoint(known)]
    return [stretch for _, same in groupby(known, key=lambda stretch: stretch.at) for stretch in _joined(same, enough)]


def _of_window(
    view: LedgerSnapshot,
    window: Committed,
    wanted: RangeSet,
    blocks_of: Callable[[Record], BlockTallies | None],
    size: int,
) -> Iterator[CountedRange]:
    receipt = window.record.receipt
    if receipt is None or window.erased:
        return
    whole = [range_ for range_ in window.covers if _is_whole(view, window, wanted, range_)]
    if not whole:
        return
    blocks = blocks_of(window.record)
    tallies = {tally.at: tally for tally in receipt.tallies}
    by_block = {partition.at: partition.blocks for partition in blocks.partitions} if blocks is not None else {}
    for offsets in whole:
        at = offsets.partition
        tally = tallies.get(at) or PartitionTally(topic=at.topic, incarnation=at.incarnation, partition=at.partition)
        if blocks is None:
            first, last = offsets.start // size, (offsets.until - 1) // size
            if first == last:
                yield CountedRange(offsets, tally, (BlockTally.of(first, tally),) if tally.read.number else (), size)
        else:
            yield CountedRange(offsets, tally, by_block.get(at, ()), blocks.size).in_blocks_of(max(size, blocks.size))


def _is_whole(view: LedgerSnapshot, window: Committed, wanted: RangeSet, range_: OffsetRange) -> bool:
    """Whether a range is all that a window has read of its partition, still decided by it somewhere, and wanted.

    Looks at few of the ranges: there may be many windows, and many wanted ranges.
    """
    if len(window.covers.of(range_.partition)) > 1:
        return False
    alone = RangeSet([range_])
    return alone & wanted == alone and any(one.generation == window.generation for one in view.authority.within(range_))


def _disjoint(known: Iterable[CountedRange]) -> list[CountedRange]:
    """Stretches without those that share offsets with a longer one, ascending."""
    chosen: list[CountedRange] = []
    for stretch in sorted(known, key=lambda stretch: len(stretch.offsets), reverse=True):
        place = bisect(chosen, stretch.offsets, key=lambda other: other.offsets)
        if not any(_meet(stretch.offsets, other.offsets) for other in chosen[max(0, place - 1) : place + 1]):
            chosen.insert(place, stretch)
    return chosen


def _meet(one: OffsetRange, other: OffsetRange) -> bool:
    return one.partition == other.partition and one.start < other.until and other.start < one.until


def _as_read(tally: PartitionTally) -> tuple[Count, str, int | None, int | None]:
    return tally.read, tally.source, tally.first_timestamp, tally.last_timestamp


def _added(tallies: Iterable[BlockTally]) -> tuple[BlockTally, ...]:
    """Tallies of blocks, those of one block added."""
    blocks: dict[int, BlockTally] = {}
    for tally in tallies:
        blocks[tally.block] = blocks[tally.block] + tally if tally.block in blocks else tally
    return tuple(blocks[block] for block in sorted(blocks))


def _joined(neighbours: Iterable[CountedRange], enough: int) -> Iterator[CountedRange]:
    """Stretches of one partition, ascending: each joined with the next where they touch, until they are long enough."""
    last: CountedRange | None = None
    for neighbour in neighbours:
        if last is not None and last.offsets.until == neighbour.offsets.start and len(last.offsets) < enough:
            last = last.followed_by(neighbour)
            continue
        if last is not None:
            yield last
        last = neighbour
    if last is not None:
        yield last


def counts_of(
    known: Iterable[CountedRange], tallies: Iterable[PartitionTally] = (), blocks: Iterable[PartitionBlocks] = ()
) -> tuple[tuple[PartitionTally, ...], tuple[PartitionBlocks, ...]]:
    """Tallies of partitions and of blocks: those of stretches, and others, of messages elsewhere, added up."""
    known = tuple(known)
    by_partition: dict[TopicPartition, PartitionTally] = {}
    for tally in (*tallies, *(item.tally for item in known)):
        by_partition[tally.at] = sum_tallies(by_partition[tally.at], tally) if tally.at in by_partition else tally
    by_block: dict[TopicPartition, list[BlockTally]] = {}
    for at, some in (
        *((stretch.at, stretch.blocks) for stretch in blocks),
        *((stretch.at, stretch.blocks) for stretch in known),
    ):
        by_block.setdefault(at, []).extend(some)
    return (
        tuple(by_partition[at] for at in sorted(by_partition)),
        tuple(PartitionBlocks(at.topic, at.incarnation, at.partition, _added(by_block[at])) for at in sorted(by_block)),
    )
