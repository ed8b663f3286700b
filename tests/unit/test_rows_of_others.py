"""Rows that another program appends to a table: the stream goes on, no reader of Tidemark takes them, an audit counts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support.iceberg_in_memory import IcebergInMemory
from tests.support.latest_tables import Change, DeltaLatestInMemory, IcebergLatestInMemory, LatestInMemory
from tests.support.streams_in_memory import offsets
from tidemark.audit.report import PlaceReport
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg import catalog
from tidemark.sinks.iceberg.compacting import compact
from tidemark.sinks.iceberg.latest.compacting import where_of
from tidemark.sinks.iceberg.reading import rows_of_others
from tidemark.sinks.latest.sink import LatestRowsAdmin
from tidemark.spark.audit.deleted_messages import BlockComparison
from tidemark.spark.audit.differences import Audit, AuditedPlace

THEIRS = 77


@pytest.mark.covers("L6")
@pytest.mark.parametrize("merged", [False, True], ids=["as it was appended", "after a compaction"])
def test_rows_beside_those_of_windows(tmp_path: Path, *, merged: bool) -> None:
    world = IcebergInMemory(tmp_path)
    world.ends((0, 5))
    world.ingest("run 1")
    world.ends((0, 10))
    world.ingest("run 2")
    ledger = world.opened.ledger
    assert rows_of_others(ledger, "iceberg", world.where) == 0
    # Of the fields alone; with columns like ours of a generation that nobody has drawn; and of none.
    world.table().append(pa.table({"id": pa.array([THEIRS] * 2, pa.int64())}))
    ours = world.table().scan(row_filter="_offset = 1").to_arrow()
    number = ours.schema.get_field_index("_generation")
    for generation in (5, None):
        column = pa.array([generation], pa.int64())
        world.table().append(ours.set_column(number, ours.schema.field(number).with_nullable(True), column))
    if merged:
        compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert rows_of_others(ledger, "iceberg", world.where) == 4
    for number in (3, 4):
        world.ends((0, 5 * number))
        world.ingest(f"run {number}")
    world.replay(offsets((0, 3, 12)), "replay")
    world.erase(offsets((0, 7, 8)))
    assert world.counting() == [(0, one) for one in range(20) if one != 7]
    assert rows_of_others(ledger, "iceberg", world.where) == 4


def _append(world: LatestInMemory) -> None:
    row = pa.table({"id": pa.array([THEIRS], pa.int64()), "value": ["theirs"], "_bucket": pa.array([None], pa.int32())})
    if isinstance(world, IcebergLatestInMemory):
        table = catalog.opened(where_of(world.opened, world._sink))
        assert table is not None
        table.append(row)
    else:
        write_deltalake(world.base, row, mode="append", schema_mode="merge")


@pytest.mark.covers("L6")
@pytest.mark.parametrize("kind", [DeltaLatestInMemory, IcebergLatestInMemory])
def test_rows_beside_the_newest_of_each_key(kind: Callable[..., LatestInMemory], tmp_path: Path) -> None:
    world = kind(tmp_path, code=lambda _, offset: [Change(offset % 7, f"m{offset}")])
    world.ends((0, 10))
    world.ingest("run 1")
    _append(world)
    world.ends((0, 20))
    world.ingest("run 2")
    world.replay(offsets((0, 0, 3)), "replay")
    world.erase(offsets((0, 5, 6)))
    world.compact("run 9")
    world.vacuum(1)
    assert world.counting() == world.wanted()
    assert isinstance(world.admin, LatestRowsAdmin)
    version = world.admin.table(world.opened.connections, world.admin.table_place(world.sink, world.base)).opened()
    assert version is not None
    assert version.outside == 1
    assert THEIRS in world.shown()


@pytest.mark.covers("L6")
def test_an_audit_of_everything_counts_them_as_debris() -> None:
    report = PlaceReport(name="rows", expected=5, found=5, missing=0, different=0, extra=0, twice=0, debris=1)
    audited = AuditedPlace(report, RangeSet(), BlockComparison(RangeSet(), (), RangeSet()))
    anything: Any = None
    audit = Audit(anything, anything, anything, RangeSet(), (), RangeSet(), anything)
    assert audit.beside(audited, lambda: 4).report.debris == 5
    # A part of the offsets says nothing of the whole place.
    assert replace(audit, some=RangeSet()).beside(audited, lambda: 4) == audited
