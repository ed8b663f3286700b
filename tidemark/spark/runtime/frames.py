"""Frames over rows that our own Java classes make, and the rows of a frame for them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T


def frame_of(spark: SparkSession, rows: Any, schema: T.StructType | str) -> DataFrame:
    """A frame of Spark's internal rows, given as a JavaRDD."""
    java: Any = spark._jsparkSession
    if isinstance(schema, str):
        kind = java.sessionState().sqlParser().parseTableSchema(schema)
    else:
        kind = java.parseDataType(schema.json())
    return DataFrame(java.internalCreateDataFrame(rows.rdd(), kind, False), spark)


def rows_of(frame: DataFrame) -> Any:
    """The internal rows of a frame, as a JavaRDD. Whoever takes them one by one gets the same object again and again."""
    query: Any = frame._jdf
    return query.queryExecution().toRdd().toJavaRDD()
