"""Rows at given offsets, and rows elsewhere."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.ranges import RangeSet
from tidemark_spark.columns import COORDINATE, INCARNATION, OFFSET, PARTITION, TOPIC

# Up to here a condition in the plan; beyond, the offsets are listed and joined, since Spark compiles every condition.
_MOST_CONDITIONS = 50

_RANGE = f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, first long, last long"


def only(rows: DataFrame, ranges: RangeSet) -> DataFrame:
    """The rows whose coordinate is in `ranges`."""
    found = list(ranges)
    if len(found) <= _MOST_CONDITIONS:
        return rows.where(_condition(ranges))
    return rows.join(F.broadcast(listed(rows.sparkSession, ranges)), list(COORDINATE), "left_semi")


def without(rows: DataFrame, ranges: RangeSet) -> DataFrame:
    """The rows whose coordinate is not in `ranges`."""
    found = list(ranges)
    if len(found) <= _MOST_CONDITIONS:
        return rows.where(~_condition(ranges))
    return rows.join(F.broadcast(listed(rows.sparkSession, ranges)), list(COORDINATE), "left_anti")


def listed(spark: SparkSession, ranges: RangeSet) -> DataFrame:
    """Every coordinate of the ranges as a row."""
    rows = [
        (one.partition.topic, one.partition.incarnation, one.partition.partition, one.start, one.until - 1)
        for one in ranges
    ]
    return spark.createDataFrame(rows, _RANGE).select(
        TOPIC, INCARNATION, PARTITION, F.explode(F.sequence("first", "last")).alias(OFFSET)
    )


def _condition(ranges: RangeSet) -> Column:
    conditions = [
        (F.col(TOPIC) == one.partition.topic)
        & (F.col(INCARNATION) == one.partition.incarnation)
        & (F.col(PARTITION) == one.partition.partition)
        & (F.col(OFFSET) >= one.start)
        & (F.col(OFFSET) < one.until)
        for one in ranges
    ]
    return reduce(or_, conditions, F.lit(False))
