"""Tallies of a window, per partition: of messages, which are counted at their row with index 0, and of rows."""

from __future__ import annotations

from functools import reduce
from itertools import groupby
from operator import itemgetter

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from tidemark.blocks import WHOLE, BlockTally, PartitionBlocks
from tidemark.hashing import unsigned
from tidemark.tallies import NOTHING, Count, Outcome, PartitionTally, together
from tidemark_spark.columns import (
    AT,
    BLOCK,
    BYTES,
    DIGEST,
    INDEX,
    MESSAGE_HASH,
    OFFSET,
    OUTCOME,
    ROW_HASH,
    TIMESTAMP,
)


def tallies(rows: DataFrame) -> tuple[PartitionTally, ...]:
    """One tally per partition that has messages; their rows are as `outcomes` describes them."""
    return tallies_and_blocks(rows, WHOLE)[0]


def tallies_and_blocks(rows: DataFrame, size: int) -> tuple[tuple[PartitionTally, ...], tuple[PartitionBlocks, ...]]:
    """One tally per partition that has messages, and in the same pass one for each of its blocks of `size` offsets."""
    message = F.col(INDEX) == 0
    # By outcome too: the few groups that this gives are cheaper than a condition on each value.
    counted = rows.groupBy(*AT, block_of(size), OUTCOME).agg(
        F.count_if(message).alias("messages"),
        F.bit_xor(F.when(message, F.col(MESSAGE_HASH))).alias("messages_ack"),
        F.count("*").alias("rows"),
        F.bit_xor(ROW_HASH).alias("rows_ack"),
        F.bit_xor(DIGEST).alias("content"),
        F.min(OFFSET).alias("first"),
        F.max(OFFSET).alias("last"),
        F.sum(BYTES).alias("bytes"),
        F.min(F.unix_millis(TIMESTAMP)).alias("first_timestamp"),
        F.max(F.unix_millis(TIMESTAMP)).alias("last_timestamp"),
    )
    found = sorted(((row[BLOCK], _tally(row)) for row in counted.collect()), key=lambda one: (_sorted(one[1]), one[0]))
    partitions: list[PartitionTally] = []
    blocks: list[PartitionBlocks] = []
    for (topic, incarnation, partition), parts in groupby(found, key=lambda one: _sorted(one[1])):
        by_block = {
            block: reduce(together, (tally for _, tally in same)) for block, same in groupby(parts, itemgetter(0))
        }
        partitions.append(reduce(together, by_block.values()))
        of_blocks = tuple(BlockTally.of(block, tally) for block, tally in by_block.items())
        blocks.append(PartitionBlocks(topic, incarnation, partition, of_blocks))
    return tuple(partitions), tuple(blocks)


def block_of(size: int) -> Column:
    """The number of the block of an offset; whole numbers, since a double does not hold every offset."""
    return F.expr(f"{OFFSET} div {size}L").alias(BLOCK)


def _sorted(tally: PartitionTally) -> tuple[str, int, int]:
    return tally.topic, tally.incarnation, tally.partition


def _tally(row: Row) -> PartitionTally:
    """The tally of what has one outcome; without one, it was only read."""
    messages = count_of(row["messages"], row["messages_ack"])
    outcome = Outcome(row[OUTCOME]) if row[OUTCOME] is not None else None
    of_outcome = {one: messages if one is outcome else NOTHING for one in Outcome}
    is_kept = outcome is Outcome.STORED
    return PartitionTally(
        topic=row[AT[0]],
        incarnation=row[AT[1]],
        partition=row[AT[2]],
        read=messages,
        stored=of_outcome[Outcome.STORED],
        skipped=of_outcome[Outcome.SKIPPED],
        invalid=of_outcome[Outcome.INVALID],
        failed=of_outcome[Outcome.FAILED],
        rows=count_of(row["rows"], row["rows_ack"]) if is_kept else NOTHING,
        content=digest_of(row["content"] if is_kept else None),
        first=row["first"],
        last=row["last"],
        bytes=row["bytes"] or 0,
        first_timestamp=row["first_timestamp"],
        last_timestamp=row["last_timestamp"],
    )


def count_of(number: int, ack: int | None) -> Count:
    """A count from Spark's signed XOR, which is null over nothing."""
    return Count.of(number, unsigned(ack or 0))


def digest_of(content: int | None) -> str:
    """A digest from Spark's signed XOR, which is null over nothing."""
    return f"{unsigned(content or 0):016x}"
