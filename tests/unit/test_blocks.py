"""Blocks of offsets: how they cut, how large they are, and that their tallies fit into one value."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.memory import MemoryStore
from tests.support.protocol_world import LANE, RUN, NoWork, World
from tidemark.commit.protocol import commit, settle, take
from tidemark.errors import LedgerContradiction, LedgerUnreadable
from tidemark.ledger.codec import encode
from tidemark.ledger.ledger import blocks_key
from tidemark.ledger.limits import most_blocks
from tidemark.ledger.records import BlocksRef, BlockTallies, Receipt
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.stores.hbase import HBaseLedgerStore
from tidemark.ledger.stores.zookeeper import ZooKeeperLedgerStore
from tidemark.offsets.blocks import (
    BLOCK_OFFSETS,
    WHOLE,
    BlockTally,
    PartitionBlocks,
    block_size,
    count_blocks,
    in_blocks,
)
from tidemark.offsets.hashing import coordinate_hash
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally, sum_tallies

AT = [TopicPartition("logs", number) for number in range(3)]

ranges = st.builds(
    lambda at, start, length: OffsetRange(at, start, start + length),
    st.sampled_from(AT),
    st.integers(0, 400),
    st.integers(0, 90),
)
sets = st.lists(ranges, max_size=8).map(RangeSet)


@given(sets, st.integers(1, 60))
def test_blocks_cut_a_set_without_losing_or_doubling_an_offset(offsets: RangeSet, size: int) -> None:
    pieces = list(in_blocks(offsets, size))
    assert RangeSet(OffsetRange(at, start, until) for at, _, start, until in pieces) == offsets
    assert sum(until - start for _, _, start, until in pieces) == offsets.count()
    assert all(start // size == (until - 1) // size == block for _, block, start, until in pieces)
    assert count_blocks(offsets, size) == len({(at, block) for at, block, _, _ in pieces})


@pytest.mark.parametrize(
    ("offsets", "most", "size"),
    [
        # One partition in one block, two partitions in one each: their tallies say it already.
        ([(0, 10_000)], 9, WHOLE),
        ([(20_005, 20_010), (7, 9_999)], 9, WHOLE),
        ([], 9, WHOLE),
        ([(0, 10_001)], 9, 10_000),
        ([(9_999, 10_001)], 9, 10_000),
        ([(0, 90_000)], 9, 10_000),
        ([(0, 90_001)], 9, 20_000),
        ([(0, 90_000), (0, 10)], 9, 20_000),
        ([(0, 90_001)], 1, WHOLE),
        ([(0, 10), (0, 90_001)], 1, WHOLE),
        ([(0, MAX_OFFSET)], 9, BLOCK_OFFSETS << 47),
    ],
)
def test_a_block_is_doubled_until_there_are_few_enough(offsets: list[tuple[int, int]], most: int, size: int) -> None:
    covers = RangeSet(OffsetRange(at, start, until) for at, (start, until) in zip(AT, offsets, strict=False))
    assert block_size(covers, most) == size


@pytest.mark.parametrize("limit", [HBaseLedgerStore.max_value_bytes, ZooKeeperLedgerStore.max_value_bytes])
@pytest.mark.parametrize("partitions", [1, 200])
def test_the_largest_tallies_fit_into_one_value(limit: int, partitions: int) -> None:
    store = MemoryStore(max_value_bytes=limit)
    covers = RangeSet(OffsetRange(TopicPartition("t" * 200, number), 5, MAX_OFFSET) for number in range(partitions))
    size = block_size(covers, most_blocks(store, covers.partitions))
    most = Count(2**63 - 1, "f" * 16)
    blocks: dict[TopicPartition, list[BlockTally]] = {}
    for at, block, _, _ in in_blocks(covers, size):
        blocks.setdefault(at, []).append(BlockTally(block, most, most, "f" * 16, most, most))
    value = BlockTallies(
        size=size,
        partitions=tuple(
            PartitionBlocks(at.topic, at.incarnation, at.partition, tuple(of)) for at, of in blocks.items()
        ),
    )
    assert limit / 4 < len(encode(value)) <= limit


def tally_of(offsets: list[int]) -> PartitionTally:
    """A tally as Spark makes it of messages that are stored but for every third."""
    stored, other = [one for one in offsets if one % 3], [one for one in offsets if not one % 3]

    def count(chosen: list[int]) -> Count:
        return Count.of(len(chosen), reduce(int.__xor__, (coordinate_hash(AT[0], one) for one in chosen), 0))

    return PartitionTally(
        topic="logs",
        incarnation=1,
        partition=0,
        read=count(offsets),
        stored=count(stored),
        skipped=count([one for one in other if one % 2]),
        invalid=count([one for one in other if not one % 2]),
        rows=count(stored),
        content=count(stored).ack,
        first=min(offsets),
        last=max(offsets),
        bytes=10 * len(offsets),
        # Not every message has a time.
        first_timestamp=min((one for one in offsets if one % 5), default=None),
        last_timestamp=max((one for one in offsets if one % 5), default=None),
    )


@pytest.mark.covers("G1")
@given(st.sets(st.integers(0, 200), min_size=1), st.integers(1, 80))
def test_the_tallies_of_blocks_together_are_that_of_the_partition(offsets: set[int], size: int) -> None:
    blocks = {one // size: [other for other in sorted(offsets) if other // size == one // size] for one in offsets}
    assert reduce(sum_tallies, map(tally_of, blocks.values())) == tally_of(sorted(offsets))


def receipt(ref: BlocksRef) -> Receipt:
    return structs.replace(NoWork().verify(), blocks=ref)


BLOCKS = BlockTallies(size=10_000, partitions=(PartitionBlocks("logs", 1, 0, (BlockTally(0, rows=Count.of(2, 9)),)),))


def test_blocks_of_an_attempt_that_never_commits_harm_nobody() -> None:
    world = World()
    world.open()
    seq = world.pin()
    world.ledger.store_blocks(LANE, seq, take(world.ledger, LANE, seq, RUN).attempt, BLOCKS)
    world.process(seq)
    assert verify(world.ledger) == []
    assert [world.ledger.blocks(one.record) for one in world.ledger.committed()] == [None]


def test_blocks_are_stored_once_and_read_as_the_receipt_names_them() -> None:
    world = World()
    world.open()
    seq = world.pin()
    taken = take(world.ledger, LANE, seq, RUN)
    ref = world.ledger.store_blocks(LANE, seq, taken.attempt, BLOCKS)
    assert world.ledger.store_blocks(LANE, seq, taken.attempt, BLOCKS) == ref
    record = commit(world.ledger, taken, receipt(ref))
    settle(world.ledger, world.sweeps, LANE)
    assert world.ledger.blocks(record) == BLOCKS
    assert verify(world.ledger) == []

    key = blocks_key(LANE, seq, taken.attempt)
    stored = world.store.values[key]
    world.store.values[key] = stored.replace(b"[2,", b"[3,")
    with pytest.raises(LedgerUnreadable, match=r"blocks/ingest/0000000000000000001/.*it was changed"):
        world.ledger.blocks(record)
    del world.store.values[key]
    with pytest.raises(LedgerContradiction, match="is missing, and the receipt of window ingest/1 names it"):
        world.ledger.blocks(record)
