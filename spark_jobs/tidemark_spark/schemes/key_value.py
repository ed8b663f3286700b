"""The scheme `key_value`: key and value as UTF-8 text."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.streams.schemes import KeyValueScheme
from tidemark_spark.columns import KEY, REASON, VALUE
from tidemark_spark.schemes.fields import NOT_UTF8, utf8_text

KEY_NOT_UTF8 = "the key is not UTF-8"


def parse(messages: DataFrame, _: KeyValueScheme) -> DataFrame:
    key, value = utf8_text(KEY), utf8_text(VALUE)
    reason = F.when(F.col(KEY).isNotNull() & key.isNull(), F.lit(KEY_NOT_UTF8)).when(
        F.col(VALUE).isNotNull() & value.isNull(), F.lit(NOT_UTF8)
    )
    return messages.withColumns({"key": key, "value": value, REASON: reason})
