"""Decompressing values by `decompress`, before anything else sees them. A dead letter has the value as Kafka has it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.spark.columns import VALUE
from tidemark.spark.runtime.compiling import value_by_java
from tidemark.streams.decompress import MOST_BYTES

_DECOMPRESSED = Path(__file__).with_name("Decompressed.java")
# The message's own value, and why it cannot be decompressed; VALUE is null then.
COMPRESSED, NOT_COMPRESSED = "_compressed", "_not_compressed"
_FOUND = "_decompressed"


def decompressed(messages: DataFrame, how: str) -> DataFrame:
    """Messages with what their VALUE is when it is decompressed. Adds COMPRESSED and NOT_COMPRESSED."""
    kind = "struct<value: binary, why: string>"
    found = value_by_java(messages.sparkSession, f"tidemark_{how}", _DECOMPRESSED, kind, how, MOST_BYTES)
    columns = [name for name in messages.columns if name != VALUE]
    return messages.withColumn(_FOUND, found).select(
        *columns,
        F.col(_FOUND)["value"].alias(VALUE),
        F.col(VALUE).alias(COMPRESSED),
        F.col(_FOUND)["why"].alias(NOT_COMPRESSED),
    )
