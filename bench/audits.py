"""An audit of unchanged data, against a bare read of the same data."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from bench.pairs import Pairs, in_pairs
from bench.workbench import Workbench, window
from tidemark_spark.jobs.audit import audit
from tidemark_spark.runtime.session import PARQUET_ROWS, setting


def against_a_read(bench: Workbench) -> Pairs:
    """The stream has one sink, in Parquet. A read takes all columns of the messages, of the files, and of the dead letters."""
    topic = bench.lines(bench.messages)
    opened = bench.stream(topic, {"type": "parquet"})
    window(opened)
    (committed,) = opened.book.committed()
    letters = opened.stream.dead_letters.table
    folders = [one.place["folder"] for one in committed.record.places if one.type == "parquet"]

    def ours() -> None:
        report = audit(opened, "bench")
        assert report.clean, report.sentence()
        assert report.expected == bench.messages

    def bare() -> None:
        _computed(bench.source(topic))
        # With Spark's own default: Tidemark's is for rows of any size.
        with setting(bench.spark, PARQUET_ROWS, "4096"):
            _computed(bench.spark.read.option("recursiveFileLookup", True).parquet(*folders))
        with closing(bench.hbase()) as connection:
            dead_letters = sum(1 for _ in connection.table(letters).scan(batch_size=1000))
        assert dead_letters

    return in_pairs(bench.pairs, ours, bare)


def _computed(rows: Any) -> None:
    """All columns of all rows, which nothing is done with."""
    rows.write.format("noop").mode("overwrite").save()
