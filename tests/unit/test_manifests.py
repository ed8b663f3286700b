"""The metadata of Iceberg tables stays as large as what a table has, however many windows have changed it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

from tests.support.iceberg_in_memory import IcebergInMemory, as_the_library_does
from tests.support.latest_tables import BUCKETS, Change, IcebergLatestInMemory
from tests.support.streams_in_memory import offsets
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg import catalog, snapshots
from tidemark.sinks.iceberg.compacting import IcebergCompaction, compact
from tidemark.sinks.iceberg.latest.compacting import where_of


def _table(world: IcebergLatestInMemory) -> Table:
    found = catalog.opened(where_of(world.opened, world._sink))
    assert found is not None
    return found


def _manifests(table: Table) -> tuple[int, int]:
    """How many manifests the newest snapshot names, and how many of them name no file that is there."""
    newest = table.current_snapshot()
    assert newest is not None
    manifests = newest.manifests(table.io)
    return len(manifests), sum(not snapshots.has_files(one) for one in manifests)


@pytest.fixture
def newest(tmp_path: Path) -> IcebergLatestInMemory:
    return IcebergLatestInMemory(tmp_path, code=lambda _, offset: [Change(offset % 12, f"m{offset}")])


def _ingest(world: IcebergLatestInMemory | IcebergInMemory, windows: int, first: int = 1) -> None:
    for number in range(first, first + windows):
        world.ends((0, 4 * number))
        world.ingest(f"run {number}")


@pytest.mark.covers("I7")
def test_windows_of_newest_rows_leave_no_manifests(newest: IcebergLatestInMemory) -> None:
    _ingest(newest, 12)
    manifests, empty = _manifests(_table(newest))
    # One of what the last window has taken out, by which other programs follow the changes.
    assert empty <= 1
    assert manifests <= BUCKETS + 1
    assert newest.shown() == newest.wanted()
    # What was merged before it was committed is no file of its own.
    table = _table(newest)
    named = {one.manifest_path for shot in table.snapshots() for one in shot.manifests(table.io)}
    metadata = Path(newest.base.removeprefix("file://")) / "metadata"
    assert {f"file://{one}" for one in metadata.glob("*-m*.avro")} == named


@pytest.mark.covers("I7")
def test_replays_merge_manifests_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_MANIFESTS", 4)
    world = IcebergInMemory(tmp_path)
    _ingest(world, 3)
    for number in range(6):
        world.replay(offsets((0, 2 * number, 2 * number + 1)), f"replay {number}")
    manifests, empty = _manifests(world.table())
    assert manifests <= 4
    assert empty <= 1
    assert world.seen() == world.counting() == [(0, one) for one in range(12)]


@pytest.mark.covers("I7")
def test_a_compaction_mends_tables_of_before(newest: IcebergLatestInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(snapshots, "replace", as_the_library_does)
        _ingest(newest, 6)
    assert _manifests(_table(newest))[1] >= 5
    assert any("manifest" in one.windows[0] for one in newest.planned())
    newest.vacuum()
    assert _manifests(_table(newest)) == (1, 0)
    assert newest.shown() == newest.wanted()
    # Nothing is mended twice.
    version = _table(newest).metadata_location
    newest.vacuum()
    assert _table(newest).metadata_location == version
    assert not any("manifest" in one.windows[0] for one in newest.planned())
    _ingest(newest, 2, first=7)
    assert newest.shown() == newest.wanted()


def test_changes_can_be_followed(tmp_path: Path) -> None:
    """The newest snapshot names what it has taken out; it does not say what the values were."""
    world = IcebergInMemory(tmp_path)
    _ingest(world, 2)
    world.replay(offsets((0, 1, 2)), "replay")
    table = world.table()
    newest = table.current_snapshot()
    assert newest is not None
    entries = [
        entry
        for one in newest.manifests(table.io)
        for entry in one.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.DELETED
    ]
    assert len(entries) == 1
    assert not snapshots.has_bounds(entries[0].data_file)
    assert entries[0].snapshot_id == newest.snapshot_id
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert IcebergCompaction().planned(world.opened, world.sink, CompactionRequest()) == []
    assert world.seen() == world.counting()
