"""The sink `delta`: a table of which every reader shows exactly what counts, whatever attempts and replays have left in it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.support.command_line import asked
from tests.support.cuts import Cut, crash, cut_after
from tests.support.independent import _text
from tests.support.oracle import CDN, LEDGERS, Example
from tests.support.playground import Make, Playground
from tidemark.commit.protocol import Step
from tidemark.errors import TooManyInvalid
from tidemark.ledger.records import LaneKind
from tidemark.runs.windows import lanes
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.reading import delta_tables
from tidemark_spark.jobs.audit import audit
from tidemark_spark.jobs.window import process_windows
from tidemark_spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")


def with_table(play: Playground, limits: dict[str, Any] | None = None, **sink: Any) -> None:
    """A Delta table beside the sinks that a playground checks by itself."""
    table, folder = {"type": "hbase", "table": play.name}, {"type": "parquet", "folder": play.name}
    sinks = [{"type": "delta", "folder": f"{play.name}_delta", **sink}, table, folder]
    play.rewrite(sinks=sinks, limits=limits or {})


def base(play: Playground) -> str:
    sink = play.opened.stream.sinks[0]
    assert isinstance(sink, DeltaSink)
    return sink.base(play.opened.connections)


def plainly(play: Playground) -> Counter[tuple[str, int, int, int]]:
    """What any other reader of the table sees: each place, and how often."""
    rows = DeltaTable(base(play)).to_pyarrow_table().to_pylist()
    return Counter((row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in rows)


def assert_each_once(play: Playground, spark: SparkSession) -> None:
    """Every reader gives the oracle's rows, with their contents."""
    wanted = play.expected().rows
    plain = [row for table in delta_tables(play.opened.book, "delta") for row in table.to_pylist()]
    with_spark = [row.asDict() for row in results(spark, play.opened, "delta").collect()]
    for rows in (plain, with_spark):
        found = [
            (
                (row["_topic"], row["_partition"], row["_offset"], row["_index"]),
                {name: _text(row[name]) for name in play.fields if row[name] is not None},
            )
            for row in rows
        ]
        assert len(found) == len(wanted)
        assert dict(found) == wanted
    play.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("P3")
def test_a_refused_window_leaves_no_row_that_a_reader_sees(make: Make, spark: SparkSession) -> None:
    play = make(CDN)
    with_table(play)
    play.produce(80)
    play.ingest()
    before = plainly(play)
    play.kafka.send((play.topics[0], 1, None, value) for value in (b"garbage", b"\xff"))
    play.produce(40)
    with_table(play, limits={"max_invalid": {"number": 1}})
    run = play.new_run()
    for _ in range(2):
        with pytest.raises(TooManyInvalid):
            play.ingest(run)
        assert plainly(play) == before
    with_table(play)
    play.ingest(run)
    assert plainly(play) == Counter(dict.fromkeys(play.expected().rows, 1))
    assert_each_once(play, spark)


@pytest.mark.covers("E43")
def test_a_table_through_ingests_and_replays(make: Make, example: Example, ledger: str, spark: SparkSession) -> None:
    play = make(example, ledger=LEDGERS[ledger])
    with_table(play, compression="zstd")
    play.produce(80)
    (first,) = play.ingest()
    play.produce(40)
    play.ingest()
    assert plainly(play) == Counter(dict.fromkeys(play.expected().rows, 1))
    assert_found_by_each_column(play, spark)
    versions = DeltaTable(base(play))
    assert versions.transaction_version(f"{play.name}/ingest") > first.attempt.generation
    selection = play.ranges(0, 0, (3, 9), (11, 12)) | play.ranges(-1, 2, (5, 6))
    # A replay that is pending, with rows in the table; then it dies between commit and sweep.
    run = play.new_run()
    with pytest.raises(Cut):
        play.select(LaneKind.REPLAY, selection, run, on_step=cut_after(Step.SINK_STORED))
    assert max(plainly(play).values()) == 2
    assert_each_once(play, spark)
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    with pytest.raises(Cut):
        process_windows(play.opened, lane, 1, run, on_step=cut_after(Step.COMMITTED))
    assert_each_once(play, spark)
    lanes.finish(play.opened, lane)
    # Settled: other readers too see each row once, and of the newest attempt.
    assert plainly(play) == Counter(dict.fromkeys(play.expected().rows, 1))
    assert_each_once(play, spark)
    shown = asked("results", str(play.file), "--sink", "delta", "--limit", "1000")
    assert {one["coordinate"] for one in shown} == {f"{t}/{p}@{o}" for t, p, o, _ in play.expected().rows}
    report = audit(play.opened, "audit")
    assert report.clean, report.sentence()
    assert [place.name for place in report.places] == ["delta", "hbase", "parquet", "dead letters"]
    # A row that somebody has deleted is missing for the audit.
    topic, partition, offset, _ = next(iter(play.expected().rows))
    DeltaTable(base(play)).delete(f"_topic = '{topic}' and _partition = {partition} and _offset = {offset}")
    report = audit(play.opened, "again")
    assert report.places[0].missing_at == (f"{topic}/{partition}@{offset}",)


def assert_found_by_each_column(play: Playground, spark: SparkSession) -> None:
    """Whoever filters by a column finds the same rows with Spark, deltalake, polars and DuckDB."""
    table = DeltaTable(base(play))
    rows = table.to_pyarrow_table()
    path = base(play).removeprefix("file://")
    of_spark = results(spark, play.opened, "delta")
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
def test_a_crash_leaves_rows_that_do_not_count(play: Playground, spark: SparkSession, step: Step, times: int) -> None:
    with_table(play)
    play.produce(60)
    run = play.new_run()
    crash(play, run, on_step=cut_after(step, times))
    assert plainly(play)
    assert_each_once(play, spark)
    play.produce(20)
    play.ingest(run)
    play.ingest()
    assert_each_once(play, spark)
    # The second attempt owed a sweep.
    assert plainly(play) == Counter(dict.fromkeys(play.expected().rows, 1))


def test_files_that_are_not_in_the_table_are_not_acknowledged(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = make(CDN)
    with_table(play)
    play.produce(40)
    run = play.new_run()
    # As a version that the table has had: nothing is added, and no error says so.
    monkeypatch.setattr(delta_table, "add", lambda *rest: None)
    with pytest.raises(Exception, match="acknowledged by sink delta"):
        play.ingest(run)
    assert play.head().seq == 0
    monkeypatch.undo()
    play.ingest(run)
    assert_each_once(play, spark)
