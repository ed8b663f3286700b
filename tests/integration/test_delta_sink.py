"""The sink `delta`: a table of which every reader shows exactly what counts, whatever attempts and replays have left."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.support.browsed import browsed, places_of
from tests.support.command_line import asked
from tests.support.covering import REPOSITORY
from tests.support.cuts import Cut, crash, cut_after
from tests.support.independent import _text
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS, Example
from tidemark.commit.protocol import Step
from tidemark.errors import TooManyInvalid
from tidemark.ledger.records import LaneKind
from tidemark.runs.windows import lanes
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.reading import delta_tables
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")


def with_table(live: LiveStream, limits: dict[str, Any] | None = None, **sink: Any) -> None:
    """A Delta table beside the sinks that a stream of its own checks by itself."""
    table, folder = {"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}
    sinks = [{"type": "delta", "folder": f"{live.name}_delta", **sink}, table, folder]
    live.rewrite(sinks=sinks, limits=limits or {})


def base(live: LiveStream) -> str:
    sink = live.opened.stream.sinks[0]
    assert isinstance(sink, DeltaSink)
    return sink.base(live.opened.connections)


def plainly(live: LiveStream) -> Counter[tuple[str, int, int, int]]:
    """What any other reader of the table sees: each place, and how often."""
    rows = DeltaTable(base(live)).to_pyarrow_table().to_pylist()
    return Counter((row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in rows)


def assert_each_once(live: LiveStream, spark: SparkSession) -> None:
    """Every reader gives the oracle's rows, with their contents."""
    wanted = live.expected().rows
    plain = [row for table in delta_tables(live.opened.ledger, "delta") for row in table.to_pylist()]
    with_spark = [row.asDict() for row in results(spark, live.opened, "delta").collect()]
    for rows in (plain, with_spark):
        found = [
            (
                (row["_topic"], row["_partition"], row["_offset"], row["_index"]),
                {name: _text(row[name]) for name in live.fields if row[name] is not None},
            )
            for row in rows
        ]
        assert len(found) == len(wanted)
        assert dict(found) == wanted
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("P3")
def test_a_refused_window_leaves_no_row_that_a_reader_sees(make: Make, spark: SparkSession) -> None:
    live = make(CDN)
    with_table(live)
    live.produce(80)
    live.ingest()
    before = plainly(live)
    live.kafka.send((live.topics[0], 1, None, value) for value in (b"garbage", b"\xff"))
    live.produce(40)
    with_table(live, limits={"max_invalid": {"number": 1}})
    run = live.new_run()
    for _ in range(2):
        with pytest.raises(TooManyInvalid):
            live.ingest(run)
        assert plainly(live) == before
    with_table(live)
    live.ingest(run)
    assert plainly(live) == Counter(dict.fromkeys(live.expected().rows, 1))
    assert_each_once(live, spark)


@pytest.mark.full
@pytest.mark.covers("E43", "I10")
def test_a_table_through_ingests_and_replays(make: Make, example: Example, ledger: str, spark: SparkSession) -> None:
    live = make(example, ledger=LEDGERS[ledger])
    with_table(live, compression="zstd")
    live.produce(80)
    (first,) = live.ingest()
    live.produce(40)
    live.ingest()
    assert plainly(live) == Counter(dict.fromkeys(live.expected().rows, 1))
    assert_found_by_each_column(live, spark)
    versions = DeltaTable(base(live))
    assert versions.transaction_version(f"{live.name}/ingest") > first.attempt.generation
    selection = live.ranges(0, 0, (3, 9), (11, 12)) | live.ranges(-1, 2, (5, 6))
    # A replay that is pending, with files beside the table; then it dies between commit and publication.
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, selection, run, on_step=cut_after(Step.SINK_STORED))
    assert max(plainly(live).values()) == 1
    assert_each_once(live, spark)
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    with pytest.raises(Cut):
        process_windows(live.opened, lane, 1, run, on_step=cut_after(Step.COMMITTED))
    assert_each_once(live, spark)
    lanes.finish(live.opened, lane)
    # Settled: other readers too see each row once, and of the newest attempt.
    assert plainly(live) == Counter(dict.fromkeys(live.expected().rows, 1))
    assert_each_once(live, spark)
    assert_queries_of_the_documents(live, spark)
    shown = asked("results", str(live.file), "--sink", "delta", "--limit", "1000")
    assert {one["coordinate"] for one in shown} == {f"{t}/{p}@{o}" for t, p, o, _ in live.expected().rows}
    looked_through = places_of(browsed(live.opened, "delta", count=7))
    assert looked_through == [(f"{t}/{p}@{o}", index) for t, p, o, index in sorted(live.expected().rows)]
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert [place.name for place in report.places] == ["delta", "hbase", "parquet", "dead letters"]
    # A row that somebody has deleted is missing for the audit.
    topic, partition, offset, _ = next(iter(live.expected().rows))
    DeltaTable(base(live)).delete(f"_topic = '{topic}' and _partition = {partition} and _offset = {offset}")
    report = audit(live.opened, "again")
    assert report.places[0].missing_at == (f"{topic}/{partition}@{offset}",)


def assert_queries_of_the_documents(live: LiveStream, spark: SparkSession) -> None:
    """Each query in Python of docs/readers.md counts the rows of partition 0."""
    text = (REPOSITORY / "docs" / "readers.md").read_text()
    assert text.count("/data/lake/orders") >= 6
    queries = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(queries) == 4
    wanted = sum(partition == 0 for _, partition, _, _ in live.expected().rows)
    for query in queries:
        names: dict[str, Any] = {"spark": spark}
        exec(query.replace("/data/lake/orders", base(live).removeprefix("file://")), names)
        assert names["number"] == wanted, query


def assert_found_by_each_column(live: LiveStream, spark: SparkSession) -> None:
    """Whoever filters by a column finds the same rows with Spark, deltalake, polars and DuckDB."""
    table = DeltaTable(base(live))
    rows = table.to_pyarrow_table()
    path = base(live).removeprefix("file://")
    of_spark = results(spark, live.opened, "delta")
    for name in rows.column_names:
        value = next((one for one in rows[name].to_pylist() if one is not None), None)
        if value is None:
            continue
        wanted = rows[name].to_pylist().count(value)
        assert table.to_pyarrow_table(filters=[(name, "=", value)]).num_rows == wanted, name
        assert pl.scan_delta(path).filter(pl.col(name) == value).collect().height == wanted, name
        with duckdb.connect() as connection:
            connection.register("rows", table.to_pyarrow_dataset())
            found = connection.execute(f'SELECT count(*) FROM rows WHERE "{name}" = ?', [value]).fetchall()
        assert found == [(wanted,)], name
        if name in of_spark.columns:
            assert of_spark.where(of_spark[name] == value).count() == wanted, name


CUTS = [
    (Step.SINK_STORED, 1),
    pytest.param(Step.VERIFIED, 1, marks=pytest.mark.full),
    pytest.param(Step.COMMITTED, 1, marks=pytest.mark.full),
]


@pytest.mark.full
@pytest.mark.parametrize(("step", "times"), CUTS, ids=lambda value: str(value).replace(" ", "-"))
def test_a_crash_leaves_no_row_that_others_see(live: LiveStream, spark: SparkSession, step: Step, times: int) -> None:
    with_table(live)
    live.produce(60)
    run = live.new_run()
    crash(live, run, on_step=cut_after(step, times))
    assert not plainly(live)
    assert_each_once(live, spark)
    live.produce(20)
    live.ingest(run)
    live.ingest()
    assert_each_once(live, spark)
    assert plainly(live) == Counter(dict.fromkeys(live.expected().rows, 1))
