"""Tallies of a window, per partition: of messages, which are counted at their row with index 0, and of rows."""

from __future__ import annotations

from functools import reduce
from itertools import groupby

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from tidemark.blocks import WHOLE, BlockTally, PartitionBlocks
from tidemark.hashing import unsigned
from tidemark.tallies import Count, Outcome, PartitionTally, together
from tidemark_spark.columns import (
    AT,
    BLOCK,
    DIGEST,
    INDEX,
    KEY,
    MESSAGE_HASH,
    OFFSET,
    ROW_HASH,
    TIMESTAMP,
    VALUE,
    has,
)


def tallies(rows: DataFrame) -> tuple[PartitionTally, ...]:
    """One tally per partition that has messages; their rows carry outcome, hashes and digest (`outcomes.with_outcomes`)."""
    return tallies_and_blocks(rows, WHOLE)[0]


def tallies_and_blocks(rows: DataFrame, size: int) -> tuple[tuple[PartitionTally, ...], tuple[PartitionBlocks, ...]]:
    """One tally per partition that has messages, and in the same pass one for each of its blocks of `size` offsets."""
    message = F.col(INDEX) == 0
    kept = has(Outcome.STORED)
    bytes_of = F.coalesce(F.octet_length(KEY), F.lit(0)) + F.coalesce(F.octet_length(VALUE), F.lit(0))
    counted = rows.groupBy(*AT, block_of(size)).agg(
        *_count("read", message, MESSAGE_HASH),
        *_count("stored", message & kept, MESSAGE_HASH),
        *_count("skipped", message & has(Outcome.SKIPPED), MESSAGE_HASH),
        *_count("invalid", message & has(Outcome.INVALID), MESSAGE_HASH),
        *_count("failed", message & has(Outcome.FAILED), MESSAGE_HASH),
        *_count("rows", kept, ROW_HASH),
        F.bit_xor(F.when(kept, F.col(DIGEST))).alias("content"),
        F.min(OFFSET).alias("first"),
        F.max(OFFSET).alias("last"),
        F.sum(F.when(message, bytes_of.cast("long"))).alias("bytes"),
        F.min(F.unix_millis(TIMESTAMP)).alias("first_timestamp"),
        F.max(F.unix_millis(TIMESTAMP)).alias("last_timestamp"),
    )
    found = sorted(((row[BLOCK], _tally(row)) for row in counted.collect()), key=lambda one: (_sorted(one[1]), one[0]))
    partitions: list[PartitionTally] = []
    blocks: list[PartitionBlocks] = []
    for (topic, incarnation, partition), parts in groupby(found, key=lambda one: _sorted(one[1])):
        of_partition = list(parts)
        partitions.append(reduce(together, (tally for _, tally in of_partition)))
        by_block = tuple(BlockTally.of(block, tally) for block, tally in of_partition)
        blocks.append(PartitionBlocks(topic, incarnation, partition, by_block))
    return tuple(partitions), tuple(blocks)


def block_of(size: int) -> Column:
    """The number of the block of an offset; whole numbers, since a double does not hold every offset."""
    return F.expr(f"{OFFSET} div {size}L").alias(BLOCK)


def _sorted(tally: PartitionTally) -> tuple[str, int, int]:
    return tally.topic, tally.incarnation, tally.partition


def _tally(row: Row) -> PartitionTally:
    return PartitionTally(
        topic=row[AT[0]],
        incarnation=row[AT[1]],
        partition=row[AT[2]],
        read=count_of(row["read"], row["read_ack"]),
        stored=count_of(row["stored"], row["stored_ack"]),
        skipped=count_of(row["skipped"], row["skipped_ack"]),
        invalid=count_of(row["invalid"], row["invalid_ack"]),
        failed=count_of(row["failed"], row["failed_ack"]),
        rows=count_of(row["rows"], row["rows_ack"]),
        content=digest_of(row["content"]),
        first=row["first"],
        last=row["last"],
        bytes=row["bytes"],
        first_timestamp=row["first_timestamp"],
        last_timestamp=row["last_timestamp"],
    )


def count_of(number: int, ack: int | None) -> Count:
    """A count from Spark's signed XOR, which is null over nothing."""
    return Count.of(number, unsigned(ack or 0))


def digest_of(content: int | None) -> str:
    """A digest from Spark's signed XOR, which is null over nothing."""
    return f"{unsigned(content or 0):016x}"


def _count(name: str, where: Column, hashed: str) -> tuple[Column, Column]:
    return F.count_if(where).alias(name), F.bit_xor(F.when(where, F.col(hashed))).alias(f"{name}_ack")
