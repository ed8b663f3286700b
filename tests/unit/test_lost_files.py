"""Files that a table names and that somebody removed: they stop no replay and no erasure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.delta_in_memory import DeltaInMemory
from tests.support.erasures import ANN, REASON
from tests.support.iceberg_in_memory import IcebergInMemory
from tests.support.streams_in_memory import at, offsets
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing
from tidemark.sinks.parquet import files


def named(world: IcebergInMemory) -> list[Path]:
    """The files that the newest version names."""
    if isinstance(world, DeltaInMemory):
        files = world.foreign().file_uris()
    else:
        files = [task.file.file_path for task in world.table().scan().plan_files()]
    return [Path(one.removeprefix("file://")) for one in files]


def with_offset(world: IcebergInMemory, offset: int) -> Path:
    (found,) = (one for one in named(world) if offset in pq.read_table(one, partitioning=None)["_offset"].to_pylist())
    return found


def of(*numbers: range) -> list[tuple[int, int]]:
    return [(0, one) for some in numbers for one in some]


def erase(world: IcebergInMemory, erased: RangeSet) -> None:
    lane = erasing.open_erasure(world.opened, "e", erasing.choose(world.opened, erased), REASON, ANN)
    erasing.erase(world.opened, lane, "e")


@pytest.mark.covers("L5")
@pytest.mark.parametrize("kind", [DeltaInMemory, IcebergInMemory])
def test_a_file_that_somebody_removed_stops_nothing(kind: type[IcebergInMemory], tmp_path: Path) -> None:
    world = kind(tmp_path)
    for end in (10, 20, 30):
        world.ends((0, end))
        world.ingest(f"run {end}")
    removed = with_offset(world, 10)
    removed.unlink()
    # Of its other rows, which are lost, nobody is to think that they were never there.
    world.replay(offsets((0, 10, 15)), "run 40")
    assert removed in named(world)
    erase(world, offsets((0, 16, 17)))
    assert removed in named(world)
    # Once nothing in it counts any more, others can read the table again.
    world.replay(offsets((0, 15, 16), (0, 17, 20)), "run 42")
    assert removed not in named(world)
    assert world.seen() == world.counting() == of(range(16), range(17, 30))


@pytest.mark.covers("L5")
@pytest.mark.parametrize("kind", [DeltaInMemory, IcebergInMemory])
def test_a_whole_window_that_is_lost_is_written_again(kind: type[IcebergInMemory], tmp_path: Path) -> None:
    world = kind(tmp_path)
    for end in (10, 20):
        world.ends((0, end))
        world.ingest(f"run {end}")
    with_offset(world, 10).unlink()
    world.replay(offsets((0, 10, 20)), "run 40")
    assert world.seen() == world.counting() == of(range(20))


@pytest.mark.covers("L5")
def test_a_file_that_another_compaction_removes_meanwhile_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, and is gone when it is opened: those beside it are looked through all the same."""
    columns = {"_topic": "orders", "_incarnation": at(0).incarnation, "_partition": 0}
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    really_have = files._have

    def removed(*there: Any) -> bool:
        paths[0].unlink(missing_ok=True)
        return really_have(*there)

    monkeypatch.setattr(files, "_have", removed)
    for folder, held in ((tmp_path, [False, True, True]), (paths[0], [False])):
        for number, path in enumerate(paths):
            pq.write_table(pa.Table.from_pylist([{**columns, "_offset": number}]), path)
        for number, expected in enumerate(held):
            assert files.holds(f"file://{folder}", offsets((0, number, number + 1))) is expected
