"""Taking a value out of what it is sent in, before anything else sees it. A dead letter has the value as Kafka has it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.clients.registry_answers import FRAME, NOT_FRAMED
from tidemark.schemes.kinds import JsonScheme
from tidemark.spark.columns import VALUE
from tidemark.spark.runtime.compiling import value_by_java
from tidemark.streams.decompress import MAX_BYTES
from tidemark.streams.model import Stream

_DECOMPRESSED = Path(__file__).with_name("Decompressed.java")
# The message's own value, and why nothing can be taken out of it; VALUE is null then.
WRAPPED, NOT_WRAPPED = "_wrapped", "_not_wrapped"
_FOUND = "_unwrapped"


def is_wrapped(stream: Stream) -> bool:
    """Whether the values of a stream are compressed, or have the number of a schema before them."""
    return stream.decompress is not None or _framed(stream)


def unwrapped(messages: DataFrame, stream: Stream) -> DataFrame:
    """Messages with what lies in their VALUE. Adds WRAPPED and NOT_WRAPPED."""
    if (how := stream.decompress) is not None:
        kind = "struct<value: binary, why: string>"
        unwrapped_ = value_by_java(messages.sparkSession, f"tidemark_{how}", _DECOMPRESSED, kind, how, MAX_BYTES)
    else:
        unwrapped_ = _behind_the_number()
    columns = [name for name in messages.columns if name != VALUE]
    return messages.withColumn(_FOUND, unwrapped_).select(
        *columns,
        F.col(_FOUND)["value"].alias(VALUE),
        F.col(VALUE).alias(WRAPPED),
        F.col(_FOUND)["why"].alias(NOT_WRAPPED),
    )


def _framed(stream: Stream) -> bool:
    return isinstance(stream.scheme, JsonScheme) and stream.scheme.wire_format is not None


def _behind_the_number() -> Column:
    """The bytes after the number of a schema, and why there are none."""
    value = F.col(VALUE)
    framed = F.startswith(value, F.lit(b"\0")) & (F.octet_length(value) >= FRAME)
    why = F.when(value.isNotNull() & ~framed, F.lit(NOT_FRAMED))
    return F.struct(F.when(framed, F.substr(value, F.lit(FRAME + 1))).alias("value"), why.alias("why"))
