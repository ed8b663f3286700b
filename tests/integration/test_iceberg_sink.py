"""The sink `iceberg`: a table of which other readers see committed windows alone, each row once, at any moment."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import StringType, TimestamptzType
from pyspark.sql import SparkSession

from services import control
from services.site import Site
from tests.support.browsed import browsed, places_of
from tests.support.claiming import claim_lane
from tests.support.command_line import asked, tidemark
from tests.support.cuts import Cut, crash, cut_after
from tests.support.independent import _text
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, Place
from tests.support.proxy import LossyProxy, lossy
from tests.support.stores import SETTINGS
from tests.support.submitted import KILLED_JOB, Submitted
from tidemark.commit.protocol import Step
from tidemark.errors import TooManyInvalid, Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.windows import lanes
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import opened
from tidemark.sinks.iceberg.compacting import IcebergCompaction, compact, where_of
from tidemark.sinks.iceberg.reading import iceberg_tables
from tidemark.sinks.iceberg.settings import IcebergSink, PartitionKey
from tidemark.sinks.kinds import sink_to_compact
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.sinks import results
from tidemark.spark.sinks.iceberg.writer import without_partition

pytestmark = pytest.mark.usefixtures("spark")

# Its types say another order of arguments than it takes.
EQUAL: Any = EqualTo


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog in a file of SQLite."""
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "catalog.db")}
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_DEFAULT", json.dumps(connection))


def with_table(
    live: LiveStream, limits: dict[str, Any] | None = None, ledger: dict[str, Any] | None = None, **sink: Any
) -> None:
    """An Iceberg table beside the sinks that a stream of its own checks by itself."""
    table, folder = {"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}
    iceberg = {"type": "iceberg", "folder": f"{live.name}_iceberg", "table": f"lake.{live.name}", **sink}
    live.rewrite(sinks=[iceberg, table, folder], limits=limits or {}, **({"ledger": ledger} if ledger else {}))


def iceberg_sink(live: LiveStream) -> IcebergSink:
    (sink,) = (one for one in live.opened.stream.sinks if isinstance(one, IcebergSink))
    return sink


def table_of(live: LiveStream) -> Table | None:
    return opened(where_of(live.opened, iceberg_sink(live)))


def plainly(live: LiveStream) -> Counter[Place]:
    """What any other reader of the table sees: each place, and how often."""
    table = table_of(live)
    rows = [] if table is None else table.scan().to_arrow().to_pylist()
    return Counter((row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in rows)


def each_once(live: LiveStream) -> Counter[Place]:
    return Counter(dict.fromkeys(live.expected().rows, 1))


def assert_each_once(live: LiveStream, spark: SparkSession) -> None:
    """Every reader of Tidemark gives the oracle's rows, with their contents. So do the stream's other sinks."""
    assert_own_readers_agree(live, spark)
    live.assert_exactly_what_was_read()


def assert_own_readers_agree(live: LiveStream, spark: SparkSession) -> None:
    wanted = live.expected().rows
    plain = [row for table in iceberg_tables(live.opened.ledger, "iceberg") for row in table.to_pylist()]
    with_spark = [row.asDict() for row in results(spark, live.opened, "iceberg").collect()]
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


@pytest.mark.full
@pytest.mark.covers("I1", "I2", "I4")
def test_a_table_through_ingests_and_replays(make: Make, spark: SparkSession) -> None:
    live = make(CDN)
    with_table(live, compression="zstd", partition_by=["day(time)", "bucket(4, clientip)"])
    live.produce(80)
    live.ingest()
    live.produce(40)
    live.ingest()
    assert plainly(live) == each_once(live)
    assert_found_by_each_column(live, spark)
    assert_rows_of_a_file_are_of_one_partition(live)
    selection = live.ranges(0, 0, (3, 9), (11, 12)) | live.ranges(-1, 2, (5, 6))
    # A replay that is pending, with files in the lake; then it dies between commit and publication.
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, selection, run, on_step=cut_after(Step.SINK_STORED))
    assert plainly(live) == each_once(live)
    assert_each_once(live, spark)
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    with pytest.raises(Cut):
        process_windows(live.opened, lane, 1, run, on_step=cut_after(Step.COMMITTED))
    # Readers of the ledger see it at once, and others the older rows until the next run publishes it.
    assert plainly(live) == each_once(live)
    assert_each_once(live, spark)
    before = table_of(live)
    lanes.finish(live.opened, lane)
    assert plainly(live) == each_once(live)
    assert_each_once(live, spark)
    after = table_of(live)
    assert before is not None
    assert after is not None
    assert len(after.snapshots()) == len(before.snapshots()) + 1
    shown = asked("results", str(live.file), "--sink", "iceberg", "--limit", "1000")
    assert {one["coordinate"] for one in shown} == {f"{t}/{p}@{o}" for t, p, o, _ in live.expected().rows}
    looked_through = places_of(browsed(live.opened, "iceberg", count=7))
    assert looked_through == [(f"{t}/{p}@{o}", index) for t, p, o, index in sorted(live.expected().rows)]
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert [place.name for place in report.places] == ["iceberg", "hbase", "parquet", "dead letters"]
    # A row that somebody has deleted is missing for the audit.
    topic, partition, offset, _ = next(iter(live.expected().rows))
    last = live.head().last
    assert last is not None
    any_generation = structs.replace(last, attempt=structs.replace(last.attempt, generation=2**62))
    gone = RangeSet([OffsetRange(TopicPartition(topic, partition), offset, offset + 1)])
    iceberg_table.remove(where_of(live.opened, iceberg_sink(live)), any_generation, gone)
    report = audit(live.opened, "again")
    assert report.places[0].missing_at == (f"{topic}/{partition}@{offset}",)


def assert_rows_of_a_file_are_of_one_partition(live: LiveStream) -> None:
    """As Iceberg's own transforms see it, whose hash of texts Spark does not have."""
    table = table_of(live)
    assert table is not None
    day, bucket = DayTransform().transform(TimestamptzType()), BucketTransform(4).transform(StringType())
    for one in table.scan().plan_files():
        rows = pq.read_table(one.file.file_path.removeprefix("file://"), partitioning=None)
        times = rows["time"].cast("int64").to_pylist()
        found = {(day(at), bucket(ip)) for at, ip in zip(times, rows["clientip"].to_pylist(), strict=True)}
        assert found == {(one.file.partition[0], one.file.partition[1])}


def assert_found_by_each_column(live: LiveStream, spark: SparkSession) -> None:
    """Whoever filters by a column finds the same rows with Spark, pyiceberg, polars and DuckDB."""
    table = table_of(live)
    assert table is not None
    rows = table.scan().to_arrow()
    paths = [one.file.file_path.removeprefix("file://") for one in table.scan().plan_files()]
    of_spark = results(spark, live.opened, "iceberg")
    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as connection:
        # Without it, polars warns of a faster package.
        patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        for name in rows.column_names:
            value = next((one for one in rows[name].to_pylist() if one is not None), None)
            if value is None:
                continue
            wanted = rows[name].to_pylist().count(value)
            said = value.isoformat() if hasattr(value, "isoformat") else value
            assert table.scan(row_filter=EQUAL(name, said)).to_arrow().num_rows == wanted, name
            assert pl.scan_iceberg(table).filter(pl.col(name) == value).collect().height == wanted, name
            counted = f'SELECT count(*) FROM read_parquet(?) WHERE "{name}" = ?'
            assert connection.execute(counted, [paths, value]).fetchall() == [(wanted,)], name
            if name in of_spark.columns:
                assert of_spark.where(of_spark[name] == value).count() == wanted, name


# The short forms are in `tests/unit/test_iceberg_windows.py`.
CUTS = [(Step.SINK_STORED, 1), (Step.VERIFIED, 1), (Step.COMMITTED, 1)]


@pytest.mark.full
@pytest.mark.parametrize(("step", "times"), CUTS, ids=lambda value: str(value).replace(" ", "-"))
@pytest.mark.covers("I1")
def test_a_crash_shows_others_nothing_that_is_not_committed(
    live: LiveStream, spark: SparkSession, step: Step, times: int
) -> None:
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
    assert plainly(live) == each_once(live)


@pytest.mark.full
@pytest.mark.covers("I1")
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
    assert plainly(live) == each_once(live)
    assert_each_once(live, spark)


@pytest.mark.full
def test_a_catalog_that_is_away_after_the_commit(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window counts, and no run goes on until others see it too."""
    live = make(CDN)
    with_table(live)
    live.produce(40)

    def away(*given: Any) -> None:
        raise Unreachable("nobody is there")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iceberg_table, "publish", away)
        for _ in range(2):
            with pytest.raises(Unreachable, match="its rows are published there"):
                live.ingest()
        assert_each_once(live, spark)
        assert not plainly(live)
    live.produce(10)
    live.ingest()
    assert plainly(live) == each_once(live)


def files_of(live: LiveStream) -> dict[str, set[Place]]:
    """The places in each file of the lake, whether a snapshot names it or not."""
    base = Path(iceberg_sink(live).base(live.opened.connections).removeprefix("file://"))
    columns = ["_topic", "_partition", "_offset", "_index"]
    tables = {str(path): pq.read_table(path, columns=columns, partitioning=None) for path in base.rglob("*.parquet")}
    return {path: {tuple(row.values()) for row in table.to_pylist()} for path, table in tables.items()}


@pytest.mark.full
@pytest.mark.covers("I3")
def test_what_is_erased_is_gone_once_old_snapshots_have_expired(make: Make, spark: SparkSession) -> None:
    live = make(CDN)
    with_table(live)
    for number in (60, 20, 20):
        live.produce(number)
        live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9)))
    rows = sorted(live.expected().rows)
    gone = {rows[0], rows[-1]}
    options = [part for t, p, o, _ in sorted(gone) for part in ("--records", f"{t}/{p}@{o}")]
    done = asked("erase", "--yes", str(live.file), *options, "--reason", "request 4711")
    (remains,) = (one["remains"] for one in done["places"] if one["type"] == "iceberg")
    assert "files of older snapshots hold it until they expire: tidemark compact" in remains
    left = Counter(dict.fromkeys(set(rows) - gone, 1))
    assert plainly(live) == left
    assert gone <= {place for places in files_of(live).values() for place in places}
    # Others go on while small files become large ones, and the bytes of what was erased go.
    opened_stream = live.opened
    sink = sink_to_compact(opened_stream.stream.sinks, live.name, "iceberg")
    planned = IcebergCompaction().planned(opened_stream, sink, CompactionRequest())
    assert [one.files > 1 for one in planned[:1]] == [True]
    compact(opened_stream, sink, "a compaction", CompactionRequest())
    held = files_of(live)
    assert not gone & {place for places in held.values() for place in places}
    table = table_of(live)
    assert table is not None
    assert len(list(table.scan().plan_files())) == 1
    assert plainly(live) == left
    made = IcebergCompaction().made(opened_stream, sink, "a compaction")
    assert [one.rows for one in made[:1]] == [len(left)]
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    plain = [row for one in iceberg_tables(live.opened.ledger, "iceberg") for row in one.to_pylist()]
    assert len(plain) == len(left) == results(spark, live.opened, "iceberg").count()
    # A replay takes its rows out of the large file, and what follows is added to it.
    live.produce(20)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 1, (2, 5)))
    assert plainly(live) == Counter(dict.fromkeys(set(live.expected().rows) - gone, 1))
    assert audit(live.opened, "again").clean


@pytest.mark.covers("I4")
def test_a_time_without_a_partition_is_refused(spark: SparkSession) -> None:
    days = [0, None, 365 * 57_000, -365 * 3_000, 2_932_896, 2_932_897, -719_162, -719_163]
    rows = spark.createDataFrame([(one,) for one in days], "day int")
    for cast in ("timestamp", "timestamp_ntz"):
        times = rows.selectExpr("day", f"cast(date_from_unix_date(day) as {cast}) as time")
        asked_for = without_partition("lake", [PartitionKey("id", "bucket", 4), PartitionKey("time", "day")])
        assert asked_for is not None
        told = {row[0]: row[1] for row in times.select("day", asked_for["reason"]).collect()}
        why = "sink lake: time lies beyond the years 1 to 9999, so it has no day there"
        beyond = (365 * 57_000, -365 * 3_000, 2_932_897, -719_163)
        assert told == {one: why if one in beyond else None for one in days}
    assert without_partition("lake", [PartitionKey("id", "bucket", 4)]) is None


# In the body of a commit that publishes a window.
LANE = b"tidemark.lane."


@pytest.fixture
def proxy(site: Site) -> Iterator[LossyProxy]:
    """Before the REST catalog."""
    with lossy(site.port("iceberg")) as made:
        yield made


def with_catalog(
    make: Make, site: Site, kind: str, proxy: LossyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LiveStream:
    """A lake, and a server that has the catalog: PostgreSQL, with the ledger, or a REST catalog. Nothing else."""
    control.up(site, ["postgresql" if kind == "postgresql" else "iceberg"])
    if kind == "rest":
        catalog = {"conn_type": "iceberg", "host": f"http://127.0.0.1:{proxy.port}"}
        monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_DEFAULT", json.dumps(catalog))
        ledger = {"conn_type": "sqlite", "host": str(tmp_path / "ledger.db")}
        monkeypatch.setenv("AIRFLOW_CONN_SQLITE_DEFAULT", json.dumps(ledger))
    live = make(
        CDN, ledger=SETTINGS["postgresql"] if kind == "postgresql" else {"type": "sql", "sql": "sqlite_default"}
    )
    more = {"catalog": "sql_default"} if kind == "postgresql" else {}
    live.rewrite(
        sinks=[{"type": "iceberg", "folder": f"{live.name}_iceberg", "table": f"lake.{live.name}", **more}],
        dead_letters={"type": "parquet", "folder": f"{live.name}_dead"},
    )
    return live


def version_of(live: LiveStream) -> str:
    table = table_of(live)
    assert table is not None
    return table.metadata_location


@pytest.mark.full
@pytest.mark.covers("I1", "I2", "I3", "I6")
@pytest.mark.parametrize("kind", [pytest.param("postgresql", marks=pytest.mark.full), "rest"])
def test_a_catalog_on_a_server(
    make: Make,
    site: Site,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    proxy: LossyProxy,
) -> None:
    """Runs that die before and after the catalog's commit, two commits of one version, an erasure, and a compaction."""

    def cut(*_: object) -> None:
        raise Cut

    live = with_catalog(make, site, kind, proxy, tmp_path, monkeypatch)
    live.produce(60)
    # Answers are lost: of a commit that is there, and later of one that never came.
    proxy.lose_next(LANE, applied=True)
    live.ingest()
    assert plainly(live) == each_once(live)
    before, run = version_of(live), live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9)), run, on_step=cut_after(Step.COMMITTED))
    assert version_of(live) == before
    proxy.lose_next(LANE, applied=False)
    lanes.finish(live.opened, lanes.lane_name(LaneKind.REPLAY, run))
    table = table_of(live)
    assert table is not None
    assert len(table.snapshots()) == 2
    assert plainly(live) == each_once(live)
    assert proxy.lost == (2 if kind == "rest" else 0)
    live.produce(20)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "mark_settled", cut)
        with pytest.raises(Cut):
            live.ingest()
    published = version_of(live)
    assert plainly(live) == each_once(live)
    assert live.ingest() == []
    assert version_of(live) == published

    where, tries = where_of(live.opened, iceberg_sink(live)), 0

    def after_another(table: Table, transaction: Transaction, _: list[str]) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            compact(live.opened, iceberg_sink(live), "a compaction", CompactionRequest())
        transaction.set_properties(files=str(len(list(table.scan().plan_files()))))
        return True

    iceberg_table.change(where, after_another)
    table = table_of(live)
    assert table is not None
    assert (tries, table.properties["files"]) == (2, "1")
    assert len(list(table.scan().plan_files())) == 1
    assert plainly(live) == each_once(live)
    assert_own_readers_agree(live, spark)

    gone = min(live.expected().rows)
    named = "{}/{}@{}".format(*gone)
    asked("erase", "--yes", str(live.file), "--records", named, "--reason", "request 4711")
    assert plainly(live) == each_once(live) - Counter([gone])
    assert any(gone in places for places in files_of(live).values())
    asked("compact", str(live.file), "--sink", "iceberg", "--yes")
    assert not any(gone in places for places in files_of(live).values())
    assert plainly(live) == each_once(live) - Counter([gone])
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


@pytest.mark.full
@pytest.mark.covers("I1", "I2")
@pytest.mark.parametrize("kind", ["postgresql", "rest"])
@pytest.mark.parametrize("step", [Step.SINK_STORED, Step.COMMITTED])
def test_killed_beside_a_catalog_on_a_server(
    make: Make,
    site: Site,
    spark: SparkSession,
    tmp_path: Path,
    step: Step,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    proxy: LossyProxy,
) -> None:
    """An ingest, and a replay: others see nothing of it, and what is done again ends right."""
    live = with_catalog(make, site, kind, proxy, tmp_path, monkeypatch)
    live.produce(60)
    live.ingest()

    def killed(run: str, seq: int, lane: str = INGEST) -> None:
        before = plainly(live), version_of(live)
        variables = {"TEST_STEP": step.value, "TEST_SIGNAL": "SIGKILL"}
        arguments = live.job_arguments(run, seq, lane)
        job = Submitted(live.site, tmp_path / "job.log", KILLED_JOB, *arguments, conf=None, **variables)
        try:
            assert job.wait() == -signal.SIGKILL, job.output
        finally:
            job.end()
        assert (plainly(live), version_of(live)) == before

    live.produce(40)
    run = live.new_run()
    killed(run, live.pin(run).seq)
    live.ingest(run)
    run = live.new_run()
    lane = claim_lane(live.opened, LaneKind.REPLAY, run, live.ranges(0, 0, (3, 9)) | live.ranges(-1, 2, (5, 6)), "why")
    pending = lanes.plan_lane(live.opened, lane, run)
    assert pending is not None
    killed(run, pending.window.seq, lane)
    if (pending := lanes.plan_lane(live.opened, lane, run)) is not None:
        process_windows(live.opened, lane, pending.window.seq, run)
    lanes.finish(live.opened, lane)
    assert plainly(live) == each_once(live)
    assert_own_readers_agree(live, spark)
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


@pytest.mark.full
def test_a_window_that_is_committed_before_it_is_read(make: Make, spark: SparkSession) -> None:
    live = make(CDN, guarantee="at_most_once")
    table, iceberg = {"type": "hbase", "table": live.name}, {"type": "iceberg", "folder": "x", "table": "lake.x"}
    iceberg |= {"folder": f"{live.name}_iceberg", "table": f"lake.{live.name}"}
    live.rewrite(sinks=[iceberg, table, {"type": "parquet", "folder": live.name}], guarantee="at_most_once")
    live.produce(60)
    live.ingest()
    assert plainly(live) == each_once(live)
    assert_each_once(live, spark)


@pytest.mark.full
@pytest.mark.covers("I2")
def test_a_ledger_that_was_restored_from_before(make: Make, spark: SparkSession, tmp_path: Path) -> None:
    """The table has windows that the ledger knows no more: what is read again takes their place, for others too."""
    live = make(CDN, ledger={"type": "sql", "sql": "sql_default", "table": "before"})
    control.up(live.site, ["postgresql"])
    with_table(live)
    live.produce(60)
    live.ingest()
    backup = str(tmp_path / "backup")
    tidemark("ledger", "backup", str(live.file), backup)
    live.produce(40)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9)))
    with_table(live, ledger={"type": "sql", "sql": "sql_default", "table": "after"})
    tidemark("ledger", "restore", "--yes", str(live.file), backup)
    # What the ledger has lost lies beside what is read again, until that is published.
    live.ingest()
    assert plainly(live) == each_once(live)
    # A replay that was lost is asked for again.
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9)))
    assert plainly(live) == each_once(live)
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()
