"""After an erasure and a compaction, nobody finds what was erased: not in any file, as a stranger looks for it.

Where a file still has it, the list of what remains names that file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.grep import holding
from tests.support.iceberg_in_memory import IcebergInMemory, Writing, as_the_library_does
from tests.support.latest_tables import Change, DeltaLatestInMemory, IcebergLatestInMemory, LatestInMemory
from tests.support.streams_in_memory import offsets
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg import snapshots
from tidemark.sinks.iceberg.compacting import compact
from tidemark.sinks.iceberg.sink import IcebergAdmin

SECRET = "anna@secret.org"
KINDS = pytest.mark.parametrize("kind", [DeltaLatestInMemory, IcebergLatestInMemory])
# As a row of `IcebergInMemory` has it.
FIRST = 0x5EC2E7_00000000


def _newest(kind: Callable[..., LatestInMemory], folder: Path) -> LatestInMemory:
    """The message with the secret is at offset 5. Offset 12 has its key too."""
    return kind(folder, code=lambda _, offset: [Change(offset % 7, SECRET if offset == 5 else f"m{offset:03d}")])


def _is_named(world: LatestInMemory, erased: RangeSet) -> bool:
    """Whether what remains names each file that has the secret: those of the history by their windows."""
    said = world.admin.remains(world.opened, world.sink.name, erased)
    found = holding(world.folder, SECRET)
    history = any("/_history/" in one for one in found)
    below = Path(world.base.removeprefix("file://")).relative_to(world.folder)
    table = [str(Path(one).relative_to(below)) for one in found if "/_history/" not in one]
    return all(one in said for one in table) and (not history or "files of ingest/1" in said)


@pytest.mark.covers("E65")
@KINDS
@pytest.mark.parametrize("windows", [1, 2, 3], ids=["newest", "overwritten", "overwritten before"])
def test_newest_rows(kind: Callable[..., LatestInMemory], windows: int, tmp_path: Path) -> None:
    world = _newest(kind, tmp_path)
    for number in range(1, windows + 1):
        world.ends((0, 7 * number))
        world.ingest(f"run {number}")
    erased = offsets((0, 5, 6))
    assert holding(tmp_path, SECRET)
    world.erase(erased)
    assert holding(tmp_path, SECRET)
    assert _is_named(world, erased)
    world.compact("compaction 1")
    world.vacuum(24)
    assert holding(tmp_path, SECRET) == set()
    assert world.admin.remains(world.opened, world.sink.name, erased) == ""
    assert world.shown() == world.counting() == world.wanted()


@pytest.fixture
def rows(tmp_path: Path) -> IcebergInMemory:
    world = IcebergInMemory(tmp_path, first=FIRST)
    for number in (1, 2):
        world.ends((0, 5 * number))
        world.ingest(f"run {number}")
    return world


def _remains(world: IcebergInMemory, erased: RangeSet) -> str:
    return IcebergAdmin().remains(world.opened, "iceberg", erased)


def _names_all(world: IcebergInMemory, erased: RangeSet, value: int) -> bool:
    below = Path(world.where.base.removeprefix("file://")).relative_to(world.folder)
    found = [str(Path(one).relative_to(below)) for one in holding(world.folder, value)]
    return all(one in _remains(world, erased) for one in found)


@pytest.mark.covers("E65")
@pytest.mark.parametrize("again", [False, True], ids=["erased", "another window came"])
@pytest.mark.parametrize("before", [False, True], ids=["this version", "the version before"])
def test_rows_of_iceberg(rows: IcebergInMemory, monkeypatch: pytest.MonkeyPatch, *, before: bool, again: bool) -> None:
    """The bounds of a column: the last message of a window has the greatest number."""
    erased = offsets((0, 9, 10))
    with monkeypatch.context() as older:
        if before:
            older.setattr(snapshots, "replace", as_the_library_does)
        rows.erase(erased)
    if again:
        rows.ends((0, 15))
        rows.ingest("run 3")
    assert holding(rows.folder, FIRST + 9)
    assert _names_all(rows, erased, FIRST + 9)
    compact(rows.opened, rows.sink, "run 9", CompactionRequest())
    assert holding(rows.folder, FIRST + 9) == set()
    assert _remains(rows, erased) == ""
    assert rows.seen() == rows.counting()


@pytest.mark.covers("E65")
def test_a_row_that_was_replayed_away_before(rows: IcebergInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Today's code makes no row of the message. Then it is erased."""
    erased = offsets((0, 4, 5))
    with monkeypatch.context() as today:
        today.setattr(Writing, "read", lambda self, *_: setattr(self, "_covers", RangeSet()))
        rows.replay(erased, "fix")
    rows.erase(erased)
    assert holding(rows.folder, FIRST + 4)
    assert _names_all(rows, erased, FIRST + 4)
    compact(rows.opened, rows.sink, "run 9", CompactionRequest())
    assert holding(rows.folder, FIRST + 4) == set()
    assert _remains(rows, erased) == ""


@pytest.mark.covers("E65")
@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_tag_or_a_branch_of_another_program(rows: IcebergInMemory, kind: str) -> None:
    table, newest = rows.table(), rows.table().current_snapshot()
    assert newest is not None
    manage = table.manage_snapshots()
    (manage.create_tag if kind == "tag" else manage.create_branch)(newest.snapshot_id, "year-end").commit()
    erased = offsets((0, 4, 5))
    rows.erase(erased)
    compact(rows.opened, rows.sink, "run 9", CompactionRequest())
    assert holding(rows.folder, FIRST + 4)
    assert _names_all(rows, erased, FIRST + 4)
    assert f"remove the {kind} year-end, and then: tidemark compact orders --sink iceberg" in _remains(rows, erased)
    manage = rows.table().manage_snapshots()
    (manage.remove_tag if kind == "tag" else manage.remove_branch)("year-end").commit()
    compact(rows.opened, rows.sink, "run 10", CompactionRequest())
    assert holding(rows.folder, FIRST + 4) == set()
    assert _remains(rows, erased) == ""


class Killed(BaseException):
    """A process that is killed hears of nothing."""


def _dies(_: object) -> None:
    raise Killed


@pytest.mark.covers("E65")
def test_a_commit_that_died_on_its_way(rows: IcebergInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its manifests say the values of the file that it was about to add; nobody names them."""
    rows.ends((0, 15))
    with monkeypatch.context() as full:
        full.setattr("pyiceberg.table.Transaction.commit_transaction", _dies)
        with pytest.raises(Killed):
            rows.ingest("run 3")
    rows.ingest("run 4")
    erased = offsets((0, 14, 15))
    rows.erase(erased)
    compact(rows.opened, rows.sink, "run 9", CompactionRequest())
    left = holding(rows.folder, FIRST + 14)
    assert len(left) == 1
    assert _names_all(rows, erased, FIRST + 14)
    assert "died on the way into the table holds it for a day" in _remains(rows, erased)
