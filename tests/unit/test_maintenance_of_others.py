"""Programs of other people that look after a lake's tables: they expire snapshots, rewrite files and vacuum, between any steps.

What anybody reads stays right, by pyiceberg, deltalake, polars, and DuckDB over the files that these list.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.iceberg_in_memory import IcebergInMemory
from tests.support.latest_tables import Change, DeltaLatestInMemory, IcebergLatestInMemory, LatestInMemory
from tests.support.streams_in_memory import offsets
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg import catalog
from tidemark.sinks.iceberg.compacting import compact
from tidemark.sinks.iceberg.latest.compacting import where_of

STEPS = 10
SEEDS = range(2)


def _expire_all(table: Any) -> None:
    """All snapshots but the newest, as `expire_snapshots` of any engine does."""
    newest = table.current_snapshot()
    if gone := [one.snapshot_id for one in table.snapshots() if one.snapshot_id != newest.snapshot_id]:
        table.maintenance.expire_snapshots().by_ids(gone).commit()


def _rewrite(table: Any) -> None:
    """All rows into new files, as `rewrite_data_files` does."""
    rows = table.scan().to_arrow()
    if rows.num_rows:
        table.overwrite(rows)


@pytest.mark.covers("I9")
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_iceberg(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a package of its own, polars warns that it plans more slowly.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    of, world, end, gone = random.Random(seed), IcebergInMemory(tmp_path), 0, set[int]()
    for number in range(STEPS):
        end += of.randrange(1, 6)
        world.ends((0, end))
        world.ingest(f"run {number}")
        start = of.randrange(end)
        some = offsets((0, start, min(start + 3, end))) - _ranges(gone)
        match of.choice(("replay", "erase", "compact", "nothing")):
            case "replay" if some:
                world.replay(some, f"replay {number}")
            case "erase" if some:
                world.erase(some, f"erasure {number}")
                gone |= {offset for one in some for offset in range(one.start, one.until)}
            case "compact":
                compact(world.opened, world.sink, f"compaction {number}", CompactionRequest())
        of.choice((_expire_all, _rewrite, lambda _: None))(world.table())
        wanted = [(0, offset) for offset in range(end) if offset not in gone]
        assert world.seen() == world.counting() == wanted
        listed = [one.file.file_path for one in world.table().scan().plan_files()]
        by_duckdb = duckdb.sql(f"select _offset from read_parquet({listed}) order by 1").fetchall() if listed else []
        by_polars = pl.scan_iceberg(world.table()).select("_offset").sort("_offset").collect().rows()
        assert by_duckdb == by_polars == [(offset,) for _, offset in wanted]


def _ranges(some: set[int]) -> RangeSet:
    return offsets(*((0, one, one + 1) for one in sorted(some)))


def _look_after(world: LatestInMemory, of: random.Random) -> None:
    if isinstance(world, IcebergLatestInMemory):
        table = catalog.opened(where_of(world.opened, world._sink))
        assert table is not None
        of.choice((_expire_all, _rewrite))(table)
        return
    table = DeltaTable(world.base)
    if of.random() < 0.5:
        table.optimize.compact()
    DeltaTable(world.base).vacuum(0, dry_run=False, enforce_retention_duration=False, full=of.random() < 0.5)


@pytest.mark.covers("I9")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [DeltaLatestInMemory, IcebergLatestInMemory])
def test_the_newest_row_of_each_key(kind: Callable[..., LatestInMemory], seed: int, tmp_path: Path) -> None:
    of, end, version = random.Random(seed), 0, 0
    world = kind(tmp_path, code=lambda _, offset: [Change(offset % 7, f"{version}: {offset}")])
    gone = RangeSet()
    for number in range(STEPS):
        end += of.randrange(1, 6)
        world.ends((0, end))
        world.ingest(f"run {number}")
        start = of.randrange(end)
        some = offsets((0, start, min(start + 3, end))) - gone
        match of.choice(("replay", "erase", "compact", "nothing")):
            case "replay" if some:
                version = number
                world.replay(some, f"replay {number}")
            case "erase" if some:
                world.erase(some, f"erasure {number}")
                gone |= some
            case "compact":
                world.compact(f"compaction {number}")
                world.vacuum()
        _look_after(world, of)
        assert world.shown() == world.counting() == world.wanted()
        rows = pa.Table.from_pylist(world.seen())
        number = len(world.wanted())
        assert rows.num_rows == number
        if number:
            assert duckdb.sql("select count(distinct id) from rows").fetchall() == [(number,)]
