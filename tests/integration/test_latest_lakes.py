"""Tables of a lake with the newest row of each key: a topic of Debezium's changes ends as one right row for each key."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from services import control
from services.site import Site
from tests.support.browsed import browsed
from tests.support.claiming import claim_lane
from tests.support.command_line import asked, tidemark
from tests.support.cuts import Cut, cut_after
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import LEDGERS, Example, Outcome
from tests.support.stores import SETTINGS
from tests.support.submitted import KILLED_JOB, Submitted
from tidemark.commit.protocol import Step
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.runs.windows import lanes
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg.catalog import opened
from tidemark.sinks.iceberg.latest.compacting import where_of
from tidemark.sinks.kinds import kind_of
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")

_ROW = "STRUCT<id: BIGINT, name: STRING, credit: STRING>"
_PLACE = "_topic, _incarnation, _partition, _offset, _index"
FIELDS = {"id": "integer", "name": "string", "credit": "decimal(12,2)", "op": "string", "row_key": "binary"}
# Of the code before and after it was changed: rows of another key, other values, and messages without a row.
CODES = (
    f"SELECT {_PLACE}, coalesce(after.id, before.id) AS id, after.name AS name, "
    "CAST(after.credit AS DECIMAL(12,2)) AS credit, op, row_key FROM messages",
    f"SELECT {_PLACE}, coalesce(after.id, before.id) + IF(coalesce(after.id, before.id) = 3, 1000, 0) AS id, "
    "upper(after.name) AS name, CAST(after.credit AS DECIMAL(12,2)) AS credit, op, row_key FROM messages "
    "WHERE coalesce(after.id, before.id) <> 4",
)
STREAM: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {
        "type": "json",
        "schema": f"before {_ROW}, after {_ROW}, op STRING NOT NULL",
        "keep": {"row_key": "key"},
    },
    "transform": {"sql": CODES[0], "fields": FIELDS},
    "sinks": [],
    "dead_letters": {"type": "hbase", "table": "-"},
}
KEYS = 8


def changes(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Inserts, updates and deletes; after a delete a tombstone. Each key stays in one of two partitions."""
    for number in range(first, first + count):
        key = 2 * (number * 7 // 2 % (KEYS // 2)) + number % 2
        named = json.dumps({"id": key}).encode()
        row = {"id": key, "name": f"é{number}", "credit": f"{number}.50" if number % 5 else None}
        if number % 11 == 7:
            # An operation that is none.
            yield named, json.dumps({"before": None, "after": row, "op": "t"}).encode()
        elif number % 6 == 4:
            yield named, json.dumps({"before": row, "after": None, "op": "d"}).encode()
        elif number % 6 == 0 and number:
            yield named, None
        else:
            yield named, json.dumps({"before": None, "after": row, "op": "crcu"[number % 4]}).encode()


DEBEZIUM = Example("debezium", STREAM, ("changes",), 2, changes, lambda value: Outcome(None, None))


class Row(NamedTuple):
    partition: int
    offset: int
    name: str | None
    credit: Decimal | None
    deleted: bool


class Latest:
    """A stream with two tables: one by the row's id with Debezium's operations, one by the message's key with tombstones."""

    def __init__(self, live: LiveStream, kind: str) -> None:
        self.live, self.kind = live, kind
        # By partition and offset: the code that has read it last.
        self.codes: dict[tuple[int, int], int] = {}
        self.erased: set[tuple[int, int]] = set()
        self.code = 0
        self.rewrite(0)

    def rewrite(self, code: int) -> None:
        self.code = code
        self.live.rewrite(**self.kept())

    def kept(self) -> dict[str, Any]:
        """What the stream file has besides the ledger."""
        sinks = [self._sink("by_id", key="id", op="op"), self._sink("by_key", key="row_key")]
        return {"sinks": sinks, "transform": {"sql": CODES[self.code], "fields": FIELDS}}

    def _sink(self, name: str, **more: Any) -> dict[str, Any]:
        folder = f"{self.live.name}_{name}"
        table = {} if self.kind == "delta_latest" else {"table": f"lake.{folder}"}
        return {"type": self.kind, "name": name, "folder": folder, "buckets": 4, **table, **more}

    def settings(self, name: str) -> Any:
        (found,) = (one for one in self.live.opened.stream.sinks if one.name == name)
        return found

    def base(self, name: str) -> str:
        return str(self.settings(name).base(self.live.opened.connections))

    def ingest(self) -> None:
        self.live.ingest()
        for (_, partition), until in self.live.positions().items():
            for offset in range(until):
                self.codes.setdefault((partition, offset), self.code)

    def wanted(self, name: str) -> dict[Any, Row]:
        found: dict[Any, Row] = {}
        topic = self.live.topics[0]
        for _, partition, offset, key, value in _consumed(self.live, topic):
            if (partition, offset) in self.erased or (partition, offset) not in self.codes:
                continue
            one = _row(self.codes[partition, offset], key, value)
            if one is None:
                continue
            id_, row_key, row, op = one
            made = Row(partition, offset, row.get("name"), row.get("credit"), op in (None, "d"))
            if name == "by_key":
                found[row_key] = made._replace(deleted=op is None)
            elif id_ is not None:
                found[id_] = made
        return found

    def seen(self, name: str) -> dict[Any, Row]:
        """What others see, whichever reader they take."""
        key = "id" if name == "by_id" else "row_key"
        found = [_by_key(rows, key) for rows in self._readers(name)]
        assert all(one == found[0] for one in found)
        return found[0]

    def _readers(self, name: str) -> Iterator[list[dict[str, Any]]]:
        if self.kind == "iceberg_latest":
            named = self.iceberg(name)
            yield named.scan().to_arrow().to_pylist()
            with pytest.MonkeyPatch.context() as patched:
                # Without it, polars warns of a faster package.
                patched.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
                yield pl.scan_iceberg(named).collect().to_dicts()
            files = [task.file.file_path for task in named.scan().plan_files()]
        else:
            base = self.base(name).removeprefix("file://")
            table = DeltaTable(base)
            yield table.to_pyarrow_table().to_pylist()
            yield pl.read_delta(base).to_dicts()
            files = table.file_uris()
        yield duckdb.read_parquet(files, union_by_name=True).to_arrow_table().to_pylist()

    def iceberg(self, name: str) -> Table:
        found = opened(where_of(self.live.opened, self.settings(name)))
        assert found is not None
        return found

    def counting(self, name: str, spark: SparkSession) -> dict[Any, Row]:
        """What Tidemark's readers give, by the ledger."""
        with_spark = [row.asDict() for row in results(spark, self.live.opened, name).collect()]
        found = _by_key(with_spark, "id" if name == "by_id" else "row_key")
        shown = asked("results", str(self.live.file), "--sink", name, "--limit", "1000")
        assert {(one["coordinate"], one["deleted"]) for one in shown} == {
            (f"{self.live.topics[0]}/{row.partition}@{row.offset}", row.deleted) for row in found.values()
        }
        looked_through = browsed(self.live.opened, name)
        assert {(str(one.at), one.deleted) for one in looked_through} == {
            (one["coordinate"], one["deleted"]) for one in shown
        }
        return found

    def assert_seen(self) -> None:
        for name in ("by_id", "by_key"):
            assert self.seen(name) == self.wanted(name)

    def assert_all(self, spark: SparkSession) -> None:
        for name in ("by_id", "by_key"):
            assert self.seen(name) == self.counting(name, spark) == self.wanted(name)


def _consumed(live: LiveStream, topic: str) -> Iterator[tuple[str, int, int, bytes | None, bytes | None]]:
    """The messages as they were produced, by partition."""
    number = [0, 0]
    for place, (key, value) in enumerate(changes(live._produced, 0)):
        yield topic, place % 2, number[place % 2], key, value
        number[place % 2] += 1


def _row(
    code: int, key: bytes | None, value: bytes | None
) -> tuple[int | None, bytes, dict[str, Any], str | None] | None:
    """The row of a message, as the code in words: its id, its message's key, the values, the operation."""
    assert key is not None
    if value is None:
        return None, key, {}, None
    change = json.loads(value)
    after, op = change["after"], change["op"]
    id_ = (after or change["before"])["id"]
    if op == "t" or (code == 1 and id_ == 4):
        return None
    row = {"name": after["name"], "credit": after["credit"] and Decimal(after["credit"])} if after else {}
    if code == 1:
        id_ += 1000 if id_ == 3 else 0
        row |= {"name": row["name"].upper()} if row else {}
    return id_, key, row, op


def _by_key(rows: list[dict[str, Any]], key: str) -> dict[Any, Row]:
    found = {
        bytes(row[key]) if key == "row_key" else row[key]: Row(
            row["_partition"], row["_offset"], row["name"], row["credit"], row["_deleted"]
        )
        for row in rows
    }
    assert len(found) == len(rows), "a key is there twice"
    return found


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog in a file of SQLite."""
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "catalog.db")}
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_DEFAULT", json.dumps(connection))


# The Spark half is the same. What differs, the formats' own libraries, unit tests try for both.
@pytest.mark.full
@pytest.mark.covers("L1", "L2", "L3")
@pytest.mark.parametrize("kind", [pytest.param("delta_latest", marks=pytest.mark.full), "iceberg_latest"])
def test_a_topic_of_changes_ends_as_one_row_for_each_key(make: Make, spark: SparkSession, kind: str) -> None:
    live = make(DEBEZIUM)
    latest = Latest(live, kind)
    live.produce(60)
    latest.ingest()
    latest.assert_seen()
    live.produce(40)
    latest.ingest()
    latest.assert_all(spark)

    # A replay with changed code dies between its commit and its publication.
    before = {name: latest.seen(name) for name in ("by_id", "by_key")}
    latest.rewrite(1)
    selection = live.ranges(0, 0, (5, 35)) | live.ranges(0, 1, (5, 35))
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, selection, run, on_step=cut_after(Step.COMMITTED))
    latest.codes |= {(partition, offset): 1 for partition in (0, 1) for offset in range(5, 35)}
    for name in ("by_id", "by_key"):
        assert latest.seen(name) == before[name]
        assert latest.counting(name, spark) == latest.wanted(name)
    assert before["by_id"] != latest.wanted("by_id")
    lanes.finish(live.opened, lanes.lane_name(LaneKind.REPLAY, run))
    latest.assert_all(spark)

    # What is erased goes, and what it had overwritten comes back.
    newest = latest.wanted("by_id")[0]
    named = f"{live.topics[0]}/{newest.partition}@{newest.offset}"
    asked("erase", "--yes", str(live.file), "--records", named, "--reason", "request 4711")
    latest.erased.add((newest.partition, newest.offset))
    gone = live.ranges(0, newest.partition, (newest.offset, newest.offset + 1))
    latest.assert_seen()
    for name in ("by_id", "by_key"):
        kind_of(kind).make_spark().compact(live.opened, latest.settings(name), live.new_run(), CompactionRequest())
        assert kind_of(kind).make_admin().remains(live.opened, name, gone) == ""
    latest.assert_all(spark)

    # All of it with today's code.
    live.select(LaneKind.REPLAY, (live.ranges(0, 0, (0, 50)) | live.ranges(0, 1, (0, 50))) - gone)
    latest.codes = dict.fromkeys(latest.codes, 1)
    latest.assert_all(spark)
    report = audit(live.opened, "audit 1")
    assert report.clean, report.sentence()
    # A row that somebody has deleted, or changed, is found.
    _damaged(latest, "by_id")
    report = audit(live.opened, "audit 2")
    (place,) = (one for one in report.places if one.name == "by_id")
    assert (place.missing, place.different, place.extra, place.twice) == (1, 1, 0, 0), report.sentence()


@pytest.mark.full
@pytest.mark.covers("L1", "L2", "L3")
@pytest.mark.parametrize("kind", ["delta_latest", "iceberg_latest"])
def test_processes_are_killed_while_they_write_and_before_they_publish(
    make: Make, spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    """An ingest, and a replay with other code: each ends as one right row for each key."""
    live = make(DEBEZIUM)
    latest = Latest(live, kind)
    live.produce(60)
    latest.ingest()

    def killed(step: Step, run: str, seq: int, lane: str = INGEST) -> None:
        """What others see stays as it was."""
        before = {name: latest.seen(name) for name in ("by_id", "by_key")}
        how = {"TEST_STEP": step.value, "TEST_SIGNAL": "SIGKILL"}
        job = Submitted(
            live.site, tmp_path / "job.log", KILLED_JOB, *live.job_arguments(run, seq, lane), conf=None, **how
        )
        try:
            assert job.wait() == -signal.SIGKILL, job.output
        finally:
            job.end()
        assert {name: latest.seen(name) for name in before} == before

    live.produce(40)
    run = live.new_run()
    for step in (Step.SINK_STORED, Step.COMMITTED):
        killed(step, run, live.pin(run).seq)
    # It has committed what was read: the next run finds nothing new, and publishes it.
    latest.ingest()
    latest.assert_all(spark)
    assert audit(live.opened, live.new_run()).clean

    latest.rewrite(1)
    run = live.new_run()
    lane = claim_lane(live.opened, LaneKind.REPLAY, run, live.ranges(0, 0, (0, 50)) | live.ranges(0, 1, (0, 50)), "why")
    for step in (Step.SINK_STORED, Step.COMMITTED):
        pending = lanes.plan_lane(live.opened, lane, run)
        assert pending is not None
        killed(step, run, pending.window.seq, lane)
    latest.codes |= {(partition, offset): 1 for partition in (0, 1) for offset in range(50)}
    assert lanes.plan_lane(live.opened, lane, run) is None
    lanes.finish(live.opened, lane)
    latest.assert_all(spark)
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()


# Of a number: a key of two columns. Two numbers that are written in two ways are one key, and so are two that are none.
_ID = "CASE k DIV 2 WHEN 0 THEN IF(n DIV 6 % 2 = 0, 0D, -0D) WHEN 1 THEN CAST('NaN' AS DOUBLE) END"
_PART = "IF(k % 2 = 0, 'a', NULL)"
WIDE: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {"type": "json", "fields": {"k": "integer", "n": "integer"}},
    "sinks": [],
    "dead_letters": {"type": "hbase", "table": "-"},
}


def numbered(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    for number in range(first, first + count):
        yield b"key", json.dumps({"k": number % 6, "n": number}).encode()


@pytest.mark.full
@pytest.mark.covers("L1", "L2")
@pytest.mark.parametrize("kind", ["delta_latest", "iceberg_latest"])
def test_keys_of_several_columns_with_nulls_and_odd_floats(make: Make, spark: SparkSession, kind: str) -> None:
    live = make(Example("wide", WIDE, ("numbers",), 1, numbered, lambda value: Outcome(None, None)))
    table = {"table": f"lake.{live.name}"} if kind == "iceberg_latest" else {}
    sink = {"type": kind, "name": "newest", "folder": live.name, "key": ["id", "part"], "buckets": 2, **table}

    def write(below: int) -> None:
        sql = f"SELECT {_PLACE}, {_ID} AS id, {_PART} AS part, n FROM messages WHERE n < {below}"
        fields = {"id": "double", "part": "string", "n": "integer"}
        live.rewrite(sinks=[sink], transform={"sql": sql, "fields": fields})

    def named(id_: float | None, part: str | None, n: int) -> tuple[str, str | None, int]:
        return ("-" if id_ is None else str(abs(id_)), part, n)

    def assert_all(below: int) -> None:
        wanted = {
            (id_, part, below - 6 + 2 * at + (part is None))
            for at, id_ in enumerate(("0.0", "nan", "-"))
            for part in ("a", None)
        }
        settings: Any = live.opened.stream.sinks[0]
        if kind == "iceberg_latest":
            opened_table = opened(where_of(live.opened, settings))
            assert opened_table is not None
            found = opened_table.scan().to_arrow().to_pylist()
        else:
            found = DeltaTable(settings.base(live.opened.connections)).to_pyarrow_table().to_pylist()
        rows = [row.asDict() for row in results(spark, live.opened, "newest").collect()]
        for some in (found, rows):
            assert sorted(named(row["id"], row["part"], row["n"])[2] for row in some) == [*range(below - 6, below)]
            assert {named(row["id"], row["part"], row["n"]) for row in some} == wanted
        report = audit(live.opened, live.new_run())
        assert report.clean, report.sentence()

    write(30)
    for _ in range(2):
        live.produce(15)
        live.ingest()
    assert_all(30)
    # What the newest rows had overwritten comes back, under the same keys.
    write(24)
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (20, 30)))
    assert_all(24)


@pytest.mark.full
@pytest.mark.covers("N13")
def test_a_ledger_moves_with_all_that_is_open(make: Make, site: Site, spark: SparkSession, tmp_path: Path) -> None:
    """What the tables keep there, an erasure, a lane that was only claimed, a window at work: through each kind of ledger."""
    control.up(site, ["postgresql"])
    live = make(DEBEZIUM, ledger=SETTINGS["postgresql"])
    latest = Latest(live, "delta_latest")
    live.produce(60)
    latest.ingest()
    newest = latest.wanted("by_id")[0]
    named = f"{live.topics[0]}/{newest.partition}@{newest.offset}"
    asked("erase", "--yes", str(live.file), "--records", named, "--reason", "request 4711")
    latest.erased.add((newest.partition, newest.offset))
    run, claimed = live.new_run(), live.ranges(0, 0, (1, 4)) | live.ranges(0, 1, (1, 4))
    claimed -= live.ranges(0, newest.partition, (newest.offset, newest.offset + 1))
    lane = claim_lane(live.opened, LaneKind.REPLAY, run, claimed, "a test")
    live.produce(40)
    with pytest.raises(Cut):
        live.ingest(on_step=cut_after(Step.SINK_STORED))
    windows = {tidemark("ledger", "verify", str(live.file))[0]}
    moved = {**SETTINGS["postgresql"], "table": f"{live.name}_moved"}
    for number, there in enumerate((LEDGERS["hbase"], LEDGERS["zookeeper"], moved)):
        backup = str(tmp_path / f"backup {number}")
        tidemark("ledger", "backup", str(live.file), backup, "--final", "--yes", "--reason", "moved")
        live.rewrite(ledger=there, **latest.kept())
        tidemark("ledger", "restore", "--yes", str(live.file), backup)
        windows.add(tidemark("ledger", "verify", str(live.file))[0])
    assert len(windows) == 1, windows

    assert live.ingest(take_over=True)
    pending = lanes.plan_lane(live.opened, lane, run)
    assert pending is not None
    assert process_windows(live.opened, lane, pending.window.seq, run)
    latest.ingest()
    latest.assert_all(spark)
    assert (newest.partition, newest.offset) not in {
        (one.partition, one.offset) for one in latest.seen("by_id").values()
    }
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.erased) == (True, 1), report.sentence()


def _damaged(latest: Latest, name: str) -> None:
    """Delete the row of one key, and change that of another, as somebody else might."""
    first, second, *_ = sorted(latest.seen(name))
    if latest.kind == "iceberg_latest":
        table = latest.iceberg(name)
        for task in table.scan().plan_files():
            path = task.file.file_path.removeprefix("file://")
            rows = pq.read_table(path, partitioning=None).to_pylist()
            kept = [{**row, "name": "another"} if row["id"] == second else row for row in rows if row["id"] != first]
            pq.write_table(pa.Table.from_pylist(kept, schema=pq.read_schema(path)), path)
        return
    found = DeltaTable(latest.base(name))
    found.delete(f"id = {first}")
    found.update({"name": "'another'"}, predicate=f"id = {second}")
