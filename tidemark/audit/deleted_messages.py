"""The remaining proof for offsets that Kafka has deleted: an audit compares the windows' tallies with the results.

A block of a window is compared as a whole. If a later window (a replay) has taken some of its offsets, the audit
compares messages instead of rows: first all messages of the block, since the replay may have had the same outcomes,
then the remaining ones. That works while the taken ones are few enough for arithmetic to tell them apart. Other blocks
stay unproven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct

from tidemark.ledger.incarnations import At
from tidemark.ledger.ledger import Committed
from tidemark.ledger.records import BlockTallies, Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.blocks import WHOLE, BlockTally, in_blocks
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.subsets import eliminated, reduced
from tidemark.offsets.tallies import NOTHING, Count

# 64 hashes can make any 64-bit XOR. With 32 hashes, a wrong XOR fits by chance once in four billion times.
MAX_TAKEN = 32

Place = tuple[TopicPartition, int]

_NONE = RangeSet()


class BlockReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A block that differs: its place, the window that counts there, and the numbers of rows that were stored and found.

    With equal numbers, rows were replaced by others (`rows`), or have other contents (`contents`). For a block that a later
    window has taken in part, the numbers count messages (`messages`). The expected ones may include those that were taken.
    """

    at: At
    window: str
    expected: int
    found: int
    what: str

    def __str__(self) -> str:
        numbers = f"expected {self.expected} {self.what}, found {self.found}"
        if self.what == "contents":
            numbers = f"{number_of(self.found, 'row')}, and the contents of some are not what was stored"
        elif self.expected == self.found:
            numbers += ", but not the same ones"
        return f"{self.at} of window {self.window}: {numbers}"


@dataclass(frozen=True, slots=True)
class WindowBlock:
    """The offsets of a block that its window still holds (`offsets`), and those that a later window has taken (`taken`)."""

    partition: TopicPartition
    offsets: RangeSet
    taken: RangeSet
    committed: Committed
    tally: BlockTally

    def still_held(self, authority: Authority) -> bool:
        return self.offsets == authority.held_by(self.committed.generation, self.offsets)


@dataclass(frozen=True)
class BlockContents:
    """The contents of a place at the offsets of a block: rows and messages (or dead letters), and the digests of the contents.

    `said` is the digest of stored contents by the rows' marks, `content` that of the contents found. `taken` are the
    messages at the offsets that a later window has taken.
    """

    rows: Count = NOTHING
    messages: Count = NOTHING
    taken: Count = NOTHING
    said: str = "0" * 16
    content: str = "0" * 16


@dataclass(frozen=True)
class BlockVerdict:
    """Whether a block could be compared, and what is wrong with it."""

    compared: bool
    wrong: BlockReport | None = None


SAME, UNPROVEN = BlockVerdict(compared=True), BlockVerdict(compared=False)


def wrote_to(record: Record, sink: str, place: Mapping[str, str]) -> bool:
    """Whether a window wrote its results to a sink, and at a place with these properties."""
    return any(written.name == sink and place.items() <= written.place.items() for written in record.places)


def window_blocks(
    committed: Committed, blocks: BlockTallies | None, authority: Authority, forgotten: RangeSet
) -> Iterator[WindowBlock]:
    """The blocks of a window with deleted offsets that still count. Without `blocks`, each partition is one block.

    A window that has not finished has none.
    """
    covers = committed.covers
    wanted = covers & forgotten
    if not wanted or committed.record.receipt is None:
        return
    size = WHOLE if blocks is None else blocks.size
    tallies = _tallies(committed, blocks)
    held = authority.held_by(committed.generation, covers)
    taken = _by_block(covers - held, size)
    still = _by_block(held, size)
    for place in sorted({(at, block) for at, block, _, _ in in_blocks(held & wanted, size)}):
        tally = tallies.get(place, BlockTally(place[1]))
        yield WindowBlock(place[0], still[place], taken.get(place, _NONE), committed, tally)


def _tallies(committed: Committed, blocks: BlockTallies | None) -> dict[Place, BlockTally]:
    if blocks is None:
        return {(tally.at, 0): BlockTally.of(0, tally) for tally in committed.record.tallies}
    return {(partition.at, tally.block): tally for partition in blocks.partitions for tally in partition.blocks}


def _by_block(offsets: RangeSet, size: int) -> dict[Place, RangeSet]:
    places: dict[Place, list[OffsetRange]] = {}
    for at, block, start, until in in_blocks(offsets, size):
        places.setdefault((at, block), []).append(OffsetRange(at, start, until))
    return {place: RangeSet(ranges) for place, ranges in places.items()}


def compare_rows(block: WindowBlock, contents: BlockContents, fields: str) -> BlockVerdict:
    """Whether the results of a block are what the window stored.

    `fields` is the digest of today's fields. Contents of rows that were stored with other fields are not compared.
    """
    if block.taken:
        return _compare_messages(block, block.tally.stored, contents)
    receipt = block.committed.record.receipt
    same_fields = receipt is not None and receipt.fields == fields
    if block.tally.rows != contents.rows:
        return _report(block, block.tally.rows, contents.rows, "rows")
    if contents.said != block.tally.content or (same_fields and contents.content != block.tally.content):
        return _report(block, block.tally.rows, contents.rows, "contents")
    return SAME


def compare_dead_letters(block: WindowBlock, contents: BlockContents) -> BlockVerdict:
    """Compare dead letters as `compare_rows` does rows, without their contents."""
    return _compare_messages(block, block.tally.dead_letters, contents)


def compare_identity(block: WindowBlock, contents: BlockContents, *, may_lack: bool) -> BlockVerdict:
    """Compare number and identity of rows that carry no digest of their contents.

    With `may_lack`, the place deletes rows by itself. A block that lacks some of its rows is then unproven.
    """
    if block.taken:
        verdict = _compare_messages(block, block.tally.stored, contents)
        lacks = contents.messages.number < block.tally.stored.number
    else:
        expected = block.tally.rows
        verdict = SAME if expected == contents.rows else _report(block, expected, contents.rows, "rows")
        lacks = contents.rows.number < expected.number
    return UNPROVEN if verdict.wrong is not None and may_lack and lacks else verdict


def _compare_messages(block: WindowBlock, expected: Count, contents: BlockContents) -> BlockVerdict:
    if expected == contents.messages + contents.taken:
        return SAME
    if block.taken.count() > MAX_TAKEN:
        return UNPROVEN
    if explained(expected, contents.messages, block.taken):
        return SAME
    return _report(block, expected, contents.messages, "messages")


def _report(block: WindowBlock, expected: Count, counted: Count, what: str) -> BlockVerdict:
    first, last = min(block.offsets | block.taken), max(block.offsets | block.taken)
    record = block.committed.record
    wrong = BlockReport(
        at=str(OffsetRange(block.partition, first.start, last.until)),
        window=f"{record.lane}/{record.seq}",
        expected=expected.number,
        found=counted.number,
        what=what,
    )
    return BlockVerdict(compared=True, wrong=wrong)


def explained(expected: Count, counted: Count, taken: RangeSet) -> bool:
    """Whether `found` is `expected` without some of the messages at the offsets that were taken.

    The audit does not know which of those were among the expected ones. While they are few, Gauss's elimination over
    bits finds the only set whose XOR makes the difference. With hashes of four bits: the difference is 0110, the taken
    offsets have 0101, 0011 and 1000, and only the first two make it. So two messages have to be missing. Also true if
    several sets make the same difference: the answer is then unknown.
    """
    missing = expected.number - counted.number
    difference = int(expected.ack, 16) ^ int(counted.ack, 16)
    if (known := eliminated(taken)) is None:
        # An unknown answer raises no alarm.
        return True
    left, which = reduced(difference, 0, known)
    return left == 0 and which.bit_count() == missing
