"""The scheme `string`: the value as UTF-8 text."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.streams.schemes import StringScheme
from tidemark_spark.columns import REASON, VALUE
from tidemark_spark.schemes.fields import NOT_UTF8, utf8_text


def parse(messages: DataFrame, _: StringScheme) -> DataFrame:
    text = utf8_text()
    reason = F.when(F.col(VALUE).isNotNull() & text.isNull(), F.lit(NOT_UTF8))
    return messages.withColumns({"value": text, REASON: reason})
