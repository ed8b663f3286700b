"""Tallies of a window, per partition: of messages, which are counted at their row with index 0, and of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from tidemark.blocks import WHOLE, BlockTally, PartitionBlocks
from tidemark.hashing import unsigned
from tidemark.tallies import Count, Outcome, PartitionTally, after, together
from tidemark_spark.columns import (
    AT,
    BLOCK,
    BYTES,
    DIGEST,
    INDEX,
    KEY,
    MESSAGE_HASH,
    OFFSET,
    OUTCOME,
    ROW_HASH,
    SOURCE,
    TIMESTAMP,
    VALUE,
    message_hash,
    source_digest,
)

AS_READ = (BYTES, SOURCE)


def as_read(messages: DataFrame) -> DataFrame:
    """Messages with what is counted of them as they were read: BYTES and SOURCE."""
    size = F.coalesce(F.octet_length(KEY), F.lit(0)) + F.coalesce(F.octet_length(VALUE), F.lit(0))
    return messages.withColumns({BYTES: size.cast("long"), SOURCE: source_digest()})


def read_tallies(messages: DataFrame) -> tuple[PartitionTally, ...]:
    """What was read, per partition, before anything was made of it: `messages` are those of `as_read`."""
    counted = messages.groupBy(*AT).agg(
        F.count("*").alias("messages"), F.bit_xor(message_hash()).alias("messages_ack"), *_of_read()
    )
    return tuple(sorted((PartitionTally(**_partition(row), **_read(row)) for row in counted.collect()), key=_sorted))


def tallies(rows: DataFrame, read: Sequence[PartitionTally] | None = None) -> tuple[PartitionTally, ...]:
    """One tally per partition that has messages; their rows are as `outcomes` describes them.

    `read` is what was counted of the messages before; without it, they are counted here too, and `rows` has what `as_read`
    gives: that is for rows which are an expression of one message each, of which none can get lost on the way.
    """
    return tallies_and_blocks(rows, WHOLE, read)[0]


def tallies_and_blocks(
    rows: DataFrame, size: int, read: Sequence[PartitionTally] | None = None
) -> tuple[tuple[PartitionTally, ...], tuple[PartitionBlocks, ...]]:
    """As `tallies`, and in the same pass one for each block of `size` offsets."""
    message = F.col(INDEX) == 0
    # By outcome too: the few groups that this gives are cheaper than a condition on each value.
    counted = rows.groupBy(*AT, block_of(size), OUTCOME).agg(
        F.count_if(message).alias("messages"),
        F.bit_xor(F.when(message, F.col(MESSAGE_HASH))).alias("messages_ack"),
        F.count("*").alias("rows"),
        F.bit_xor(ROW_HASH).alias("rows_ack"),
        F.bit_xor(DIGEST).alias("content"),
        *(_of_read() if read is None else ()),
    )
    counts = [
        (row[BLOCK], PartitionTally(**_partition(row), **_became(row), **(_read(row) if read is None else {})))
        for row in counted.collect()
    ]
    found = sorted(counts, key=lambda one: (_sorted(one[1]), one[0]))
    partitions: list[PartitionTally] = []
    blocks: list[PartitionBlocks] = []
    for (topic, incarnation, partition), parts in groupby(found, key=lambda one: _sorted(one[1])):
        by_block = {
            block: reduce(together, (tally for _, tally in same)) for block, same in groupby(parts, itemgetter(0))
        }
        partitions.append(reduce(together, by_block.values()))
        of_blocks = tuple(BlockTally.of(block, tally) for block, tally in by_block.items())
        blocks.append(PartitionBlocks(topic, incarnation, partition, of_blocks))
    return tuple(partitions) if read is None else after(read, partitions), tuple(blocks)


def _of_read() -> list[Column]:
    return [
        F.bit_xor(SOURCE).alias("source"),
        F.min(OFFSET).alias("first"),
        F.max(OFFSET).alias("last"),
        F.sum(BYTES).alias("bytes"),
        F.min(F.unix_millis(TIMESTAMP)).alias("first_timestamp"),
        F.max(F.unix_millis(TIMESTAMP)).alias("last_timestamp"),
    ]


def block_of(size: int) -> Column:
    """The number of the block of an offset; whole numbers, since a double does not hold every offset."""
    return F.expr(f"{OFFSET} div {size}L").alias(BLOCK)


def _sorted(tally: PartitionTally) -> tuple[str, int, int]:
    return tally.topic, tally.incarnation, tally.partition


def _partition(row: Row) -> dict[str, Any]:
    return dict(zip(("topic", "incarnation", "partition"), (row[name] for name in AT), strict=True))


def _read(row: Row) -> dict[str, Any]:
    """What a tally says of messages as they were read."""
    return {
        "read": _messages(row),
        "source": digest_of(row["source"]),
        "bytes": row["bytes"] or 0,
        **{name: row[name] for name in ("first", "last", "first_timestamp", "last_timestamp")},
    }


def _became(row: Row) -> dict[str, Any]:
    """What a tally says of messages with one outcome; those without one were only read."""
    if row[OUTCOME] is None:
        return {}
    outcome = Outcome(row[OUTCOME])
    if outcome is not Outcome.STORED:
        return {outcome.name.lower(): _messages(row)}
    rows = count_of(row["rows"], row["rows_ack"])
    return {"stored": _messages(row), "rows": rows, "content": digest_of(row["content"])}


def _messages(row: Row) -> Count:
    return count_of(row["messages"], row["messages_ack"])


def count_of(number: int, ack: int | None) -> Count:
    """A count from Spark's signed XOR, which is null over nothing."""
    return Count.of(number, unsigned(ack or 0))


def digest_of(content: int | None) -> str:
    """A digest from Spark's signed XOR, which is null over nothing."""
    return f"{unsigned(content or 0):016x}"
