"""A lake in a bucket of a real server of S3's protocol: results and dead letters, with Spark and without."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs
from pyspark.sql import SparkSession

from services import control, environment
from services.site import Site
from tests.support import own_readers
from tests.support.command_line import asked, tidemark
from tests.support.cuts import Cut, cut_after
from tests.support.independent import _text
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, Place
from tests.support.proxy import FatalProxy, fatal
from tests.support.submitted import FINISHING_JOB, KILLED_JOB, WINDOW_JOB, Submitted
from tidemark.clients import object_stores
from tidemark.clients.connections import Connection
from tidemark.clients.environment import from_environment
from tidemark.clients.object_stores import access_of
from tidemark.commit.protocol import Step
from tidemark.errors import NotAuthorized, WrongUse
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive
from tidemark.runs.windows import lanes
from tidemark.sinks.delta import table
from tidemark.sinks.iceberg import catalog
from tidemark.sinks.iceberg.latest.compacting import where_of
from tidemark.sinks.iceberg.latest.settings import IcebergLatestSink
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.latest.settings import LatestSettings
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.parquet.parts import steady
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results

LEDGER = {"type": "sql", "sql": "sqlite_default"}
# The server of the catalog writes the table's metadata into the bucket, and Tidemark the data.
IN_REST = " in a REST catalog"
LATEST = ("delta_latest", "iceberg_latest", f"iceberg_latest{IN_REST}")


@pytest.fixture
def bucket(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Connection:
    """The only place of files. Neither HBase nor ZooKeeper has a connection, and no key is in AWS's own variables."""
    control.up(site, ["s3"])
    for name in ("HBASE_DEFAULT", "ZOOKEEPER_DEFAULT", "LAKE_DEFAULT"):
        monkeypatch.delenv(f"AIRFLOW_CONN_{name}")
    for name, value in environment.object_store(site).items():
        monkeypatch.setenv(name, value)
    file = {"conn_type": "sqlite", "host": str(tmp_path / "ledger.db")}
    monkeypatch.setenv("AIRFLOW_CONN_SQLITE_DEFAULT", json.dumps(file))
    rest = {"conn_type": "iceberg", "host": f"http://{site.address('iceberg')}"}
    monkeypatch.setenv("AIRFLOW_CONN_REST_DEFAULT", json.dumps(rest))
    return from_environment("aws_default")


def stream(make: Make, sink: str) -> LiveStream:
    live = make(CDN, ledger=LEDGER)
    catalog = "sqlite_default"
    if sink.endswith(IN_REST):
        control.up(live.site, ["iceberg"])
        catalog, sink = "rest_default", sink.removesuffix(IN_REST)
    # A catalog in a file lies beside the ledger. Dead letters are in no Iceberg table.
    more = {"table": f"lake.{live.name}", "catalog": catalog} if sink.startswith("iceberg") else {}
    if sink.endswith("_latest"):
        more |= {"key": "clientip", "buckets": 4}
    if sink in ("parquet", "iceberg"):
        more |= {"partition_by": ["method" if sink == "parquet" else "bucket(4, clientip)"]}
    letters = "parquet" if sink.startswith("iceberg") else sink.removesuffix("_latest")
    live.rewrite(
        sinks=[{"type": sink, "name": "files", "files": "aws_default", "folder": live.name, **more}],
        dead_letters={"type": letters, "files": "aws_default", "folder": f"{live.name}_dead", "max_redrives": 5},
    )
    return live


def assert_right(
    live: LiveStream, erased: frozenset[tuple[str, int, int]] = frozenset(), *, with_spark: bool = False
) -> None:
    wanted = live.expected()
    rows = {place: row for place, row in wanted.rows.items() if place[:3] not in erased}
    for reader, found in own_readers.results_of(live.opened, {"files"}, with_spark=with_spark):
        assert (len(found), dict(found)) == (len(rows), rows), reader
    dead = {place: reason for place, reason in wanted.dead.items() if place not in erased}
    letters = own_readers.dead_letters(live.opened)
    assert {place[:3]: fields["reason"] for place, fields in letters} == dead
    assert len(letters) == len(dead)


def objects(connection: Connection, *parts: str) -> list[str]:
    """What another program finds in the bucket, as names below the lake."""
    access = access_of(connection)
    assert access is not None
    store = fs.S3FileSystem(**access.for_arrow())
    root = "/".join((f"{access.bucket}/lake", *parts))
    found = store.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    return [one.path.removeprefix(f"{root}/") for one in found if one.type == fs.FileType.File]


@pytest.mark.covers("O13")
@pytest.mark.usefixtures("spark")
def test_a_stream_in_a_bucket(make: Make, bucket: Connection) -> None:
    """The short form of the whole way: a cut, a retry, a replay, and an audit; read without Spark."""
    live = stream(make, "parquet")
    live.produce(240)
    with pytest.raises(Cut):
        live.ingest(on_step=cut_after(Step.SINK_STORED))
    assert own_readers.dead_letters(live.opened) == []
    live.ingest(take_over=True)
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 5), (7, 8)))
    assert_right(live)
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.expected) == (True, 240), report.sentence()


@pytest.mark.full
@pytest.mark.covers("O13")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sink", ["parquet", "delta", "iceberg", f"iceberg{IN_REST}"])
def test_the_whole_way_in_a_bucket(make: Make, bucket: Connection, sink: str) -> None:
    """Ingest, a cut, a retry, a replay, an audit, results without Spark, a redrive, an erasure and a compaction."""
    live = stream(make, sink)
    live.produce(240)
    with pytest.raises(Cut):
        live.ingest(on_step=cut_after(Step.SINK_STORED))
    assert [one for one in objects(bucket, f"{live.name}_dead") if one.endswith(".parquet")]
    assert own_readers.dead_letters(live.opened) == []
    live.ingest(take_over=True)
    live.produce(60)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 5), (7, 8)))
    live.select(LaneKind.REPLAY, redrive(live.opened, DeadLetterFilter()).ranges)
    assert_right(live)
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.expected) == (True, 300), report.sentence()
    shown = asked("results", str(live.file), "--limit", "1000")
    assert len(shown) == len(live.expected().rows)

    erased = frozenset({sorted(live.expected().dead)[0], sorted(live.expected().rows)[0][:3]})
    named = [part for one in erased for part in ("--records", "{}/{}@{}".format(*one))]
    done = asked("erase", "--yes", str(live.file), *named, "--reason", "request 4711")
    (remains,) = [one["remains"] for one in done["places"] if one["name"] == "dead_letters"]
    # Old files of a table stay until a vacuum.
    assert remains == "" or (sink == "delta" and "until the table is vacuumed" in remains)
    assert_right(live, erased)
    if sink == "parquet":
        before = objects(bucket, live.name)
        asked("compact", str(live.file), "--yes")
        after = objects(bucket, live.name)
        # One folder, with a file for each partition.
        parts = [one.rpartition("/")[0] for one in after if one.endswith(".parquet")]
        assert len({one.partition("/by_")[0] for one in parts}) == 1, after
        assert len({*parts}) == len(parts), after
        assert len(before) > len(after)
    if sink.startswith("iceberg"):
        asked("compact", str(live.file), "--yes")
        assert_right(live, erased)
        asked("erase", "--yes", str(live.file), *named, "--reason", "request 4711")
    assert_right(live, erased, with_spark=True)
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.erased) == (True, 2), report.sentence()
    assert not [one for one in objects(bucket, live.name) if "_temporary" in one]


class Newest(NamedTuple):
    """The row of a key: its place, and what the message says."""

    place: Place
    fields: dict[str, str]


def newest(live: LiveStream, erased: Collection[tuple[str, int, int]] = frozenset()) -> dict[tuple[str, str], Newest]:
    """Of each topic and key the newest row: with the highest offset, then partition. A tombstone here has no key, so no row."""
    left = (one for one in live.expected().rows.items() if one[0][:3] not in erased)
    rows = sorted(left, key=lambda one: (one[0][2], one[0][1]))
    return {(at[0], row["clientip"]): Newest(at, row) for at, row in rows if row}


def seen(live: LiveStream, bucket: Connection, sink: str) -> dict[tuple[str, str], Newest]:
    """What other programs see: deltalake, or pyiceberg by the catalog."""
    (settings,) = live.opened.stream.sinks
    assert isinstance(settings, LatestSettings)
    base = settings.base(live.opened.connections)
    if isinstance(settings, IcebergLatestSink):
        table = catalog.opened(where_of(live.opened, settings))
        found = [] if table is None else table.scan().to_arrow().to_pylist()
    elif objects(bucket, live.name, "_delta_log"):
        found = DeltaTable(folders.escaped(base), storage_options=folders.options(base)).to_pyarrow_table().to_pylist()
    else:
        found = []
    rows = {
        (row["_topic"], row["clientip"]): Newest(
            (row["_topic"], row["_partition"], row["_offset"], row["_index"]),
            {name: _text(row[name]) for name in live.fields if row[name] is not None},
        )
        for row in found
    }
    assert len(rows) == len(found), "a key is there twice"
    return rows


def assert_newest(
    live: LiveStream,
    spark: SparkSession,
    bucket: Connection,
    sink: str,
    erased: Collection[tuple[str, int, int]] = frozenset(),
) -> None:
    """What others see is what Tidemark's readers give, with Spark and without, and what the messages say."""
    wanted = newest(live, erased)
    assert seen(live, bucket, sink) == wanted
    places = {
        (row["_topic"], row["_partition"], row["_offset"]) for row in results(spark, live.opened, "files").collect()
    }
    shown = asked("results", str(live.file), "--limit", "1000")
    assert len(shown) == len(wanted)
    assert {one["coordinate"] for one in shown} == {f"{t}/{p}@{o}" for t, p, o in places}
    assert places == {one.place[:3] for one in wanted.values()}


@pytest.mark.full
@pytest.mark.covers("O13", "L3")
# Of a table in Iceberg only the files are in the bucket: its catalog decides who is first, there as on a disk.
@pytest.mark.parametrize("sink", ["delta_latest", *(pytest.param(one, marks=pytest.mark.full) for one in LATEST[1:])])
def test_a_table_of_newest_rows_in_a_bucket(
    make: Make, spark: SparkSession, bucket: Connection, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingest, two who publish at once, a replay that is cut between its commit and its publication, and an audit."""
    live = stream(make, sink)
    live.produce(120)
    live.ingest()
    before = newest(live)
    assert seen(live, bucket, sink) == before
    live.produce(60)
    run = live.new_run()
    with pytest.raises(Cut):
        live.ingest(run, on_step=cut_after(Step.COMMITTED))
    assert seen(live, bucket, sink) == before
    (window,) = (one.record for one in live.opened.ledger.committed() if one.record.seq == 2)
    admin = kind_of(sink.removesuffix(IN_REST)).make_admin()
    real = steady

    def after_another(*given: Any) -> Any:
        monkeypatch.setattr("tidemark.sinks.latest.table.steady", real)
        found = real(*given)
        admin.publish(live.opened.ledger, live.opened.connections, window.places[0].place, window)
        return found

    # The version that this one makes is there by then, which only the bucket can tell, or the catalog.
    monkeypatch.setattr("tidemark.sinks.latest.table.steady", after_another)
    assert live.ingest(run) == []
    assert_newest(live, spark, bucket, sink)
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 20)), run, on_step=cut_after(Step.COMMITTED))
    lanes.finish(live.opened, lanes.lane_name(LaneKind.REPLAY, run))
    assert_newest(live, spark, bucket, sink)
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.expected) == (True, 180), report.sentence()


def ended(proxy: FatalProxy, site: Site, number: int, *command: str) -> None:
    """Run a program that is killed at a change of the bucket that it asks for: 0 and 1 are before and after the first one.

    It alone asks through the proxy: Spark keeps the address that it has for a bucket.
    """
    connection = json.loads(os.environ["AIRFLOW_CONN_AWS_DEFAULT"])
    connection["extra"]["endpoint_url"] = f"http://127.0.0.1:{proxy.port}"
    program = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment.spark(site), "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection)},
    )
    proxy.end_at(1 + number // 2, program.pid, applied=number % 2 == 1)
    try:
        said, _ = program.communicate(timeout=300)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait(60)
        proxy.end_at(0, 0, applied=False)
    assert program.returncode == -signal.SIGKILL, said


def committed_only(live: LiveStream, kind: str) -> str:
    """Commit a window, and do not publish it. Gives its lane."""
    run, cut = live.new_run(), cut_after(Step.COMMITTED)
    if kind == "ingest":
        live.produce(12)
        with pytest.raises(Cut):
            live.ingest(run, on_step=cut)
        return INGEST
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 20)), run, on_step=cut)
    return lanes.lane_name(LaneKind.REPLAY, run)


@pytest.mark.full
@pytest.mark.covers("O13", "L1", "L3")
@pytest.mark.parametrize("sink", LATEST)
def test_killed_at_a_change_of_a_bucket(
    make: Make, spark: SparkSession, bucket: Connection, sink: str, site: Site
) -> None:
    """While it publishes an ingest and a replay, erases, and compacts: what is done again ends right, and audits are clean."""
    live = stream(make, sink)
    live.produce(120)
    live.ingest()
    with fatal(site.port("s3")) as proxy:
        for kind, number in (("ingest", 1), ("replay", 2)):
            lane = committed_only(live, kind)
            ended(proxy, site, number, sys.executable, str(FINISHING_JOB), str(live.file), lane)
            lanes.finish(live.opened, lane)
            assert seen(live, bucket, sink) == newest(live)
        assert_newest(live, spark, bucket, sink)

        erased: set[tuple[str, int, int]] = set()
        for number in (0, 3):
            one = max(row.place[:3] for row in newest(live, erased).values())
            erase = ["erase", "--yes", str(live.file), "--records", "{}/{}@{}".format(*one), "--reason", "request 4711"]
            ended(proxy, site, number, sys.executable, "-m", "tidemark", *erase)
            tidemark(*erase)
            erased.add(one)
            assert seen(live, bucket, sink) == newest(live, erased)
        # Before its first change: s3proxy takes long to remove the folders of a Spark that was killed later.
        submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", str(WINDOW_JOB)]
        run = ["--stream-file", str(live.file), "--sink", "files", "--run", live.new_run()]
        ended(proxy, site, 0, *submit, "compact", *run)
        assert_newest(live, spark, bucket, sink, erased)
    tidemark("compact", "--yes", str(live.file))
    assert_newest(live, spark, bucket, sink, erased)
    assert held(bucket, live.name, erased) == []
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.erased) == (True, 2), report.sentence()


def held(connection: Connection, folder: str, wanted: Collection[tuple[str, int, int]]) -> list[str]:
    """The files in the bucket, whoever names them, that have rows of some messages."""
    access = access_of(connection)
    assert access is not None
    store, found = fs.S3FileSystem(**access.for_arrow()), []
    for name in objects(connection, folder):
        if name.endswith(".parquet"):
            rows = pq.read_table(f"{access.bucket}/lake/{folder}/{name}", filesystem=store, partitioning=None)
            places = zip(*(rows.column(one).to_pylist() for one in ("_topic", "_partition", "_offset")), strict=True)
            found += [name] * (not {*places}.isdisjoint(wanted))
    return found


@pytest.mark.covers("O13")
def test_a_wrong_key_is_named_and_never_shown(bucket: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(bucket, password="canary-wrong-key")
    object_stores.note("wrong", {"aws_default": ["wrong"]}, lambda name: wrong)
    base = f"{bucket.extra['path']}/wrong"
    calls: list[Callable[[], object]] = [
        lambda: files.owner(base),
        lambda: files.own(base, "wrong", "ledger", "files"),
        lambda: table.exists(base),
        lambda: table.prepare(base, table.columns({"id": "string"}), "wrong", "ledger"),
    ]
    for call in calls:
        with pytest.raises(NotAuthorized, match=rf"(?s){re.escape(base)}.*refuses the key: correct the con") as refused:
            call()
        assert "canary" not in str(refused.value)
    assert objects(bucket, "wrong") == []


@pytest.mark.full
@pytest.mark.covers("O13")
def test_a_bucket_that_does_not_exist_is_no_server_that_is_away(bucket: Connection) -> None:
    lost = replace(bucket, extra={**bucket.extra, "path": "s3a://nobodys/lake"})
    object_stores.note("lost", {"aws_default": ["lost"]}, lambda name: lost)
    base = "s3a://nobodys/lake/lost"
    calls: list[Callable[[], object]] = [
        lambda: files.own(base, "lost", "ledger", "files"),
        lambda: table.prepare(base, table.columns({"id": "string"}), "lost", "ledger"),
    ]
    for call in calls:
        with pytest.raises(WrongUse, match=rf"(?s){base}.*Create the bucket, or correct the path"):
            call()


@pytest.mark.full
@pytest.mark.covers("O13")
def test_two_commits_of_one_version_of_a_table(bucket: Connection) -> None:
    """The server refuses the second put of a version, and delta-rs makes the next version of it."""
    # The server may be that of an earlier run.
    name = f"two_{secrets.token_hex(3)}"
    object_stores.note(name, {"aws_default": [name]}, from_environment)
    base = f"{bucket.extra['path']}/{name}"
    rows = pa.table({"id": [1, 2]})
    write_deltalake(folders.escaped(base), rows, storage_options=folders.options(base))
    one, other = (DeltaTable(folders.escaped(base), storage_options=folders.options(base)) for _ in range(2))
    write_deltalake(one, rows, mode="append")
    write_deltalake(other, rows, mode="append")
    found = DeltaTable(folders.escaped(base), storage_options=folders.options(base))
    assert (found.version(), found.to_pyarrow_table().num_rows) == (2, 6)


@pytest.mark.full
@pytest.mark.covers("O13", "F1")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sink", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("step", [Step.DEAD_LETTERS_STORED, Step.SINK_STORED])
def test_killed_while_it_wrote_to_a_bucket(
    make: Make, bucket: Connection, tmp_path: Path, sink: str, step: Step
) -> None:
    """What the dead job has left counts nowhere, and the next commit removes it. Its output has no key."""
    live = stream(make, sink)
    live.produce(240)
    run = live.new_run()
    arguments = live.job_arguments(run, live.pin(run).seq)
    variables = {"TEST_STEP": step.value, "TEST_SIGNAL": "SIGKILL", "TEST_WAY": "one pass"}
    job = Submitted(live.site, tmp_path / "job.log", KILLED_JOB, *arguments, conf=None, **variables)
    assert job.wait() == -signal.SIGKILL, job.output
    job.end()
    assert str(bucket.password) not in job.output
    written = live.name if step == Step.SINK_STORED else f"{live.name}_dead"
    left = objects(bucket, f"_{written}.attempts" if sink == "delta" else written)
    assert [one for one in left if one.endswith(".parquet")]
    assert own_readers.dead_letters(live.opened) == []
    live.ingest(run)
    assert_right(live)
    generations = {
        one.partition("generation=")[2].partition("/")[0]
        for one in objects(bucket, f"{live.name}_dead")
        if one.endswith(".parquet")
    }
    if sink == "delta":
        # The table has no row of the other one, whose file stays until a vacuum.
        generations = {str(one) for one in table.files_of(f"{bucket.extra['path']}/{live.name}_dead")}
    assert len(generations) == 1
