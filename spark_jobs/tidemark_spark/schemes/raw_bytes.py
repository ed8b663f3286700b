"""The scheme `raw`: the bytes of key and value, null or empty or anything else."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.streams.schemes import RawScheme
from tidemark_spark.columns import KEY, REASON, VALUE


def parse(messages: DataFrame, _: RawScheme) -> DataFrame:
    return messages.withColumns({"key": F.col(KEY), "value": F.col(VALUE), REASON: F.lit(None).cast("string")})
