"""An Iceberg table without Spark: what is published, what a replay takes out, what readers see of it, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table, Transaction
from sqlalchemy.exc import OperationalError

from tests.support.compactions import committed
from tests.support.lakes import with_a_row
from tests.support.range_strategies import offsets, range_sets
from tidemark.clients.connections import Connection
from tidemark.clients.sql import Database
from tidemark.errors import Conflict, DiskFull, LedgerContradiction, OwnedByAnother, Unreachable, WrongUse
from tidemark.ledger.ledger import Committed
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.iceberg import data_files
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import CatalogTable, located, opened
from tidemark.sinks.iceberg.live_files import live_files
from tidemark.sinks.parquet import files
from tidemark.types.fields import FieldType

AT = TopicPartition("logs", 0)
# Its types say another order of arguments than it takes.
EQUAL: Any = EqualTo
FIELDS: dict[str, FieldType] = {
    "id": "string",
    "at": "timestamp",
    "raw": "binary",
    "amount": "double",
    "number": "integer",
    "there": "boolean",
}
TYPES = {"at": pa.timestamp("us", "UTC"), "raw": pa.binary(), "amount": pa.float64(), "number": pa.int64()}
COLUMNS = pa.schema(
    [
        ("_topic", pa.string()),
        ("_incarnation", pa.int32()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_index", pa.int32()),
        ("_tombstone", pa.bool_()),
        ("_digest", pa.int64()),
        *((name, TYPES.get(name, pa.bool_() if name == "there" else pa.string())) for name in FIELDS),
        ("_generation", pa.int64()),
    ]
)
NOTHING = RangeSet()
AGES_AHEAD = datetime(2500, 1, 1, tzinfo=UTC)


def made(folder: Path, fields: dict[str, FieldType] = FIELDS) -> CatalogTable:
    where = CatalogTable(
        f"file://{folder}/a lake/table", Database("sqlite", f"{folder}/catalog.db"), "tidemark", "lake.orders"
    )
    iceberg_table.prepare(where, fields, "s", "ledger")
    return where


@pytest.fixture
def where(tmp_path: Path) -> CatalogTable:
    return made(tmp_path)


def window(where: CatalogTable, generation: int, numbers: range, lane: str = "ingest") -> Committed:
    return committed(f"{where.base}/data", generation, numbers, lane=lane, generation=generation)


def attempt(where: CatalogTable, one: Committed, numbers: Sequence[int], at: TopicPartition = AT) -> str:
    """The files of an attempt, by Arrow in place of Spark."""
    generation = one.generation
    values = {
        "_topic": at.topic,
        "_incarnation": at.incarnation,
        "_partition": at.partition,
        "_index": 0,
        "_tombstone": False,
        "_digest": 7,
        "_generation": generation,
        "at": AGES_AHEAD,
        "raw": b"\xff" * 20,
        "there": True,
    }
    table = {name: [value] * len(numbers) for name, value in values.items()}
    table |= {"_offset": list(numbers), "number": list(numbers), "id": [f"{generation}-{one}" for one in numbers]}
    table["amount"] = [float("nan") if one % 3 == 0 else -0.0 if one % 3 == 1 else one / 7 for one in numbers]
    folder = iceberg_table.attempt_folder(where.base, one.record.lane, one.record.seq, generation)
    there = Path(folder.removeprefix("file://"))
    there.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table, schema=COLUMNS), there / f"part-{at.topic}-{at.partition}-{at.incarnation}.parquet")
    return folder


def publish(where: CatalogTable, one: Committed, replaced: RangeSet = NOTHING) -> bool:
    record = one.record
    folder = iceberg_table.attempt_folder(where.base, record.lane, record.seq, one.generation)
    return iceberg_table.publish(where, "s", record, folder, replaced)


def ingested(where: CatalogTable, generation: int, numbers: range, lane: str = "ingest") -> Committed:
    one = window(where, generation, numbers, lane)
    attempt(where, one, numbers)
    publish(where, one)
    return one


def table_of(where: CatalogTable) -> Table:
    found = opened(where)
    assert found is not None
    return found


def foreign(where: CatalogTable) -> Table:
    """The table as a program opens it that knows only the catalog."""
    return SqlCatalog(where.catalog, uri=f"sqlite:///{where.server.host}").load_table(where.table)


def plainly(where: CatalogTable) -> list[tuple[int, int]]:
    """Offset and generation of every row that a plain reader sees."""
    rows = foreign(where).scan(selected_fields=("_offset", "_generation")).to_arrow().to_pylist()
    return sorted((row["_offset"], row["_generation"]) for row in rows)


def ranges(*of: range, at: TopicPartition = AT) -> RangeSet:
    return RangeSet(OffsetRange(at, one.start, one.stop) for one in of)


def test_a_replay_takes_out_what_it_replaces_in_the_snapshot_that_adds_its_rows(where: CatalogTable) -> None:
    ingested(where, 1, range(10))
    ingested(where, 2, range(10, 20))
    replay = window(where, 5, range(5, 12), "replay-1")
    attempt(where, replay, range(5, 12))
    # What nobody has published, nobody sees.
    assert plainly(where) == [(one, 1) for one in range(10)] + [(one, 2) for one in range(10, 20)]
    before = len(table_of(where).snapshots())
    publish(where, replay, replay.covers)
    left = [(one, 1) for one in range(5)] + [(one, 5) for one in range(5, 12)] + [(one, 2) for one in range(12, 20)]
    assert plainly(where) == sorted(left)
    last = table_of(where).current_snapshot()
    assert last is not None
    assert last.summary is not None
    said = last.summary.additional_properties
    assert (said["tidemark.window"], said["tidemark.generation"]) == ("replay-1/5", "5")
    assert (said["tidemark.attempt"], said["tidemark.ranges"]) == ("t", "logs/0@5-12")
    publish(where, replay, replay.covers)
    assert len(table_of(where).snapshots()) == before + 1
    rows = foreign(where).scan().to_arrow().to_pylist()
    assert {row["at"] for row in rows} == {AGES_AHEAD}
    assert {row["raw"] for row in rows} == {b"\xff" * 20}


def test_an_older_attempt_of_a_lane_never_comes_after_a_newer_one(where: CatalogTable) -> None:
    newer, older = window(where, 9, range(10)), window(where, 4, range(10, 20))
    for one in (newer, older):
        attempt(where, one, range(one.covers.count()))
    assert publish(where, newer)
    # With `at_most_once`, the older one has to know that its rows are not there.
    assert not publish(where, older)
    assert publish(where, newer)
    assert {generation for _, generation in plainly(where)} == {9}
    # Another lane has a property of its own.
    ingested(where, 3, range(30, 35), "replay-1")
    assert {generation for _, generation in plainly(where)} == {3, 9}


def test_an_older_attempt_whose_commit_was_on_its_way_is_refused(
    where: CatalogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen the same version of the table. The library's own retry would add the older one after the newer one."""
    newer, older = window(where, 9, range(10)), window(where, 4, range(10))
    for one in (newer, older):
        attempt(where, one, range(10))
    real, between = SqlCatalog.commit_table, [True]

    def beside(self: SqlCatalog, *given: Any) -> Any:
        if between:
            between.clear()
            publish(where, newer)
        return real(self, *given)

    monkeypatch.setattr(SqlCatalog, "commit_table", beside)
    assert not publish(where, older)
    assert plainly(where) == [(one, 9) for one in range(10)]


def test_a_commit_that_nobody_answered_is_found_under_a_newer_window(
    where: CatalogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, older = window(where, 9, range(10)), window(where, 4, range(10, 20))
    for one, numbers in ((newer, range(10)), (older, range(10, 20))):
        attempt(where, one, numbers)
    real, between = SqlCatalog.commit_table, [True]

    def unanswered(self: SqlCatalog, *given: Any) -> Any:
        done = real(self, *given)
        if between:
            between.clear()
            publish(where, newer)
            raise OperationalError("", {}, Exception("the connection was lost"))
        return done

    monkeypatch.setattr(SqlCatalog, "commit_table", unanswered)
    assert publish(where, older)
    assert plainly(where) == [*((one, 9) for one in range(10)), *((one, 4) for one in range(10, 20))]


@pytest.mark.parametrize(("kind", "said"), [("mysql", "is kept in PostgreSQL, or a file of SQLite"), ("hive", "hive")])
def test_a_catalog_of_another_kind_is_refused(kind: str, said: str) -> None:
    """MySQL, which was not tried, and a metastore."""
    given: dict[str, Any] = {"host": "127.0.0.1", "schema": "c", "login": "me", "password": "x"}
    connection = Connection("iceberg_default", kind=kind, extra={"allow_insecure": True}, **given)
    place = {"base": "file:///lake", "catalog": "iceberg_default", "catalog_name": "tidemark", "table": "lake.orders"}
    with pytest.raises(WrongUse, match=said):
        located(lambda _: connection, place)


@pytest.mark.covers("L1")
def test_what_was_found_in_a_version_is_said_of_no_newer_one(where: CatalogTable) -> None:
    """Properties without a snapshot, too: such as what a table of newest rows says of the ledger that it was made from."""
    ingested(where, 1, range(3))
    found = []

    def after_another(table: Table, transaction: Transaction, _: list[str]) -> bool:
        found.append(len(table.snapshots()))
        if len(found) == 1:
            ingested(where, 2, range(3, 6))
        transaction.set_properties(found=str(len(table.snapshots())))
        return True

    iceberg_table.change(where, after_another)
    assert (found, table_of(where).properties["found"]) == ([1, 2], "2")


@pytest.mark.parametrize("arrived", [True, False])
def test_a_commit_without_an_answer_is_there_once(
    where: CatalogTable, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    ingested(where, 1, range(10))
    replay = window(where, 5, range(5), "replay-1")
    attempt(where, replay, range(5))
    real, lost = SqlCatalog.commit_table, [True]

    def answered_by_nobody(self: SqlCatalog, *given: Any) -> Any:
        if lost:
            lost.clear()
            if arrived:
                real(self, *given)
            raise ConnectionError("the answer was lost")
        return real(self, *given)

    monkeypatch.setattr(SqlCatalog, "commit_table", answered_by_nobody)
    publish(where, replay, replay.covers)
    assert plainly(where) == [(one, 5) for one in range(5)] + [(one, 1) for one in range(5, 10)]
    assert len(table_of(where).snapshots()) == 2
    # Nothing is left of a try that never arrived.
    copies = [str(one) for one in Path(where.base.removeprefix("file://")).glob("data/rewritten/*")]
    assert copies == [
        one.path.removeprefix("file://") for one in live_files(table_of(where)) if "/rewritten/" in one.path
    ]


def test_a_catalog_that_does_not_answer_is_said(where: CatalogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    one = window(where, 1, range(10))
    attempt(where, one, range(10))

    def never(*given: Any) -> Any:
        raise ConnectionError("nobody is there")

    monkeypatch.setattr(SqlCatalog, "commit_table", never)
    with pytest.raises(Unreachable, match="nobody is there"):
        publish(where, one)
    monkeypatch.undo()
    publish(where, one)
    assert plainly(where) == [(one, 1) for one in range(10)]


def test_conflicts_that_never_end_are_an_error_and_leave_no_file(
    where: CatalogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested(where, 1, range(10))
    replay = window(where, 500, range(5), "replay-1")
    attempt(where, replay, range(5))
    real, others, depth = SqlCatalog.commit_table, iter(range(2, 500)), []

    def beside(self: SqlCatalog, *given: Any) -> Any:
        if not depth:
            depth.append(1)
            number = next(others)
            ingested(where, number, range(10 * number, 10 * number + 1), f"backfill-{number}")
            depth.clear()
        return real(self, *given)

    monkeypatch.setattr(SqlCatalog, "commit_table", beside)
    monkeypatch.setattr(iceberg_table, "_WAIT", 0)
    monkeypatch.setattr(iceberg_table, "_TIMES", 3)
    with pytest.raises(Conflict, match="other programs changed it before each commit"):
        publish(where, replay, replay.covers)
    assert not list(Path(where.base.removeprefix("file://")).glob("data/rewritten/*"))
    monkeypatch.undo()
    publish(where, replay, replay.covers)
    assert [one for one in plainly(where) if one[0] < 10] == [(one, 500) for one in range(5)] + [
        (one, 1) for one in range(5, 10)
    ]


def test_a_full_disk_leaves_no_copies(where: CatalogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    ingested(where, 1, range(10))
    replay = window(where, 500, range(5), "replay-1")
    attempt(where, replay, range(5))

    def full(*_: Any) -> Any:
        assert [*rewritten.iterdir()]
        raise DiskFull("the disk is full")

    rewritten = Path(where.base.removeprefix("file://")) / "data" / "rewritten"
    with monkeypatch.context() as patched:
        patched.setattr(data_files, "in_folder", full)
        with pytest.raises(DiskFull, match="the disk is full"):
            publish(where, replay, replay.covers)
    assert not [*rewritten.iterdir()]
    publish(where, replay, replay.covers)
    assert plainly(where) == [*((one, 500) for one in range(5)), *((one, 1) for one in range(5, 10))]


def test_a_replay_of_scattered_offsets_of_several_partitions_and_incarnations(where: CatalogTable) -> None:
    places = [
        TopicPartition(topic, partition, incarnation)
        for topic in "ab"
        for partition in (0, 1)
        for incarnation in (1, 2)
    ]
    for generation in (1, 9):
        one = window(where, generation, range(1), f"lane-{generation}")
        for at in places:
            attempt(where, one, range(20), at)
        publish(where, one)
    replayed = RangeSet(OffsetRange(at, one, one + 2) for at in places[::3] for one in range(0, 18, 5))
    replay = window(where, 5, range(1), "replay-1")
    attempt(where, replay, [])
    publish(where, replay, replayed)
    found = foreign(where).scan().to_arrow().to_pylist()
    older = [(at, one, 1) for at in places for one in range(20) if (at, one) not in replayed]
    assert sorted(
        (TopicPartition(row["_topic"], row["_partition"], row["_incarnation"]), row["_offset"], row["_generation"])
        for row in found
    ) == sorted(older + [(at, one, 9) for at in places for one in range(20)])


@pytest.mark.slow
@given(written=range_sets, replayed=range_sets, below=st.integers(0, 3))
def test_what_is_taken_out_is_covered_and_older(written: RangeSet, replayed: RangeSet, below: int) -> None:
    rows = [(at, offset, generation) for at, offset in sorted(offsets(written)) for generation in (1, 2)]
    batch = pa.RecordBatch.from_pydict(
        {
            "_topic": pa.array([at.topic for at, _, _ in rows], pa.string()),
            "_incarnation": pa.array([at.incarnation for at, _, _ in rows], pa.int32()),
            "_partition": pa.array([at.partition for at, _, _ in rows], pa.int32()),
            "_offset": pa.array([offset for _, offset, _ in rows], pa.int64()),
            "_generation": pa.array([generation for _, _, generation in rows], pa.int64()),
        }
    )
    taken = data_files.taken_out(batch, replayed, below).tolist()
    assert taken == [(at, offset) in replayed and generation < below for at, offset, generation in rows]


def test_lanes_that_publish_at_once(where: CatalogTable) -> None:
    """A replay takes rows out while others add theirs, and another run has a stream file with more fields."""
    ingested(where, 1, range(100))
    replay = window(where, 500, range(100), "replay-1")
    attempt(where, replay, range(100))

    def add(lane: str) -> None:
        for generation in range(*((2, 8) if lane == "a" else (12, 18))):
            ingested(where, generation, range(1_000 + generation, 1_001 + generation), lane)

    def more(number: int) -> None:
        iceberg_table.prepare(where, {**FIELDS, f"more_{number}": "integer"}, "s", "ledger")

    with ThreadPoolExecutor(5) as programs:
        runs: list[Future[object]] = [programs.submit(add, lane) for lane in "ab"]
        runs += [programs.submit(publish, where, replay, replay.covers)]
        runs += [programs.submit(more, number) for number in range(2)]
        for one in runs:
            one.result()
    added = [(1_000 + one, one) for one in (*range(2, 8), *range(12, 18))]
    assert plainly(where) == [(one, 500) for one in range(100)] + added
    assert {"more_0", "more_1"} < {field.name for field in table_of(where).schema().fields}


def of_pyiceberg(where: CatalogTable, name: str, value: Any) -> int:
    wanted = value.isoformat() if isinstance(value, datetime) else value
    return len(foreign(where).scan(row_filter=EQUAL(name, wanted)).to_arrow())


def of_polars(where: CatalogTable, name: str, value: Any) -> int:
    return pl.scan_iceberg(foreign(where)).filter(pl.col(name) == value).collect().height


def of_duckdb(where: CatalogTable, name: str, value: Any) -> int:
    paths = [one.file.file_path.removeprefix("file://") for one in foreign(where).scan().plan_files()]
    with duckdb.connect() as connection:
        counted = f'SELECT count(*) FROM read_parquet(?, union_by_name = true) WHERE "{name}" = ?'
        return int(connection.execute(counted, [paths, value]).fetchall()[0][0])


@pytest.mark.slow
@pytest.mark.parametrize("reader", [of_pyiceberg, of_polars, of_duckdb])
def test_readers_find_rows_by_each_column(where: CatalogTable, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the copies that a replay has made."""
    # Without it, polars warns of a faster package.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    ingested(where, 1, range(10))
    ingested(where, 2, range(10, 20))
    replay = window(where, 5, range(5, 12), "replay-1")
    attempt(where, replay, range(5, 12))
    publish(where, replay, replay.covers)
    rows = foreign(where).scan().to_arrow()
    for name in COLUMNS.names:
        values = rows[name].to_pylist()
        for value in (values[1], values[-1]):
            # NaN is not equal to itself.
            if value == value:
                wanted = values.count(value)
                assert reader(where, name, value) == wanted, (name, value)


def test_a_table_of_another_stream_or_ledger_or_elsewhere(where: CatalogTable) -> None:
    with pytest.raises(OwnedByAnother, match="belongs to stream s; this is stream another"):
        iceberg_table.prepare(where, FIELDS, "another", "ledger")
    with pytest.raises(LedgerContradiction, match="its ledger now is another"):
        iceberg_table.prepare(where, FIELDS, "s", "another")
    elsewhere = CatalogTable(f"{where.base}_2", where.server, where.catalog, where.table)
    with pytest.raises(WrongUse, match=r"the stream file has it in .*_2: name another table"):
        iceberg_table.prepare(elsewhere, FIELDS, "s", "ledger")
    with pytest.raises(WrongUse, match="at which readers of Iceberg cut a name"):
        iceberg_table.prepare(CatalogTable("file:///lake/a#b", where.server, "c", "a.b"), FIELDS, "s", "ledger")


@pytest.mark.covers("I2")
def test_a_ledger_that_was_restored_takes_out_what_it_had_published(where: CatalogTable) -> None:
    """Whatever generation that has: a clock that was wrong may have drawn higher ones than the restored ledger does."""
    for generation, numbers in ((1, range(10)), (90, range(10, 20)), (95, range(12, 14))):
        ingested(where, generation, numbers, f"lane-{generation}")
    again = window(where, 7, range(10, 20))
    folder = attempt(where, again, range(10, 20))
    replaced = RangeSet([OffsetRange(AT, 10, 20)])
    for _ in range(2):
        iceberg_table.publish(where, "s/restored 1", again.record, folder, replaced, any_generation=True)
    assert plainly(where) == [*((at, 1) for at in range(10)), *((at, 7) for at in range(10, 20))]


@pytest.mark.covers("I2")
def test_a_window_that_a_restored_ledger_settles_once_more_replaces_no_newer_one(where: CatalogTable) -> None:
    """The ledger knows the replay of 10 to 15 and not that of 15 to 20, which was lost with what the backup did not have."""
    one = ingested(where, 5, range(10, 20))
    for generation, numbers in ((6, range(10, 15)), (7, range(15, 20))):
        replay = window(where, generation, numbers, f"replay-{generation}")
        attempt(where, replay, numbers)
        publish(where, replay, RangeSet([OffsetRange(AT, numbers.start, numbers.stop)]))
    folder = iceberg_table.attempt_folder(where.base, one.record.lane, one.record.seq, 5)
    again = partial(iceberg_table.publish, where, "s/restored 1", one.record, folder, one.covers, any_generation=True)
    again(counting=RangeSet)
    assert plainly(where) == [*((at, 6) for at in range(10, 15)), *((at, 7) for at in range(15, 20))]
    for _ in range(2):
        again(counting=lambda: RangeSet([OffsetRange(AT, 15, 20)]))
        assert plainly(where) == [*((at, 6) for at in range(10, 15)), *((at, 5) for at in range(15, 20))]


def test_fields_that_are_new_or_do_not_fit(where: CatalogTable) -> None:
    ingested(where, 1, range(10))
    iceberg_table.prepare(where, {**FIELDS, "more": "integer"}, "s", "ledger")
    assert foreign(where).scan().to_arrow()["more"].to_pylist() == [None] * 10
    with pytest.raises(WrongUse, match="has the column id, and the stream file now names it ID"):
        iceberg_table.prepare(where, {"ID": "string"}, "s", "ledger")
    with pytest.raises(WrongUse, match="has the column id as string, and the stream file now has it as integer"):
        iceberg_table.prepare(where, {"id": "integer"}, "s", "ledger")
    with pytest.raises(WrongUse, match="has the column id as string"):
        iceberg_table.as_stored(where, {"id": "integer"})


@pytest.mark.covers("N91")
def test_columns_become_wider(where: CatalogTable) -> None:
    before: dict[str, FieldType] = {"n": "int", "f": "float", "d": "decimal(5,2)", "a": "array<smallint>"}
    iceberg_table.prepare(where, {**FIELDS, **before}, "s", "ledger")
    after: dict[str, FieldType] = {"n": "integer", "f": "double", "d": "decimal(12,2)"}
    stored = {**after, "a": "array<int>"}
    for one in (after, before):
        iceberg_table.prepare(where, {**FIELDS, **before, **one}, "s", "ledger")
        assert iceberg_table.as_stored(where, {**before, **one}) == stored
    with_a_row(where.base)
    columns = foreign(where).scan().to_arrow().schema
    assert [str(columns.field(name).type) for name in after] == ["int64", "double", "decimal128(12, 2)"]
    for wrong in ({"n": "decimal(20,0)"}, {"d": "decimal(12,3)"}, {"a": "array<decimal(12,0)>"}):
        with pytest.raises(WrongUse, match=r"and the stream file now has it as .*: name another table"):
            iceberg_table.prepare(where, {**FIELDS, **wrong}, "s", "ledger")


def test_a_catalog_that_was_set_up_anew_is_not_begun_anew(where: CatalogTable, tmp_path: Path) -> None:
    """Its tables are gone, and the ledger says that windows are in them: it may be another database."""
    one = window(where, 1, range(10))
    (place,) = one.record.places
    place.place.update(base=where.base, table=where.table)
    anew = CatalogTable(where.base, Database("sqlite", str(tmp_path / "other.db")), where.catalog, where.table)
    assert iceberg_table.check_there(anew, []) is None
    with pytest.raises(Unreachable, match=r"lake.orders of the catalog tidemark in SQLite at .*other\.db is not there"):
        iceberg_table.check_there(anew, [one.record])


def test_erased_rows_are_taken_out_whatever_the_generation(where: CatalogTable) -> None:
    ingested(where, 1, range(10))
    ingested(where, 2, range(10, 20))
    erasure = window(where, 5, range(5, 12), "erase-1")
    iceberg_table.remove(where, erasure.record, ranges(range(3, 4), range(10, 20)))
    assert plainly(where) == [(one, 1) for one in range(10) if one != 3]
    snapshots = len(table_of(where).snapshots())
    iceberg_table.remove(where, erasure.record, ranges(range(3, 4), range(10, 20)))
    assert len(table_of(where).snapshots()) == snapshots


def test_attempts_that_died_leave_files_that_a_sweep_removes(where: CatalogTable) -> None:
    one = committed(f"{where.base}/data", 1, range(10), generation=3)
    died = committed(f"{where.base}/data", 1, range(10), generation=2)
    for attempted in (one, died):
        attempt(where, attempted, range(10))
    publish(where, one)
    files.sweep(f"{where.base}/data", one.record)
    left = list(Path(where.base.removeprefix("file://")).glob("data/**/*.parquet"))
    assert [str(path) for path in left] == [
        task.file.file_path.removeprefix("file://") for task in foreign(where).scan().plan_files()
    ]
