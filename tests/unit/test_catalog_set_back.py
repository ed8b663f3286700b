"""A catalog whose database was set back: what its table lacks is missing, and a replay writes it again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.iceberg_in_memory import IcebergInMemory, Killed
from tests.support.streams_in_memory import offsets
from tidemark.commit.protocol import Step
from tidemark.errors import LedgerContradiction, Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.runs import erasing
from tidemark.sinks.iceberg import catalog
from tidemark.sinks.iceberg.reading import parts_that_count
from tidemark.sinks.parquet.files import tables_that_count


class _Back:
    """Takes the catalog's database back to the moment when this was made."""

    def __init__(self, world: IcebergInMemory) -> None:
        self._catalog = world.folder / "catalog.db"
        self._kept = world.folder / "catalog.backup"
        shutil.copy(self._catalog, self._kept)

    def now(self) -> None:
        shutil.copy(self._kept, self._catalog)


@pytest.fixture
def world(tmp_path: Path) -> IcebergInMemory:
    made = IcebergInMemory(tmp_path)
    _ingest(made, 1)
    return made


def _ingest(world: IcebergInMemory, *numbers: int) -> None:
    for number in numbers:
        world.ends((0, 5 * number))
        world.ingest(f"run {number}")


def _missing(world: IcebergInMemory) -> set[int]:
    """The offsets of partition 0 that an audit finds missing: those that count, and are in none of the files that it reads."""
    authority, parts = parts_that_count(world.opened.ledger, "iceberg", world.opened.connections, gone=True)
    read = tables_that_count(parts, authority, {})
    found = {row["_offset"] for table in read for row in table.to_pylist()}
    return {*range(world.positions()[0])} - found


@pytest.mark.covers("I8")
@pytest.mark.parametrize("lost", ["a replay", "a window"])
def test_what_the_table_lacks_is_missing_and_a_replay_writes_it_again(world: IcebergInMemory, lost: str) -> None:
    back = _Back(world)
    if lost == "a replay":
        world.replay(offsets((0, 1, 4)), "fix")
        gone = {1, 2, 3}
    else:
        _ingest(world, 2)
        gone = {*range(5, 10)}
    back.now()
    # Whoever comes next publishes what is its own.
    _ingest(world, 3, 4)
    assert _missing(world) == gone
    with pytest.raises(LedgerContradiction, match="its catalog was set back"):
        world.counting()
    generation = world.replay(offsets((0, min(gone), max(gone) + 1)), "again").attempt.generation
    assert _missing(world) == set()
    assert world.seen() == world.counting() == [(0, one) for one in range(20)]
    rows = world.table().scan(row_filter=f"_offset >= {min(gone)} and _offset <= {max(gone)}").to_arrow()
    assert {*rows.column("_generation").to_pylist()} == {generation}


@pytest.mark.covers("I8")
def test_what_was_erased_and_is_back_is_named_and_goes_again(world: IcebergInMemory) -> None:
    back, erased = _Back(world), offsets((0, 2, 3))
    world.erase(erased)
    back.now()
    _ingest(world, 2)
    assert (0, 2) in world.seen()
    assert (0, 2) not in world.counting()
    (said,) = (one.remains for one in erasing.remaining(world.opened, erased) if one.name == "iceberg")
    assert "1 of its rows or files came late" in said
    erasing.clear_again(world.opened, erased)
    assert (0, 2) not in world.seen()


def test_a_window_that_is_about_to_be_published_is_read_from_its_files(world: IcebergInMemory) -> None:
    world.ends((0, 10))
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    assert world.counting() == [(0, one) for one in range(10)]
    assert _missing(world) == set()


def test_a_window_that_is_published_while_somebody_reads_is_no_missing_one(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table was listed before it was published, and the ledger says right after that it was."""
    world.ends((0, 10))
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    real: Callable[..., Any] = Ledger.is_settled

    def after_its_publication(*given: Any) -> bool:
        monkeypatch.undo()
        world.ends((0, 15))
        world.ingest("run 3")
        return bool(real(*given))

    monkeypatch.setattr(Ledger, "is_settled", after_its_publication)
    assert {*range(10)} <= {offset for _, offset in world.counting()}
    assert _missing(world) == set()


@pytest.mark.covers("I8")
def test_a_version_that_goes_while_it_is_loaded_is_not_the_newest(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version removes the files of old ones: also of the one that the catalog has just named to a reader."""
    real, gone = catalog.SqlTables.load_table, ["00001.metadata.json", "00002.metadata.json"]

    def load(self: Any, identifier: Any) -> Any:
        if gone:
            raise FileNotFoundError(2, "No such file or directory", gone.pop(0))
        return real(self, identifier)

    monkeypatch.setattr(catalog.SqlTables, "load_table", load)
    assert world.counting() == [(0, one) for one in range(5)]
    # A file that is gone for good, and that the catalog still names.
    gone += ["00003.metadata.json"] * 9
    with pytest.raises(Unreachable, match=r"00003\.metadata\.json"):
        world.counting()
    assert len(gone) > 3
