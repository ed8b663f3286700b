"""Results in Parquet, as several readers see them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tests.support.live_streams import LiveStream
from tidemark.sinks.reading import parquet_tables
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results


def with_files(live: LiveStream, **sink: Any) -> None:
    live.rewrite(
        sinks=[{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name, **sink}],
    )


def places_by_reader(live: LiveStream, spark: SparkSession) -> list[list[tuple[Any, ...]]]:
    """Coordinate and index of each reader's rows, sorted."""
    with_spark = results(spark, live.opened, "parquet").collect()
    plain = [row for table in parquet_tables(live.opened.ledger, "parquet") for row in table.to_pylist()]
    return [
        sorted((row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in rows)
        for rows in (with_spark, plain)
    ]


def assert_read_alike(live: LiveStream, spark: SparkSession) -> None:
    """Every reader gives the oracle's rows, each once, and the audit is clean."""
    live.assert_exactly_what_was_read()
    wanted = sorted(live.expected().rows)
    assert places_by_reader(live, spark) == [wanted, wanted]
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()
