"""A window's tallies per partition: of messages, which are counted at their row with index 0, and of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from tidemark.offsets.blocks import WHOLE, BlockTally, PartitionBlocks
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.tallies import Count, Outcome, PartitionTally, after, check_once, sum_tallies
from tidemark.spark.columns import (
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

# Offsets are marked in words of 64 bits. The number of set bits is the number of different offsets.
_WORD, _MARKS, _COUNTED, _REPEATED = "_word", "_marks", "_counted", "_repeated"
_OFFSETS_PER_WORD = 64

# How a value is computed from rows, and how the values of several groups are combined.
Part = tuple[Column, Callable[[str], Column]]


def as_read(messages: DataFrame) -> DataFrame:
    """Messages with the columns that count them as they were read: BYTES and SOURCE."""
    size = F.coalesce(F.octet_length(KEY), F.lit(0)) + F.coalesce(F.octet_length(VALUE), F.lit(0))
    return messages.withColumns({BYTES: size.cast("long"), SOURCE: source_digest()})


def read_tallies(messages: DataFrame) -> tuple[PartitionTally, ...]:
    """Tallies of the messages as they were read, per partition. `messages` come from `as_read`.

    Raises VerificationFailed when a message was read twice.
    """
    parts = {"messages": (F.count("*"), F.sum), "messages_ack": (F.bit_xor(message_hash()), F.bit_xor), **_of_read()}
    counted = _summed(messages.withColumn(INDEX, F.lit(0)), AT, parts, "messages")
    return tuple(sorted((PartitionTally(**_partition(row), **_read(row)) for row in counted), key=_sorted))


def tallies(rows: DataFrame, read: Sequence[PartitionTally] | None = None) -> tuple[PartitionTally, ...]:
    """One tally per partition that has messages. The rows are as `outcomes` describes them.

    `read` are the tallies of the messages as they were read. Without `read`, the messages are counted here too, and `rows`
    has the columns of `as_read`. That is for rows which are an expression of one message each: none can get lost on the way.
    Raises VerificationFailed when a row came twice.
    """
    return tallies_and_blocks(rows, WHOLE, read)[0]


def tallies_and_blocks(
    rows: DataFrame, size: int, read: Sequence[PartitionTally] | None = None
) -> tuple[tuple[PartitionTally, ...], tuple[PartitionBlocks, ...]]:
    """As `tallies`, with a tally for each block of `size` offsets from the same pass."""
    message = F.col(INDEX) == 0
    parts: dict[str, Part] = {
        "messages": (F.count_if(message), F.sum),
        "messages_ack": (F.bit_xor(F.when(message, F.col(MESSAGE_HASH))), F.bit_xor),
        "rows": (F.count("*"), F.sum),
        "rows_ack": (F.bit_xor(ROW_HASH), F.bit_xor),
        "content": (F.bit_xor(DIGEST), F.bit_xor),
        **(_of_read() if read is None else {}),
    }
    # Grouped by outcome too: a few more groups are cheaper than a condition on each value.
    by = [*AT, BLOCK, OUTCOME]
    counts = [
        (row[BLOCK], PartitionTally(**_partition(row), **_became(row), **(_read(row) if read is None else {})))
        for row in _summed(rows.select("*", block_of(size)), by, parts, "rows of messages")
    ]
    by_order = sorted(counts, key=lambda count: (_sorted(count[1]), count[0]))
    partitions: list[PartitionTally] = []
    blocks: list[PartitionBlocks] = []
    for (topic, incarnation, partition), same in groupby(by_order, key=lambda one: _sorted(one[1])):
        by_block = {
            block: reduce(sum_tallies, (tally for _, tally in of_block))
            for block, of_block in groupby(same, itemgetter(0))
        }
        partitions.append(reduce(sum_tallies, by_block.values()))
        of_blocks = tuple(BlockTally.of(block, tally) for block, tally in by_block.items())
        blocks.append(PartitionBlocks(topic, incarnation, partition, of_blocks))
    return tuple(partitions) if read is None else after(read, partitions), tuple(blocks)


def _summed(rows: DataFrame, by: Sequence[str], parts: Mapping[str, Part], what: str) -> list[Row]:
    """A row for each group. Words are counted first, which finds a coordinate and index that came twice.

    An XOR cannot find it, since a value XOR itself is 0. A count cannot either, where some offsets have no message.
    """
    marked = F.expr(f"bit_or(shiftleft(1L, cast({OFFSET} % {_OFFSETS_PER_WORD} as int)))")
    words = (
        rows.withColumn(_WORD, F.expr(f"{OFFSET} div {_OFFSETS_PER_WORD}"))
        .groupBy(*by, INDEX, _WORD)
        .agg(
            *(part.alias(name) for name, (part, _) in parts.items()), F.count("*").alias(_COUNTED), marked.alias(_MARKS)
        )
    )
    repeated = F.sum(F.col(_COUNTED) - F.bit_count(_MARKS)).alias(_REPEATED)
    summed = words.groupBy(*by).agg(*(merged(name).alias(name) for name, (_, merged) in parts.items()), repeated)
    collected = summed.collect()
    check_once(((PartitionTally(**_partition(row)).at, row[_REPEATED]) for row in collected), what)
    return collected


def _of_read() -> dict[str, Part]:
    time = F.unix_millis(TIMESTAMP)
    return {
        "source": (F.bit_xor(SOURCE), F.bit_xor),
        "first": (F.min(OFFSET), F.min),
        "last": (F.max(OFFSET), F.max),
        "bytes": (F.sum(BYTES), F.sum),
        "first_timestamp": (F.min(time), F.min),
        "last_timestamp": (F.max(time), F.max),
    }


def block_of(size: int) -> Column:
    """The number of an offset's block, by integer division: a double cannot hold every offset."""
    return F.expr(f"{OFFSET} div {size}L").alias(BLOCK)


def _sorted(tally: PartitionTally) -> tuple[str, int, int]:
    return tally.topic, tally.incarnation, tally.partition


def _partition(row: Row) -> dict[str, Any]:
    return dict(zip(("topic", "incarnation", "partition"), (row[name] for name in AT), strict=True))


def _read(row: Row) -> dict[str, Any]:
    """A tally's fields for messages as they were read."""
    return {
        "read": _messages(row),
        "source": digest_of(row["source"]),
        "bytes": row["bytes"] or 0,
        **{name: row[name] for name in ("first", "last", "first_timestamp", "last_timestamp")},
    }


def _became(row: Row) -> dict[str, Any]:
    """A tally's fields for messages with one outcome. Messages without an outcome were only read."""
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
