"""The schemes that take a message as it is: `raw`, `string`, `key_value` and `message_metadata`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.schemes.kinds import KeyValueScheme, MessageMetadataScheme, RawScheme, StringScheme
from tidemark.spark.columns import KEY, OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC, VALUE
from tidemark.spark.schemes.fields import NOT_UTF8, utf8_text

_KEY_NOT_UTF8 = "the key is not UTF-8"


def raw(messages: DataFrame, _: RawScheme) -> DataFrame:
    """The bytes of key and value, null or empty or anything else."""
    return messages.withColumns({"key": F.col(KEY), "value": F.col(VALUE), REASON: F.lit(None).cast("string")})


def string(messages: DataFrame, _: StringScheme) -> DataFrame:
    """The value as UTF-8 text."""
    text = utf8_text()
    reason = F.when(F.col(VALUE).isNotNull() & text.isNull(), F.lit(NOT_UTF8))
    return messages.withColumns({"value": text, REASON: reason})


def key_value(messages: DataFrame, _: KeyValueScheme) -> DataFrame:
    """Key and value as UTF-8 text."""
    key, value = utf8_text(KEY), utf8_text(VALUE)
    reason = F.when(F.col(KEY).isNotNull() & key.isNull(), F.lit(_KEY_NOT_UTF8)).when(
        F.col(VALUE).isNotNull() & value.isNull(), F.lit(NOT_UTF8)
    )
    return messages.withColumns({"key": key, "value": value, REASON: reason})


def message_metadata(messages: DataFrame, _: MessageMetadataScheme) -> DataFrame:
    """Where and when a message is, instead of what it says."""
    return messages.withColumns(
        {
            "topic": F.col(TOPIC),
            "partition": F.col(PARTITION).cast("long"),
            "offset": F.col(OFFSET),
            "timestamp": F.col(TIMESTAMP),
            REASON: F.lit(None).cast("string"),
        }
    )
