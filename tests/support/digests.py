"""The digests of rows on each way that rows take, and as they are specified."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from tidemark.offsets.blocks import WHOLE
from tidemark.offsets.hashing import content_hash, coordinate_hash, row_hash, unsigned
from tidemark.offsets.ranges import TopicPartition
from tidemark.spark.columns import DIGEST, OFFSET
from tidemark.spark.rows.one_pass import one_pass
from tidemark.spark.rows.outcomes import hashed
from tidemark.spark.rows.pipeline import rows_of
from tidemark.streams.model import Stream
from tidemark.types.digests import digested

AT = TopicPartition("orders", 0, 1)


def one_way(messages: DataFrame, stream: Stream) -> dict[int, int]:
    """The digest of each stored message, as Java computes it."""
    made = one_pass(messages.sparkSession, lambda counted: messages, stream, (), WHOLE)
    assert made is not None
    return {row[OFFSET]: unsigned(row[DIGEST]) for row in made.stored.select(OFFSET, DIGEST).collect()}


def kept_way(messages: DataFrame, stream: Stream) -> dict[int, int]:
    """The same as Spark computes it."""
    rows = hashed(rows_of(messages, stream).frame, stream.fields)
    return {row[OFFSET]: unsigned(row[DIGEST]) for row in rows.select(OFFSET, DIGEST).collect()}


def expected_digest(offset: int, fields: dict[str, str], row: dict[str, Any]) -> int:
    columns = [digested(kind, row[name]) for name, kind in fields.items()]
    return content_hash(row_hash(coordinate_hash(AT, offset), 0), [_bytes(one) for one in columns])


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
