"""A stream in memory whose windows count what they read, as a job does: with ack values, tallies by blocks, and step 5."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from tests.support.protocol_world import NoWork
from tests.support.streams_in_memory import StreamInMemory
from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Fence, Run
from tidemark.ledger.records import Attempt, BlocksRef, BlockTallies, Receipt, Record, Window
from tidemark.offsets.blocks import BlockTally, PartitionBlocks
from tidemark.offsets.hashing import coordinate_hash
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows.changes_since_pin import check_since_pin


def count(at: TopicPartition, found: list[int]) -> Count:
    return Count.of(len(found), reduce(int.__xor__, (coordinate_hash(at, one) for one in found), 0))


def tally(at: TopicPartition, found: list[int]) -> PartitionTally:
    """Every third message is skipped, every seventh is a dead letter."""
    stored = [one for one in found if one % 3 and one % 7]
    return PartitionTally(
        topic=at.topic,
        incarnation=at.incarnation,
        partition=at.partition,
        read=count(at, found),
        stored=count(at, stored),
        skipped=count(at, [one for one in found if not one % 3]),
        invalid=count(at, [one for one in found if one % 3 and not one % 7]),
    )


@dataclass
class CountingWork(NoWork):
    """Steps 3 to 5 on a window. `size`: the offsets of a block that has a tally of its own; None: there are none."""

    opened: OpenStream
    lane: str
    size: int | None

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self.window, self.covers, self.attempt = window, covers, attempt
        self.found: dict[TopicPartition, list[int]] = {}
        for one, messages in self.opened.log.messages(covers, window.isolation):
            self.found.setdefault(one.partition, []).extend(offset for offset, _ in messages)

    def verify(self) -> Receipt:
        tallies = tuple(tally(at, found) for at, found in self.found.items() if found)
        blocks = self._blocks()
        check_since_pin(self.opened, self.lane, self.window, self.covers, tallies, blocks)
        empty = super().verify()
        return Receipt(
            tallies=tallies,
            sinks=(),
            dead_letters=empty.dead_letters,
            started_at=1,
            finished_at=2,
            fields="digest",
            blocks=None if blocks is None else self._stored(blocks),
        )

    def _stored(self, blocks: BlockTallies) -> BlocksRef:
        return self.opened.book.store_blocks(self.lane, self.window.seq, self.attempt, blocks)

    def _blocks(self) -> BlockTallies | None:
        size = self.size
        if size is None:
            return None
        partitions = []
        for at, found in self.found.items():
            by_block = {one // size: [other for other in found if other // size == one // size] for one in found}
            tallies = tuple(BlockTally.of(block, tally(at, some)) for block, some in sorted(by_block.items()))
            partitions.append(PartitionBlocks(at.topic, at.incarnation, at.partition, tallies))
        return BlockTallies(size=size, partitions=tuple(partitions))


@dataclass
class CountedStream(StreamInMemory):
    """Its windows count what they read."""

    size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # The offsets that each attempt has read, by its generation.
        self.read: dict[int, set[int]] = {}

    def process(self, lane: str, run: str = "run 1") -> Record:
        book = self.opened.book
        found = book.head(lane)
        assert found is not None
        work = CountingWork(self.opened, lane, self.size)
        seq = found.head.seq + 1
        record = protocol.process(book, self.sweeps, work, unwatched, lane, seq, Run(run, "v1", "d"))
        self.read[record.attempt.generation] = {one for of_partition in work.found.values() for one in of_partition}
        return record
