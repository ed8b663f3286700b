"""Tallies of a window, per partition: of messages, which are counted at their row with index 0, and of rows."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.hashing import unsigned
from tidemark.tallies import Count, Outcome, PartitionTally
from tidemark_spark.columns import (
    AT,
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
    message = F.col(INDEX) == 0
    kept = has(Outcome.STORED)
    size = F.coalesce(F.octet_length(KEY), F.lit(0)) + F.coalesce(F.octet_length(VALUE), F.lit(0))
    counted = rows.groupBy(*AT).agg(
        *_count("read", message, MESSAGE_HASH),
        *_count("stored", message & kept, MESSAGE_HASH),
        *_count("skipped", message & has(Outcome.SKIPPED), MESSAGE_HASH),
        *_count("invalid", message & has(Outcome.INVALID), MESSAGE_HASH),
        *_count("failed", message & has(Outcome.FAILED), MESSAGE_HASH),
        *_count("rows", kept, ROW_HASH),
        F.bit_xor(F.when(kept, F.col(DIGEST))).alias("content"),
        F.min(OFFSET).alias("first"),
        F.max(OFFSET).alias("last"),
        F.sum(F.when(message, size.cast("long"))).alias("bytes"),
        F.min(F.unix_millis(TIMESTAMP)).alias("first_timestamp"),
        F.max(F.unix_millis(TIMESTAMP)).alias("last_timestamp"),
    )
    return tuple(
        PartitionTally(
            topic=row[AT[0]],
            incarnation=row[AT[1]],
            partition=row[AT[2]],
            read=count_of(row["read"], row["read_ack"]),
            stored=count_of(row["stored"], row["stored_ack"]),
            skipped=count_of(row["skipped"], row["skipped_ack"]),
            invalid=count_of(row["invalid"], row["invalid_ack"]),
            failed=count_of(row["failed"], row["failed_ack"]),
            rows=count_of(row["rows"], row["rows_ack"]),
            content=f"{unsigned(row['content'] or 0):016x}",
            first=row["first"],
            last=row["last"],
            bytes=row["bytes"],
            first_timestamp=row["first_timestamp"],
            last_timestamp=row["last_timestamp"],
        )
        for row in sorted(counted.collect(), key=lambda row: tuple(row[name] for name in AT))
    )


def count_of(number: int, ack: int | None) -> Count:
    """A count from Spark's signed XOR, which is null over nothing."""
    return Count.of(number, unsigned(ack or 0))


def _count(name: str, where: Column, hashed: str) -> tuple[Column, Column]:
    return F.count_if(where).alias(name), F.bit_xor(F.when(where, F.col(hashed))).alias(f"{name}_ack")
