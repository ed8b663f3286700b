"""Fields of a lake's types in an Iceberg table: all readers give equal values, also of copies, and of types that grew."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from tests.support.compactions import committed
from tests.support.lakes import with_a_row
from tidemark.clients.sql import Database
from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Committed
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.contract import SettingsContext
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import CatalogTable
from tidemark.sinks.iceberg.compacting import copied
from tidemark.sinks.iceberg.latest.settings import IcebergLatestSink
from tidemark.sinks.iceberg.live_files import live_files
from tidemark.sinks.iceberg.settings import IcebergSink, PartitionKey
from tidemark.types.fields import arrow_type, canonical

AT = TopicPartition("logs", 0)
# Its types say another order of arguments than it takes.
EQUAL: Any = EqualTo
OURS: dict[str, pa.DataType] = {
    "_topic": pa.string(),
    "_incarnation": pa.int32(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_index": pa.int32(),
    "_tombstone": pa.bool_(),
    "_digest": pa.int64(),
}
FIELDS = {
    "price": "decimal(12,2)",
    "large": "decimal(38,5)",
    "day": "date",
    "local": "timestamp_ntz",
    "small": "int",
    "short": "float",
    "tags": "array<string>",
    "of": "struct<a:bigint,b:map<string,decimal(9,3)>>",
    "deep": "array<struct<at:timestamp,raw:binary>>",
}
ROW = {
    "price": Decimal("-1.10"),
    "large": Decimal("123456789012345678901234567890123.12345"),
    "day": date(1969, 12, 31),
    "local": datetime(2026, 11, 27, 1, 2, 3, 456789),
    "small": -(2**31),
    "short": 0.5,
    "tags": ["a", None, ""],
    "of": {"a": 1, "b": [("é", Decimal("0.001")), ("z", None)]},
    "deep": [{"at": datetime(2500, 1, 1, tzinfo=UTC), "raw": b"\xff"}, None],
}


def window(
    where: CatalogTable, fields: dict[str, str], generation: int, numbers: range, row: dict[str, Any]
) -> Committed:
    lane = f"lane-{generation}"
    one = committed(f"{where.base}/data", 1, numbers, lane=lane, generation=generation)
    schema = pa.schema({**OURS, **{name: arrow_type(kind) for name, kind in fields.items()}, "_generation": pa.int64()})
    ours = {"_topic": "logs", "_incarnation": 1, "_partition": 0, "_index": 0, "_tombstone": False, "_digest": 7}
    rows = [{**ours, "_offset": at, "_generation": generation, **(row if at % 2 else {})} for at in numbers]
    folder = iceberg_table.attempt_folder(where.base, lane, 1, generation)
    there = Path(folder.removeprefix("file://"))
    there.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), there / "part-0.parquet")
    return one


def publish(where: CatalogTable, one: Committed, replaced: RangeSet) -> None:
    folder = iceberg_table.attempt_folder(where.base, one.record.lane, 1, one.generation)
    iceberg_table.publish(where, "s", one.record, folder, replaced)


def of(folder: Path) -> CatalogTable:
    return CatalogTable(f"file://{folder}/table", Database("sqlite", f"{folder}/catalog.db"), "tidemark", "lake.orders")


def foreign(where: CatalogTable) -> Table:
    return SqlCatalog(where.catalog, uri=f"sqlite:///{where.server.host}").load_table(where.table)


def plain(value: Any) -> Any:
    """A value as all readers can say it: maps are pairs in some, and mappings in others."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list) and value and all(isinstance(one, dict) and {*one} == {"key", "value"} for one in value):
        return {one["key"]: plain(one["value"]) for one in value}
    if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
        return {key: plain(one) for key, one in value}
    return [plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.covers("I5")
def test_all_types_are_read_with_equal_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without it, polars warns of a faster package.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    where = of(tmp_path)
    iceberg_table.prepare(where, FIELDS, "s", "ledger")
    publish(where, window(where, FIELDS, 1, range(10), ROW), RangeSet())
    # The rows that stay lie in a copy.
    publish(where, window(where, FIELDS, 5, range(4), ROW), RangeSet([OffsetRange(AT, 0, 4)]))
    table = foreign(where)
    paths = [one.file.file_path.removeprefix("file://") for one in table.scan().plan_files()]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        of_duckdb = connection.sql("SELECT * FROM read_parquet(?)", params=[paths]).to_arrow_table()
    # What a compaction would write.
    name = f"{where.base}/data/compacted/all.parquet"
    assert copied(table, live_files(table), name) == 10
    compacted = pq.read_table(name.removeprefix("file://"), partitioning=None)
    by_pyiceberg = table.scan().to_arrow()
    for rows in (by_pyiceberg, pl.scan_iceberg(table).collect().to_arrow(), of_duckdb, compacted):
        for row in rows.sort_by("_offset").to_pylist():
            for name in FIELDS:
                # pyiceberg 0.12 reads an absent list of structs as an empty one.
                absent = [] if rows is by_pyiceberg and name == "deep" else None
                wanted = plain(ROW[name]) if row["_offset"] % 2 else absent
                assert plain(row[name]) == wanted, name
        assert rows.num_rows == 10
    assert compacted.schema.field("tags").type == arrow_type(FIELDS["tags"])


@pytest.mark.covers("I5")
@pytest.mark.parametrize(
    ("narrow", "wide", "value"),
    [
        ("int", "integer", 2**40),
        ("float", "double", 0.1),
        ("decimal(9,2)", "decimal(20,2)", Decimal("123456789012.34")),
    ],
)
def test_a_type_grows(tmp_path: Path, narrow: str, wide: str, value: Any) -> None:
    where = of(tmp_path)
    iceberg_table.prepare(where, {"n": narrow}, "s", "ledger")
    first = Decimal("1.25") if "decimal" in narrow else 1
    publish(where, window(where, {"n": narrow}, 1, range(10), {"n": first}), RangeSet())
    assert iceberg_table.as_stored(where, {"n": wide}) == {"n": wide}
    iceberg_table.prepare(where, {"n": wide}, "s", "ledger")
    publish(where, window(where, {"n": wide}, 2, range(10, 20), {"n": value}), RangeSet())
    publish(where, window(where, {"n": wide}, 5, range(4), {"n": value}), RangeSet([OffsetRange(AT, 0, 4)]))
    rows = foreign(where).scan().to_arrow().sort_by("_offset")
    assert rows["n"].to_pylist() == [(value if at < 4 or at >= 10 else first) if at % 2 else None for at in range(20)]
    # A stream file that goes back to the narrow type writes the wider one.
    assert iceberg_table.as_stored(where, {"n": narrow}) == {"n": wide}


FAR = 12_000 * 366


@pytest.mark.slow
@pytest.mark.covers("I5")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", FAR),
        ("date", -FAR),
        ("timestamp", FAR * 86_400_000_000),
        ("timestamp_ntz", -FAR * 86_400_000_000),
        ("array<struct<a:date>>", [{"a": FAR}]),
        # Cut behind 16 characters, its upper bound would end in half a character.
        ("string", f"{'a' * 15}\ud7ffaa"),
        ("string", b"\xff"),
    ],
)
def test_no_value_keeps_a_window_from_its_table(tmp_path: Path, kind: str, value: Any) -> None:
    """The library has no bounds for some: readers open the files then."""
    where = of(tmp_path)
    fields = {"n": kind, "m": "integer"}
    iceberg_table.prepare(where, fields, "s", "ledger")
    one = window(where, fields, 1, range(10), {"n": None if value == b"\xff" else value, "m": 5})
    if value == b"\xff":
        _not_utf8(where, one)
    publish(where, one, RangeSet())
    publish(where, window(where, fields, 5, range(4), {"n": None, "m": 6}), RangeSet([OffsetRange(AT, 0, 4)]))
    table = foreign(where)
    rows = table.scan(row_filter=EQUAL("m", 5), selected_fields=("_offset", "m")).to_arrow()
    assert sorted(rows["_offset"].to_pylist()) == [5, 7, 9]
    column = table.schema().find_field("m").field_id
    assert all(column in one.file.lower_bounds for one in live_files(table))


def _not_utf8(where: CatalogTable, one: Committed) -> None:
    """Put bytes that are no UTF-8 into the column `n`, as a cast in SQL does."""
    folder = iceberg_table.attempt_folder(where.base, one.record.lane, 1, one.generation)
    file = Path(folder.removeprefix("file://")) / "part-0.parquet"
    rows = pq.read_table(file)
    content = pa.array([b"\xff"] * rows.num_rows, pa.binary())
    texts = pa.Array.from_buffers(pa.string(), rows.num_rows, content.buffers())
    pq.write_table(rows.set_column(rows.schema.get_field_index("n"), "n", texts), file)


def test_decimals_that_spark_stored_before_their_column_grew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark stores up to 18 digits as an integer."""
    real = pq.write_table
    monkeypatch.setattr(pq, "write_table", lambda *given: real(*given, store_decimal_as_integer=True))
    where = of(tmp_path)
    iceberg_table.prepare(where, {"n": "decimal(9,2)"}, "s", "ledger")
    late = window(where, {"n": "decimal(9,2)"}, 1, range(10), {"n": Decimal("1.25")})
    iceberg_table.prepare(where, {"n": "decimal(20,2)"}, "s", "ledger")
    publish(where, late, RangeSet())
    rows = foreign(where).scan().to_arrow().sort_by("_offset")
    assert rows["n"].to_pylist() == [Decimal("1.25") if at % 2 else None for at in range(10)]


@pytest.mark.parametrize(
    ("old", "new"), [("integer", "decimal(20,0)"), ("string", "integer"), ("decimal(9,2)", "decimal(12,3)")]
)
def test_a_type_that_iceberg_does_not_widen_is_refused(tmp_path: Path, old: str, new: str) -> None:
    where = of(tmp_path)
    iceberg_table.prepare(where, {"n": old}, "s", "ledger")
    with_a_row(where.base)
    for check in (iceberg_table.as_stored, lambda at, fields: iceberg_table.prepare(at, fields, "s", "ledger")):
        with pytest.raises(WrongUse, match="has the column n as"):
            check(where, {"n": new})


@pytest.mark.covers("N108")
def test_a_column_of_iceberg_keeps_its_id(tmp_path: Path) -> None:
    was = {"customer": ("client",)}
    where, before = of(tmp_path), {"client": "string", "lines": "array<struct<n:int>>"}
    keys = (PartitionKey("client", "bucket", 4),)
    iceberg_table.prepare(where, before, "s", "ledger", keys)
    row: dict[str, Any] = {"client": "ann", "lines": [{"n": 1}, None]}
    publish(where, window(where, before, 1, range(4), row), RangeSet())
    # An attempt that began before the new name, and is published after it.
    late = window(where, before, 2, range(4, 8), row)
    after, keys = {"customer": "string", "lines": "array<struct<n:bigint>>"}, (PartitionKey("customer", "bucket", 4),)
    assert iceberg_table.as_stored(where, after, was) == after
    iceberg_table.prepare(where, after, "s", "ledger", keys, was)
    iceberg_table.prepare(where, after, "s", "ledger", keys, was)
    publish(where, late, RangeSet())
    row = {"customer": "zoë", "lines": [{"n": 2**40}]}
    publish(where, window(where, after, 3, range(8, 12), row), RangeSet())
    # What stays of the first window is copied.
    publish(where, window(where, after, 5, range(2), row), RangeSet([OffsetRange(AT, 0, 2)]))
    rows = foreign(where).scan().to_arrow().sort_by("_offset")
    assert "client" not in rows.column_names
    names = {at: "ann" if 2 <= at < 8 else "zoë" for at in range(12)}
    assert rows["customer"].to_pylist() == [names[at] if at % 2 else None for at in range(12)]
    assert rows["lines"].to_pylist()[9] == [{"n": 2**40}]
    assert rows["lines"].to_pylist()[3] == [{"n": 1}, None]
    assert iceberg_table.names_of(where) == {"customer": ["client"]}
    # A stream file of before would add a column that takes the older files' values.
    with pytest.raises(WrongUse, match="under the name customer what was client before"):
        iceberg_table.prepare(where, before, "s", "ledger", keys)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("struct<a:struct<b:int>,`a.b`:int>", "sink iceberg: f has two members that Iceberg calls f.a.b; give one"),
        ("array<struct<a:array<int>,`a.element`:int>>", "f has two members that Iceberg calls f.element.a.element"),
        ("struct<`a.b`:int,`a b`:int,a:struct<c:int>>", None),
    ],
)
def test_members_that_iceberg_calls_the_same(tmp_path: Path, kind: str, problem: str | None) -> None:
    """The library raises for them, and takes what it is not told of."""
    sink = IcebergSink(type="iceberg", folder="a", table="lake.a")
    latest = IcebergLatestSink(type="iceberg_latest", folder="a", table="lake.a", key=("id",))
    fields = {"id": "string", "f": canonical(kind)}
    for one in (sink, latest):
        said = one.problem_with(SettingsContext(fields, "at_least_once", lambda *_: True))
        assert (said is None) == (problem is None)
        assert said is None or str(problem).removeprefix("sink iceberg: ") in said
    if problem is None:
        where = CatalogTable(
            f"file://{tmp_path}/table", Database("sqlite", f"{tmp_path}/c.db"), "tidemark", "lake.orders"
        )
        iceberg_table.prepare(where, fields, "s", "ledger")
