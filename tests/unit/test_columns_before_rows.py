"""Columns of a place that never had a row, as after a first window of dead letters alone: a stream file may change them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.latest_tables import Change, DeltaLatestInMemory, IcebergLatestInMemory, LatestInMemory
from tests.support.streams_in_memory import offsets
from tidemark.clients.lake import beside
from tidemark.clients.sql import Database
from tidemark.errors import Conflict, LedgerContradiction, OwnedByAnother, WrongUse
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.changing import FileChange
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import CatalogTable
from tidemark.sinks.iceberg.settings import PartitionKey
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.files import attempt_folder
from tidemark.types.fields import FieldType, arrow_type

Fields = dict[str, FieldType]
BEFORE: Fields = {"id": "integer", "at": "string", "wall": "string"}
AFTER: Fields = {"ID": "string", "at": "timestamp", "wall": "timestamp_ntz", "d": "decimal(5,2)"}
ROW = {"ID": "x", "at": datetime(2026, 11, 29, tzinfo=UTC), "wall": datetime(2026, 11, 29), "d": None}


def write(folder: str, fields: Fields, rows: int) -> str:
    """A file of an attempt, with these columns."""
    there = Path(folder.removeprefix("file://"))
    there.mkdir(parents=True)
    schema = pa.schema([("_offset", pa.int64()), *((name, arrow_type(kind)) for name, kind in fields.items())])
    pq.write_table(pa.Table.from_pylist([{"_offset": 5, **ROW}] * rows, schema=schema), there / "part-0.parquet")
    return folder


class Place:
    """A sink's place of some format, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.base = f"file://{folder}/lake/orders"
        self.attempts = self.base

    def prepare(self, fields: Fields, ledger: str = "ledger") -> None: ...

    def check(self, fields: Fields) -> None: ...

    def stored(self, fields: Fields) -> Fields: ...  # type: ignore[empty-body]

    def check_unchanged(self, fields: Fields) -> None: ...

    def shown(self) -> None:
        """Readers of other projects agree on the columns."""


class Parquet(Place):
    def prepare(self, fields: Fields, ledger: str = "ledger") -> None:
        types.keep(self.base, fields)

    def check(self, fields: Fields) -> None:
        types.check(self.base, fields)

    def stored(self, fields: Fields) -> Fields:
        return types.as_stored(self.base, fields)

    def check_unchanged(self, fields: Fields) -> None:
        types.check_unchanged(self.base, fields)


class Delta(Place):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.attempts = beside(self.base)

    def prepare(self, fields: Fields, ledger: str = "ledger") -> None:
        delta_table.prepare(self.base, delta_table.columns(fields), "s", ledger)

    def check(self, fields: Fields) -> None:
        delta_table.check_columns(self.base, fields)

    def stored(self, fields: Fields) -> Fields:
        return delta_table.as_stored(self.base, fields)

    def check_unchanged(self, fields: Fields) -> None:
        delta_table.check_unchanged(self.base, fields)

    def shown(self) -> None:
        """With a row in the table."""
        folder = f"{delta_table.partition_folder(self.base, 7)}"
        write(folder, AFTER, 1)

        def add(table: DeltaTable) -> None:
            change = FileChange(self.base, table.version())
            change.add(f"{folder.removeprefix(self.base)[1:]}/part-0.parquet", 7)
            table.create_write_transaction([*change.added], "append", table.schema(), ["_generation"])

        delta_table.change(self.base, add)
        shown = pl.scan_delta(self.base).select("ID", "at", "wall", "d").collect()
        assert shown.rows(named=True) == [ROW]
        dataset = DeltaTable(self.base).to_pyarrow_dataset()  # noqa: F841
        assert duckdb.sql("SELECT ID, wall FROM dataset").fetchall() == [(ROW["ID"], ROW["wall"])]


class Iceberg(Place):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.attempts = f"{self.base}/data"
        self.where = CatalogTable(self.base, Database("sqlite", str(folder / "catalog.db")), "tidemark", "lake.orders")

    def prepare(self, fields: Fields, ledger: str = "ledger") -> None:
        keys = [PartitionKey("at", "day")] if fields["at"] == "timestamp" else [PartitionKey("id", "bucket", 4)]
        iceberg_table.prepare(self.where, fields, "s", ledger, keys)

    def check(self, fields: Fields) -> None:
        iceberg_table.as_stored(self.where, fields)

    def stored(self, fields: Fields) -> Fields:
        return iceberg_table.as_stored(self.where, fields)

    def check_unchanged(self, fields: Fields) -> None:
        iceberg_table.check_unchanged(self.where, fields)

    def shown(self) -> None:
        """As another program has the table."""
        catalog = SqlCatalog("tidemark", uri=f"sqlite:///{self.where.server.host}")
        table = catalog.load_table("lake.orders")
        assert [str(one.transform) for one in table.spec().fields] == ["day"]
        shown = table.scan().to_arrow().schema
        kinds = [pa.large_string(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(5, 2)]
        assert [shown.field(name).type for name in AFTER] == kinds


PLACES: dict[str, Callable[[Path], Place]] = {"parquet": Parquet, "delta": Delta, "iceberg": Iceberg}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path)


@pytest.mark.covers("N91")
def test_dead_letters_alone_fix_no_types(place: Place) -> None:
    place.prepare(BEFORE)
    write(attempt_folder(place.attempts, "ingest", 1, 3), BEFORE, 0)
    for _ in range(2):
        place.check(AFTER)
        assert place.stored(AFTER) == AFTER
    for _ in range(2):
        place.prepare(AFTER)
        assert place.stored(AFTER) == AFTER
    place.shown()


@pytest.mark.covers("N91")
def test_a_row_fixes_the_types(place: Place) -> None:
    place.prepare(BEFORE)
    write(attempt_folder(place.attempts, "ingest", 1, 3), BEFORE, 0)
    # Nobody knows yet whether this attempt will count.
    write(attempt_folder(place.attempts, "ingest", 2, 4), AFTER, 1)
    for refuses in (place.prepare, place.check, place.stored):
        with pytest.raises(WrongUse, match=r"and the stream file now names it ID|has it as timestamp"):
            refuses(AFTER)
    assert place.stored(BEFORE) == BEFORE


@pytest.mark.covers("N91")
def test_an_attempt_whose_columns_were_changed_meanwhile_commits_nothing(place: Place) -> None:
    place.prepare(BEFORE)
    place.check_unchanged(BEFORE)
    place.prepare({**BEFORE, "more": "date"})
    place.check_unchanged(BEFORE)
    place.prepare(AFTER)
    with pytest.raises(Conflict, match=r"another stream file has changed the columns of .* Run it again"):
        place.check_unchanged(BEFORE)
    place.check_unchanged(AFTER)


def test_whose_a_table_is_stays(tmp_path: Path) -> None:
    for make, name in ((Delta, "delta"), (Iceberg, "iceberg")):
        place = make(tmp_path / name)
        (tmp_path / name).mkdir()
        place.prepare(BEFORE)
        place.prepare(AFTER)
        with pytest.raises((OwnedByAnother, LedgerContradiction)):
            place.prepare(BEFORE, "other")


@pytest.mark.slow
@pytest.mark.covers("N91", "N108")
@pytest.mark.parametrize("kind", [DeltaLatestInMemory, IcebergLatestInMemory])
def test_tables_of_newest_rows_are_as_free_before_their_first_row(
    kind: Callable[[Path], LatestInMemory], tmp_path: Path
) -> None:
    world = kind(tmp_path)
    world.code = lambda partition, offset: []
    world.rewrite("    id: integer\n", "    id: integer\n    number: string\n")
    world.ends((0, 5), (0, 0))
    world.ingest()
    assert world.shown() == world.counting() == {}
    world.rewrite("    number: string\n", "    number: int\n")
    world.admin.check_fields(world.opened, world.sink)
    world.code = lambda partition, offset: [Change(offset % 3, f"{partition}@{offset}")]
    world.ends((0, 8), (0, 0))
    world.ingest()
    assert world.shown() == world.counting() == world.wanted() != {}
    numbers = {row["id"]: row["number"] for row in world.seen()}
    assert all(isinstance(one, int) for one in numbers.values())
    world.replay(offsets((0, 0, 5)), "replay 1")
    assert world.shown() == world.counting() == world.wanted()
    # Now there are rows.
    world.rewrite("    number: int\n", "    number: string\n")
    check: Any = partial(world.admin.check_fields, world.opened, world.sink)
    for refuses in (world.prepare, check):
        with pytest.raises(WrongUse, match="has the column number as int"):
            refuses()
