"""Blocks of offsets: tallies finer than a window, for audits of messages that Kafka has deleted.

Block n of a partition is [n * size, (n + 1) * size). The size is 10,000 offsets, doubled until the tallies of a window
fit into one value of the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from tidemark.offsets.ranges import MAX_OFFSET, RangeSet, TopicPartition
from tidemark.offsets.tallies import NOTHING, Count, PartitionTally

BLOCK_OFFSETS = 10_000

# The block size at which each partition is one block: all of its offsets.
WHOLE = MAX_OFFSET


class BlockTally(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The outcomes of the messages of one block in a window. Like `PartitionTally`, but counts all dead letters together."""

    block: int
    stored: Count = NOTHING
    rows: Count = NOTHING
    content: str = "0" * 16
    dead_letters: Count = NOTHING
    # Older versions did not count it by blocks.
    skipped: Count = NOTHING

    @classmethod
    def of(cls, block: int, tally: PartitionTally) -> BlockTally:
        dead_letters = tally.invalid + tally.failed
        return cls(block, tally.stored, tally.rows, tally.content, dead_letters, tally.skipped)

    def __add__(self, other: BlockTally) -> BlockTally:
        """The sum of two tallies of one block, whose messages were counted apart."""
        return BlockTally(
            self.block,
            self.stored + other.stored,
            self.rows + other.rows,
            f"{int(self.content, 16) ^ int(other.content, 16):016x}",
            self.dead_letters + other.dead_letters,
            self.skipped + other.skipped,
        )


class PartitionBlocks(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The blocks of one partition that have messages, ascending."""

    topic: str
    incarnation: int
    partition: int
    blocks: tuple[BlockTally, ...]

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition, self.incarnation)


def in_blocks(offsets: RangeSet, size: int) -> Iterator[tuple[TopicPartition, int, int, int]]:
    """A set of offsets cut at the borders of blocks: (partition, block, start, until), ascending."""
    for offset in offsets:
        start = offset.start
        while start < offset.until:
            block = start // size
            until = min(offset.until, (block + 1) * size)
            yield offset.partition, block, start, until
            start = until


def count_blocks(offsets: RangeSet, size: int) -> int:
    """In how many blocks a set of offsets lies. The cost grows with the set's ranges, never with its offsets."""
    number, last = 0, None
    for offset in offsets:
        first, behind = offset.start // size, (offset.until - 1) // size
        number += behind - first + (last != (offset.partition, first))
        last = (offset.partition, behind)
    return number


def block_size(offsets: RangeSet, most: int) -> int:
    """10,000, doubled until the offsets lie in at most `most` blocks. WHOLE when each partition lies in one block."""
    partitions = len(offsets.partitions)
    size = BLOCK_OFFSETS
    while (number := count_blocks(offsets, size)) > most and number > partitions:
        size = min(2 * size, WHOLE)
    return WHOLE if number <= partitions else size


def fields_digest(fields: Mapping[str, str]) -> str:
    """SHA-256 of the names and types of fields, in order. It says over which fields the content of rows was digested."""
    return hashlib.sha256(msgspec.json.encode(list(fields.items()))).hexdigest()
