"""What an audit takes from tallies: they say what the messages give, and nothing that another code or window has read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.protocol_world import LANE, RUN, NoWork, World
from tidemark.audit.unchanged_data import CountedRange, counts_of, stretches
from tidemark.commit.protocol import commit, take
from tidemark.errors import LedgerContradiction, LedgerUnreadable
from tidemark.ledger.ledger import Committed, LedgerSnapshot, authority_of
from tidemark.ledger.records import BlockTallies, Record
from tidemark.offsets.blocks import WHOLE, BlockTally, PartitionBlocks
from tidemark.offsets.hashing import coordinate_hash, row_hash
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally

PARTITIONS = (TopicPartition("logs", 0), TopicPartition("logs", 1))
END, SIZE = 60, 10
TODAY = ("today", "file")

Offset = tuple[TopicPartition, int]


def a_record() -> Record:
    world = World()
    world.open()
    return commit(world.ledger, take(world.ledger, LANE, world.pin(), RUN), NoWork().verify())


RECORD = a_record()


def nothing_lacks(problem: str) -> None:
    raise AssertionError(problem)


@dataclass(frozen=True)
class Message:
    """A message: what stands in it, and how many rows it gives; None makes it a dead letter."""

    text: int
    rows: int | None

    def source(self, offset: Offset) -> int:
        return hash((self.text, offset)) & (1 << 64) - 1


Log = dict[Offset, Message]


def count(hashes: Iterable[int]) -> Count:
    known = list(hashes)
    return Count.of(len(known), reduce(int.__xor__, known, 0))


def tally_of(at: TopicPartition, log: Log, offsets: Iterable[int]) -> PartitionTally:
    """What a reader of these offsets counts."""
    there = {offset: log[at, offset] for offset in offsets if (at, offset) in log}
    kept = {offset: one.rows for offset, one in there.items() if one.rows is not None}
    rows = [row_hash(coordinate_hash(at, offset), index) for offset, number in kept.items() for index in range(number)]
    return PartitionTally(
        topic=at.topic,
        incarnation=at.incarnation,
        partition=at.partition,
        read=count(coordinate_hash(at, offset) for offset in there),
        stored=count(coordinate_hash(at, offset) for offset, number in kept.items() if number),
        skipped=count(coordinate_hash(at, offset) for offset, number in kept.items() if not number),
        failed=count(coordinate_hash(at, offset) for offset in there if offset not in kept),
        rows=count(rows),
        content=count(hash(row) & (1 << 64) - 1 for row in rows).ack,
        source=count(one.source((at, offset)) for offset, one in there.items()).ack,
        first=min(there, default=None),
        last=max(there, default=None),
    )


def blocks_of(at: TopicPartition, log: Log, offsets: Iterable[int], size: int) -> tuple[BlockTally, ...]:
    by_block: dict[int, list[int]] = {}
    for offset in offsets:
        if (at, offset) in log:
            by_block.setdefault(offset // size, []).append(offset)
    return tuple(BlockTally.of(block, tally_of(at, log, some)) for block, some in sorted(by_block.items()))


@dataclass
class Read:
    """A window: what it covers, by which code and stream file, and in blocks of which size it has tallies."""

    covers: RangeSet
    made_by: tuple[str, str]
    size: int | None


def offsets_of(covers: RangeSet, at: TopicPartition) -> list[int]:
    return [offset for one in covers.only([at]) for offset in range(one.start, one.until)]


def view_of(log: Log, reads: list[Read]) -> tuple[LedgerSnapshot, dict[int, BlockTallies | None]]:
    windows, blocks = [], {}
    for generation, read in enumerate(reads, 1):
        tallies = tuple(tally_of(at, log, offsets_of(read.covers, at)) for at in read.covers.partitions)
        receipt = structs.replace(NoWork().verify(), tallies=tuple(one for one in tallies if one.read.number))
        attempt = structs.replace(
            RECORD.attempt, generation=generation, code_version=read.made_by[0], stream_digest=read.made_by[1]
        )
        windows.append(Committed(structs.replace(RECORD, receipt=receipt, attempt=attempt), read.covers))
        parts = tuple(
            PartitionBlocks(
                at.topic, at.incarnation, at.partition, blocks_of(at, log, offsets_of(read.covers, at), read.size)
            )
            for at in read.covers.partitions
            if read.size is not None
        )
        blocks[generation] = None if read.size is None else BlockTallies(size=read.size, partitions=parts)
    return LedgerSnapshot(windows, authority_of(windows, None), {}, 0), blocks


logs = st.fixed_dictionaries(
    {
        (at, offset): st.none() | st.builds(Message, st.integers(0, 9), st.none() | st.integers(0, 2))
        for at in PARTITIONS
        for offset in range(END)
    }
).map(lambda found: {offset: message for offset, message in found.items() if message is not None})
ranges = st.builds(
    lambda at, start, length: OffsetRange(at, start, min(END, start + length)),
    st.sampled_from(PARTITIONS),
    st.integers(0, END - 1),
    st.integers(1, 25),
)
range_sets = st.lists(ranges, min_size=1, max_size=2).map(RangeSet)
windows = st.builds(
    Read,
    range_sets,
    st.sampled_from([TODAY, TODAY, TODAY, ("today", "another"), ("yesterday", "file")]),
    st.sampled_from([SIZE, SIZE, 2 * SIZE, None]),
)
everything = RangeSet(OffsetRange(at, 0, END) for at in PARTITIONS)


def joined(view: LedgerSnapshot, blocks: dict[int, BlockTallies | None], enough: int) -> list[CountedRange]:
    """The stretches of all offsets, of which each window's blocks are known."""
    return stretches(
        view,
        everything,
        *TODAY,
        lambda record: blocks[record.attempt.generation],
        nothing_lacks,
        size=SIZE,
        enough=enough,
    )


# A partition without messages, of a window without blocks.
@pytest.mark.slow
@example({}, [Read(RangeSet([OffsetRange(PARTITIONS[0], 0, 1)]), TODAY, None)], everything, SIZE, 1)
@given(
    logs,
    st.lists(windows, max_size=6),
    st.just(everything) | range_sets,
    st.sampled_from([SIZE, 4 * SIZE, WHOLE]),
    st.integers(1, END),
)
def test_stretches_say_what_their_messages_give(
    log: Log, reads: list[Read], wanted: RangeSet, size: int, enough: int
) -> None:
    view, blocks = view_of(log, reads)
    found = stretches(
        view, wanted, *TODAY, lambda record: blocks[record.attempt.generation], nothing_lacks, size=size, enough=enough
    )
    taken = RangeSet(one.offsets for one in found)
    assert taken.count() == sum(len(one.offsets) for one in found), "two stretches share an offset"
    assert taken - wanted == RangeSet()
    assert [one.offsets for one in found] == sorted(one.offsets for one in found)
    sizes = {one.size for one in found}
    assert len(sizes) <= 1
    for one in found:
        inside = range(one.offsets.start, one.offsets.until)
        read_today = RangeSet(range_ for read in reads if read.made_by == TODAY for range_ in read.covers)
        assert RangeSet([one.offsets]) - read_today == RangeSet()
        now = tally_of(one.at, log, inside)
        assert one.tally == now
        assert one.is_as_read(now)
        assert one.blocks == blocks_of(one.at, log, inside, one.size)
    # Nothing that could be taken is left out, but for something else there: a window's part of a partition that is one range,
    # wanted, and somewhere still its own.
    for generation, read in enumerate(reads, 1):
        mine = view.authority.held_by(generation, read.covers)
        for at in read.covers.partitions:
            part = read.covers.only([at])
            (whole,) = part.hull()
            in_one_block = whole.start // size == (whole.until - 1) // size
            alone = part & wanted == part == RangeSet([whole])
            if read.made_by == TODAY and alone and mine & part and (in_one_block or read.size):
                assert part & taken
                if mine & part == part and not any(other.covers & part for other in reads if other is not read):
                    assert part & taken == part
    # With the counts of all else, they are the counts of all.
    (used,) = sizes or {size}
    rest = wanted - taken
    others = [tally_of(at, log, offsets_of(rest, at)) for at in rest.partitions]
    other_blocks = [
        PartitionBlocks(at.topic, at.incarnation, at.partition, blocks_of(at, log, offsets_of(rest, at), used))
        for at in rest.partitions
    ]
    tallies, by_block = counts_of(found, others, other_blocks)
    assert tallies == tuple(tally_of(at, log, offsets_of(wanted, at)) for at in wanted.partitions)
    assert by_block == tuple(
        PartitionBlocks(at.topic, at.incarnation, at.partition, blocks_of(at, log, offsets_of(wanted, at), used))
        for at in wanted.partitions
    )


@pytest.mark.covers("N40")
def test_a_window_is_taken_whole_although_newer_ones_have_taken_some_of_it() -> None:
    at = PARTITIONS[0]
    log = {(at, offset): Message(offset, 1) for offset in range(END)}

    def found(*reads: tuple[tuple[str, str], list[tuple[int, int]]]) -> list[tuple[int, int]]:
        every = [Read(RangeSet(OffsetRange(at, *one) for one in ranges), by, SIZE) for by, ranges in reads]
        some = joined(*view_of(log, every), enough=1)
        return [(one.offsets.start, one.offsets.until) for one in some]

    ingest = [(TODAY, [(0, 30)]), (TODAY, [(30, 60)])]
    # Scattered records, a single one, and some at the borders of windows; by whatever code.
    assert found(*ingest, (TODAY, [(3, 4), (17, 18), (40, 41)])) == [(0, 30), (30, 60)]
    assert found(*ingest, (TODAY, [(0, 1)]), (("yesterday", "file"), [(59, 60)])) == [(0, 30), (30, 60)]
    assert found(*ingest, (TODAY, [(20, 40)])) == [(0, 30), (30, 60)]
    assert found(*ingest, (TODAY, [(45, 50)])) == [(0, 30), (30, 60)]
    # The longer one of two, whichever is newer; and only one of each pair that is as long.
    assert found((TODAY, [(0, 10)]), (TODAY, [(5, 60)])) == [(5, 60)]
    assert found((TODAY, [(0, 60)]), (TODAY, [(0, 10)])) == [(0, 60)]
    # Offsets of another partition are others.
    both = [Read(RangeSet([OffsetRange(one, 0, 30)]), TODAY, SIZE) for one in PARTITIONS]
    view, _ = view_of(log, both)
    assert len(stretches(view, everything, *TODAY, lambda _: None, nothing_lacks, size=WHOLE, enough=1)) == 2
    # A window of which nothing counts any more is not asked for its tallies.
    assert found((TODAY, [(0, 30)]), (("yesterday", "file"), [(0, 60)])) == []


@pytest.mark.slow
@given(logs, st.integers(1, END), st.data())
def test_a_message_that_is_not_the_same_is_noticed(log: Log, until: int, data: st.DataObject) -> None:
    at = PARTITIONS[0]
    there = [offset for offset in range(until) if (at, offset) in log]
    one = CountedRange(OffsetRange(at, 0, until), tally_of(at, log, range(until)), (), SIZE)
    if not there:
        return
    offset = data.draw(st.sampled_from(there))
    other = {**log, (at, offset): Message(log[at, offset].text + 1, log[at, offset].rows)}
    assert not one.is_as_read(tally_of(at, other, range(until)))
    gone = {place: message for place, message in log.items() if place != (at, offset)}
    assert not one.is_as_read(tally_of(at, gone, range(until)))
    # No digest covers the times.
    for name in ("first_timestamp", "last_timestamp"):
        assert not one.is_as_read(structs.replace(one.tally, **{name: 1}))


def test_neighbours_are_joined_until_they_are_long_enough() -> None:
    at = PARTITIONS[0]
    log = {(at, offset): Message(offset, 1) for offset in range(END)}
    reads = [Read(RangeSet([OffsetRange(at, start, start + 5)]), TODAY, SIZE) for start in range(0, END, 5)]
    view, blocks = view_of(log, reads)

    def found(enough: int) -> list[int]:
        return [len(one.offsets) for one in joined(view, blocks, enough)]

    assert found(1) == [5] * 12
    assert found(20) == [20] * 3
    assert found(1_000) == [60]
    # Not over offsets that no window of today has read.
    del view.windows[4]
    assert found(1_000) == [20, 35]


@pytest.mark.parametrize("problem", [LedgerContradiction("it is missing"), LedgerUnreadable("it was changed")])
def test_a_window_whose_tallies_the_ledger_has_lost_is_computed_again(problem: Exception) -> None:
    at = PARTITIONS[0]
    log = {(at, offset): Message(offset, 1) for offset in range(END)}
    reads = [Read(RangeSet([OffsetRange(at, start, start + 30)]), TODAY, SIZE) for start in (0, 30)]
    view, blocks = view_of(log, reads)

    def lost(record: Record) -> BlockTallies | None:
        if record.attempt.generation == 1:
            raise problem
        return blocks[record.attempt.generation]

    told: list[str] = []
    (found,) = stretches(view, everything, *TODAY, lost, told.append, size=SIZE, enough=END)
    assert found.offsets == OffsetRange(at, 30, 60)
    assert told == [str(problem)]


def test_windows_that_say_too_little_are_computed_again() -> None:
    """An attempt that has not finished, and a window that has erased some of its offsets."""
    at = PARTITIONS[0]
    covers = RangeSet([OffsetRange(at, 0, 30)])
    view, blocks = view_of({(at, offset): Message(offset, 1) for offset in range(30)}, [Read(covers, TODAY, SIZE)])
    (window,) = view.windows
    for committed, number in (
        (window, 1),
        (Committed(structs.replace(window.record, receipt=None), covers), 0),
        (Committed(window.record, covers, RangeSet([OffsetRange(at, 3, 4)])), 0),
    ):
        seen = LedgerSnapshot([committed], authority_of([committed], None), {}, 0)
        found = stretches(seen, everything, *TODAY, lambda _: blocks[1], nothing_lacks, size=SIZE, enough=END)
        assert len(found) == number
