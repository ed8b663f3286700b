"""A Delta table without Spark: the files that it has, what is taken out, what readers see of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from tests.support.compactions import authority_of, committed
from tests.support.delta_in_memory import add
from tests.support.lakes import with_a_row
from tests.support.memory import MemoryStore
from tests.support.range_strategies import offsets, range_sets
from tests.support.streams_in_memory import StreamInMemory
from tidemark.errors import LedgerContradiction, OwnedByAnother, Unreachable, WrongUse
from tidemark.ledger.ledger import Committed, Ledger
from tidemark.ledger.recovery.backup import back_up, restore
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.publishing import take_out
from tidemark.sinks.parquet import rewriting
from tidemark.sinks.parquet.files import tables_that_count
from tidemark.sinks.parquet.parts import parts
from tidemark.sinks.versions import versions_of
from tidemark.types.fields import FieldType

AT = TopicPartition("logs", 0)
FIELDS: dict[str, FieldType] = {"id": "string", "at": "timestamp", "raw": "binary"}


@pytest.fixture
def base(tmp_path: Path) -> str:
    base = f"file://{tmp_path}/table"
    delta_table.prepare(base, delta_table.columns(FIELDS), "s", "ledger")
    return base


def attempt(base: str, generation: int, numbers: Sequence[int], lane: str = "ingest", at: TopicPartition = AT) -> None:
    """Files in the table, with Arrow in place of Spark."""
    schema = delta_table.columns(FIELDS)
    values = {"_topic": at.topic, "_incarnation": at.incarnation, "_partition": at.partition}
    values |= {"_index": 0, "_tombstone": False, "_digest": 7}
    values |= {"at": datetime(2500, 1, 1, tzinfo=UTC), "raw": b"\xff"}
    table = {name: [value] * len(numbers) for name, value in values.items()}
    table |= {"_offset": list(numbers), "id": [f"{generation}-{one}" for one in numbers]}
    wanted = pa.schema([one for one in schema if one.name != "_generation"])
    folder = Path(delta_table.partition_folder(base, generation).removeprefix("file://"))
    folder.mkdir(exist_ok=True)
    name = f"part-{at.topic}-{at.incarnation}-{at.partition}.parquet"
    pq.write_table(pa.table({name: table[name] for name in wanted.names}, schema=wanted), folder / name)
    add(base, f"s/{lane}", generation, f"{lane}/1")


def plainly(base: str) -> list[tuple[int, int]]:
    """Offset and generation of every row that a plain reader sees."""
    rows = DeltaTable(base).to_pyarrow_table().to_pylist()
    return sorted((row["_offset"], row["_generation"]) for row in rows)


def test_lower_generations_are_taken_out_at_some_offsets(base: str) -> None:
    attempt(base, 1, range(10))
    attempt(base, 2, range(10, 20))
    attempt(base, 9, range(5, 12), "replay-1")
    replay = committed(base, 1, range(5, 12), lane="replay-1", generation=5)
    # Only of generations lower than its own: what a newer attempt has written stays.
    take_out(base, replay.record, replay.covers)
    left = [(one, 1) for one in range(5)] + [(one, 9) for one in range(5, 12)] + [(one, 2) for one in range(12, 20)]
    assert plainly(base) == sorted(left)
    version = DeltaTable(base).version()
    take_out(base, replay.record, replay.covers)
    assert plainly(base) == sorted(left)
    # What is done once more makes no version.
    assert DeltaTable(base).version() == version
    rewritten = DeltaTable(base).to_pyarrow_table().to_pylist()
    assert {row["at"] for row in rewritten} == {datetime(2500, 1, 1, tzinfo=UTC)}
    assert {row["raw"] for row in rewritten} == {b"\xff"}


def test_many_single_offsets_are_taken_out(base: str) -> None:
    attempt(base, 1, range(1000))
    attempt(base, 9, range(1000, 2000), "replay-2")
    replay = committed(base, 1, range(2000), lane="replay-1", generation=5)
    odd = RangeSet(OffsetRange(AT, one, one + 1) for one in range(1, 2000, 2))
    before = DeltaTable(base).version()
    take_out(base, replay.record, odd)
    assert [offset for offset, _ in plainly(base)] == [*range(0, 1000, 2), *range(1000, 2000)]
    # In one commit of the table, and the rows beside them are as they were.
    assert DeltaTable(base).version() == before + 1
    rewritten = DeltaTable(base).to_pyarrow_table().to_pylist()
    assert {(row["at"], row["raw"]) for row in rewritten} == {(datetime(2500, 1, 1, tzinfo=UTC), b"\xff")}
    assert sorted(delta_table.files_of(base)) == [1, 9]


@pytest.mark.slow
@given(written=range_sets, covers=range_sets, size=st.integers(1, 30))
def test_what_is_covered_is_taken_out_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, written: RangeSet, covers: RangeSet, size: int
) -> None:
    """However many ranges there are, long and short, of several partitions and incarnations, some rows at a time."""
    base = f"file://{tmp_path_factory.mktemp('table')}/table"
    delta_table.prepare(base, delta_table.columns(FIELDS), "s", "ledger")
    rows = sorted(offsets(written))
    for generation in (1, 9):
        for at in written.partitions:
            attempt(base, generation, [offset for one, offset in rows if one == at], f"{at}", at)
    replay = committed(base, 1, range(1), lane="replay-1", generation=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriting, "AT_A_TIME", size)
        take_out(base, replay.record, covers)
    found = DeltaTable(base).to_pyarrow_table().to_pylist()
    assert sorted(
        (TopicPartition(row["_topic"], row["_partition"], row["_incarnation"]), row["_offset"], row["_generation"])
        for row in found
    ) == sorted([(*one, 1) for one in rows if one not in covers] + [(*one, 9) for one in rows])


def test_files_without_such_offsets_stay(base: str) -> None:
    for generation in range(1, 11):
        attempt(base, generation, range(generation * 100, generation * 100 + 100))
    before = {generation: {*paths} for generation, paths in delta_table.files_of(base).items()}
    replay = committed(base, 1, range(5_000), lane="replay-1", generation=50)
    wanted = [*range(200, 300, 2), *range(900, 1000, 2)]
    take_out(base, replay.record, RangeSet(OffsetRange(AT, one, one + 1) for one in wanted))
    after = {generation: {*paths} for generation, paths in delta_table.files_of(base).items()}
    assert {one for one in before if before[one] != after[one]} == {2, 9}
    assert DeltaTable(base).to_pyarrow_table().num_rows == 1_000 - len(wanted)


def test_programs_that_change_a_table_at_once(base: str) -> None:
    """Offsets are erased while files are added, and another run has a stream file with more fields."""
    attempt(base, 1, range(100))
    replay = committed(base, 1, range(100), lane="replay-1", generation=500)
    attempt(base, 500, range(100), "replay-1")
    long, short = (
        RangeSet([OffsetRange(AT, 0, 100)]),
        RangeSet(OffsetRange(AT, one, one + 1) for one in range(0, 100, 2)),
    )

    def add(lane: str) -> None:
        for generation in range(*((2, 12) if lane == "a" else (12, 22))):
            attempt(base, generation, [generation, 1_000 + generation], lane)

    def columns(number: int) -> None:
        delta_table.prepare(base, delta_table.columns({**FIELDS, f"more_{number}": "integer"}), "s", "ledger")

    def sweep(covers: RangeSet) -> None:
        for _ in range(10):
            take_out(base, replay.record, covers)

    with ThreadPoolExecutor(6) as programs:
        runs = [programs.submit(add, lane) for lane in "ab"]
        runs += [programs.submit(sweep, covers) for covers in (long, short)]
        runs += [programs.submit(columns, number) for number in range(2)]
        for one in runs:
            one.result()
    take_out(base, replay.record, long)
    left = [(one, 500) for one in range(100)] + [(1_000 + one, one) for one in range(2, 22)]
    assert plainly(base) == sorted(left)
    assert {"more_0", "more_1"} < {field.name for field in DeltaTable(base).schema().fields}


@pytest.mark.covers("E43")
def test_a_version_counts_once(base: str) -> None:
    attempt(base, 5, range(10))
    add(base, "s/ingest", 5, "ingest/1")
    assert len(plainly(base)) == 10
    # A version that is skipped leaves nothing in the table, whatever was written.
    attempt(base, 4, range(10, 20))
    assert sorted(delta_table.files_of(base)) == [5]
    # Another lane has versions of its own.
    attempt(base, 3, range(20, 25), "replay-1")
    assert sorted(delta_table.files_of(base)) == [3, 5]


@pytest.mark.covers("E43")
def test_a_ledger_that_was_restored_to_before_a_wrong_clock_writes_again(base: str, tmp_path: Path) -> None:
    """A generation of tomorrow is in the table as the lane's version. The restored ledger draws generations of today."""
    made = StreamInMemory(tmp_path)
    made.ends((0, 10))
    made.ingest()
    there = Ledger(MemoryStore(), "orders", clock=lambda: made.now)
    kept = versions_of(made.opened.ledger)
    back_up(made.opened.ledger, tmp_path / "backup")
    attempt(base, 86_400_000, range(10), lane=f"{kept}/ingest")
    restore(there, tmp_path / "backup")
    anew = versions_of(there)
    attempt(base, 5_000, range(10, 20), lane=f"{anew}/ingest")
    assert sorted(delta_table.files_of(base)) == [5_000, 86_400_000]
    # A late attempt of this ledger is skipped as ever.
    attempt(base, 4_000, range(10, 20), lane=f"{anew}/ingest")
    assert sorted(delta_table.files_of(base)) == [5_000, 86_400_000]


def given_to_readers(base: str, windows: list[Committed]) -> list[str]:
    authority = authority_of(windows)
    files = delta_table.files_of(base)
    found = [
        replace(one, files=tuple(files[one.windows[0].generation]))
        for one in parts(windows, authority, "parquet")
        if one.windows[0].generation in files
    ]
    return sorted(one for table in tables_that_count(found, authority) for one in table["id"].to_pylist())


def test_readers_see_what_counts(base: str) -> None:
    first, replay = committed(base, 1, range(10)), committed(base, 1, range(4, 6), lane="replay-1", generation=9)
    attempt(base, 1, range(10))
    attempt(base, 9, range(4, 6), "replay-1")
    # A late attempt.
    attempt(base, 10, range(10), "late")
    assert given_to_readers(base, [first]) == [f"1-{one}" for one in range(10)]
    mixed = sorted([*(f"1-{one}" for one in range(10) if one not in (4, 5)), "9-4", "9-5"])
    assert given_to_readers(base, [first, replay]) == mixed
    take_out(base, replay.record, replay.covers)
    assert given_to_readers(base, [first, replay]) == mixed


def test_a_table_of_somebody_else_is_refused(base: str, tmp_path: Path) -> None:
    columns = delta_table.columns(FIELDS)
    delta_table.prepare(base, columns, "s", "ledger")
    with pytest.raises(OwnedByAnother, match="belongs to stream s; this is stream other"):
        delta_table.prepare(base, columns, "other", "ledger")
    with pytest.raises(LedgerContradiction, match="with ledger ledger, its ledger now is newer"):
        delta_table.prepare(base, columns, "s", "newer")
    write_deltalake(f"{tmp_path}/theirs", pa.table({"id": ["a"]}))
    with pytest.raises(OwnedByAnother, match="belongs to stream nobody"):
        delta_table.prepare(f"file://{tmp_path}/theirs", columns, "s", "ledger")


def test_columns_may_be_added_and_not_changed(base: str) -> None:
    attempt(base, 1, range(5))
    delta_table.prepare(base, delta_table.columns({**FIELDS, "more": "integer"}), "s", "ledger")
    assert {row["more"] for row in DeltaTable(base).to_pyarrow_table().to_pylist()} == {None}
    with pytest.raises(WrongUse, match="has the column id as"):
        delta_table.prepare(base, delta_table.columns({"id": "integer"}), "s", "ledger")


@pytest.mark.covers("N91")
def test_a_column_keeps_its_type_where_that_is_the_wider_one(base: str) -> None:
    wide: dict[str, FieldType] = {"n": "integer", "f": "double", "d": "decimal(12,2)", "wall": "timestamp_ntz"}
    narrow: dict[str, FieldType] = {"n": "int", "f": "float", "d": "decimal(5,2)", "wall": "timestamp_ntz"}
    delta_table.prepare(base, delta_table.columns(wide), "s", "ledger")
    delta_table.prepare(base, delta_table.columns(narrow), "s", "ledger")
    assert delta_table.as_stored(base, {**narrow, "new": "date"}) == {**wide, "new": "date"}
    with_a_row(base)
    for name, wider in (("n", "decimal(20,0)"), ("d", "decimal(13,2)"), ("d", "decimal(12,3)"), ("wall", "timestamp")):
        why = ", and Delta cannot widen it" if wider == "decimal(13,2)" else ""
        said = re.escape(f"now has it as {wider}{why}: name another folder")
        for refuse in (
            lambda one: delta_table.prepare(base, delta_table.columns(one), "s", "ledger"),
            partial(delta_table.check_columns, base),
        ):
            with pytest.raises(WrongUse, match=said):
                refuse({name: wider})
    # A time without a zone is a feature of a table, which one made without it gets.
    delta_table.prepare(f"{base}_2", delta_table.columns({"id": "string"}), "s", "ledger")
    delta_table.prepare(f"{base}_2", delta_table.columns({"id": "string", "wall": "timestamp_ntz"}), "s", "ledger")
    assert delta_table.as_stored(f"{base}_2", {"wall": "timestamp_ntz"}) == {"wall": "timestamp_ntz"}


def test_a_column_renamed_only_in_case_is_refused(base: str) -> None:
    with_a_row(base)
    with pytest.raises(WrongUse, match=r"has the column id, and the stream file now names it ID: .* Keep the name id"):
        delta_table.prepare(base, delta_table.columns({"ID": "string", "at": "timestamp"}), "s", "ledger")
    # Nor beside a new column, and the table is as it was.
    with pytest.raises(WrongUse, match="has the column raw"):
        delta_table.prepare(
            base, delta_table.columns({"more": "string", "id": "string", "Raw": "binary"}), "s", "ledger"
        )
    assert "more" not in {field.name for field in DeltaTable(base).schema().fields}


# A value of each type that statistics in JSON cannot give, or give only in part, beside plain ones.
EDGES: dict[FieldType, list[Any]] = {
    "string": ["NL", "DE", "", "x" * 5_000, None],
    "integer": [5, -(2**63), 2**63 - 1, 0, None],
    "double": [0.5, math.inf, -math.inf, math.nan, None],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
        datetime(2026, 11, 21, 7, 0, 0, 123456, tzinfo=UTC),
        datetime(2026, 11, 21, 7, tzinfo=UTC),
        None,
    ],
    "boolean": [True, False, False, True, None],
    "binary": [b"", b"\xff", b"\x00", b"key", None],
}


def edges(base: str, generation: int) -> dict[str, list[Any]]:
    """Files of an attempt with a column for each type, and one of nulls. Gives the values by column."""
    fields: dict[str, FieldType] = {f"f_{kind}": kind for kind in EDGES}
    schema = delta_table.columns({**fields, "nothing": "string"})
    if generation == 1:
        delta_table.prepare(base, schema, "s", "ledger")
    values = {f"f_{kind}": list(found) for kind, found in EDGES.items()} | {"nothing": [None] * 5}
    first = generation * 100
    values |= {"_topic": ["logs"] * 5, "_incarnation": [1] * 5, "_partition": [0] * 5, "_index": [0] * 5}
    values |= {"_offset": [*range(first, first + 5)], "_tombstone": [False] * 5, "_digest": [7, 8, 9, 10, 11]}
    wanted = pa.schema([one for one in schema if one.name != "_generation"])
    folder = Path(delta_table.partition_folder(base, generation).removeprefix("file://"))
    folder.mkdir()
    pq.write_table(pa.table(values, schema=wanted), folder / "part.parquet")
    add(base, "s/ingest", generation, "ingest/1")
    return values


def of_deltalake(base: str, name: str, value: object) -> int:
    return int(DeltaTable(base).to_pyarrow_table(filters=[(name, "=", value)]).num_rows)


def of_polars(base: str, name: str, value: object) -> int:
    return int(pl.scan_delta(base.removeprefix("file://")).filter(pl.col(name) == value).collect().height)


def of_duckdb(base: str, name: str, value: object) -> int:
    with duckdb.connect() as connection:
        connection.register("rows", DeltaTable(base).to_pyarrow_dataset())
        (found,) = connection.execute(f'SELECT count(*) FROM rows WHERE "{name}" = ?', [value]).fetchall()
    return int(found[0])


READERS = [of_deltalake, of_polars, of_duckdb]


@pytest.mark.slow
@pytest.mark.covers("E43")
@pytest.mark.parametrize("reader", READERS, ids=lambda one: one.__name__)
def test_a_plain_reader_that_filters_by_any_column_finds_all_rows(
    tmp_path: Path, reader: Callable[[str, str, object], int]
) -> None:
    base = f"file://{tmp_path}/edges"
    values = edges(base, 1)
    edges(base, 2)
    for name, column in values.items():
        for value in {one for one in column if one is not None and one == one}:
            wanted = column.count(value) * (1 if name == "_offset" else 2)
            assert reader(base, name, value) == wanted, (name, value)


def test_what_lies_within_a_field_may_be_called_as_a_column_of_ours(tmp_path: Path) -> None:
    base = f"file://{tmp_path}/within"
    schema = delta_table.columns({"lines": "array<struct<_offset:bigint,_partition:int>>"})
    delta_table.prepare(base, schema, "s", "ledger")
    ours = {"_topic": "logs", "_incarnation": 1, "_partition": 0, "_index": 0, "_tombstone": False, "_digest": 7}
    rows = [{**ours, "_offset": at, "lines": [{"_offset": 500, "_partition": 9}]} for at in range(10)]
    for generation in (1, 2):
        folder = Path(delta_table.partition_folder(base, generation).removeprefix("file://"))
        folder.mkdir()
        wanted = pa.schema([one for one in schema if one.name != "_generation"])
        pq.write_table(pa.Table.from_pylist(rows, wanted), folder / "part-0.parquet")
        add(base, "s/ingest", generation, f"ingest/{generation}")
    replay = committed(base, 2, range(3, 5), generation=2)
    assert [of_deltalake(base, "_offset", at) for at in (2, 3)] == [2, 2]
    take_out(base, replay.record, replay.covers)
    assert plainly(base) == sorted([*((at, 1) for at in range(10) if at not in (3, 4)), *((at, 2) for at in range(10))])


@pytest.mark.parametrize("reader", READERS, ids=lambda one: one.__name__)
def test_so_does_one_of_a_table_that_an_earlier_version_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Callable[[str, str, object], int]
) -> None:
    base = f"file://{tmp_path}/edges"
    with monkeypatch.context() as earlier:
        for name in [*delta_table.STATISTICS]:
            earlier.delitem(delta_table.STATISTICS, name)  # type: ignore[arg-type]
        values = edges(base, 1)
    schema = DeltaTable(base).schema()
    fields: dict[str, FieldType] = {f"f_{kind}": kind for kind in EDGES}
    delta_table.prepare(base, delta_table.columns({**fields, "nothing": "string"}), "s", "ledger")
    version = DeltaTable(base).version()
    delta_table.prepare(base, delta_table.columns({**fields, "nothing": "string"}), "s", "ledger")
    assert (DeltaTable(base).version(), DeltaTable(base).schema()) == (version, schema)
    assert [reader(base, "f_string", one) for one in ("NL", "DE")] == [1, 1]
    assert reader(base, "f_double", math.inf) == 1
    assert reader(base, "_digest", values["_digest"][0]) == 1


def test_a_table_whose_disk_goes_away_is_out_of_reach(base: str, tmp_path: Path) -> None:
    """An attempt has prepared the table, and then meets the empty mount point."""
    attempt(base, 1, range(10))
    replay = committed(base, 1, range(5, 8), lane="replay-1", generation=5)
    path = Path(base.removeprefix("file://"))
    path.rename(tmp_path / "away")
    path.mkdir()
    for change in (
        lambda: attempt(base, 2, [5]),
        lambda: take_out(base, replay.record, replay.covers),
        lambda: take_out(base, replay.record, RangeSet(OffsetRange(AT, at, at + 1) for at in range(0, 500, 2))),
    ):
        with pytest.raises(Unreachable, match="the table is not there any more; its disk may not be mounted"):
            change()
