"""Results in Parquet, as several readers see them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tests.support.playground import Playground
from tidemark.sinks.reading import parquet_tables
from tidemark_spark.jobs.audit import audit
from tidemark_spark.sinks import results


def with_files(play: Playground, **sink: Any) -> None:
    play.rewrite(
        sinks=[{"type": "hbase", "table": play.name}, {"type": "parquet", "folder": play.name, **sink}],
    )


def places_by_reader(play: Playground, spark: SparkSession) -> list[list[tuple[Any, ...]]]:
    """Coordinate and index of each reader's rows, sorted."""
    with_spark = results(spark, play.opened, "parquet").collect()
    plain = [row for table in parquet_tables(play.opened.book, "parquet") for row in table.to_pylist()]
    return [
        sorted((row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in rows)
        for rows in (with_spark, plain)
    ]


def assert_read_alike(play: Playground, spark: SparkSession) -> None:
    """Every reader gives the oracle's rows, each once, and the audit is clean."""
    play.assert_exactly_what_was_read()
    wanted = sorted(play.expected().rows)
    assert places_by_reader(play, spark) == [wanted, wanted]
    report = audit(play.opened, play.new_run())
    assert report.clean, report.sentence()
