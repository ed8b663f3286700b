"""A lake whose disk is not mounted never reads as deleted data, and nobody begins it anew: its owner's mark is not there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.lakes import Lake
from tests.support.streams_in_memory import offsets
from tests.support.sums_in_memory import ANN, REASON
from tidemark.errors import Unreachable
from tidemark.ledger.erased import erased
from tidemark.ledger.records import INGEST, Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs import erasing
from tidemark.runs.windows import ingest
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.delta.plain import PlainDelta
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.mounted import check_mounted, check_stored
from tidemark.sinks.parquet import steps
from tidemark.sinks.parquet.folders import OWNER_FILE
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.sinks.parquet.plain import PlainParquet
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark.sinks.parquet.steps import Listener
from tidemark.sinks.reading import parquet_rows

AT = Coordinate(TopicPartition("orders", 0, 1), 5)
Act = Callable[[Lake, Record], object]


def _settings(lake: Lake) -> ParquetSink:
    (found,) = lake.stream.opened.stream.sinks
    assert isinstance(found, ParquetSink)
    return found


def _erases(lake: Lake, _: Record) -> None:
    opened = lake.stream.opened
    erasing.open_erasure(opened, "e", erasing.choose(opened, offsets((0, 5, 6))), REASON, ANN)


ACTS: dict[str, Act] = {
    "reads": lambda lake, _: parquet_rows(lake.stream.opened.book, "lake", 5),
    "looks at a message": lambda lake, record: PlainParquet().rows_at(
        lake.stream.opened,
        _settings(lake),
        AT,
        record,
    ),
    "says what remains": lambda lake, _: lake.remains(),
    "erases": _erases,
    "sweeps": lambda lake, record: PlainParquet().sweep(
        lake.stream.opened.connections, {"base": lake.base}, record, RangeSet()
    ),
    "sweeps a table": lambda lake, record: PlainDelta().sweep(
        lake.stream.opened.connections, {"base": lake.base}, record, RangeSet()
    ),
    "looks at a message in a table": lambda lake, record: PlainDelta().rows_at(
        lake.stream.opened, DeltaSink(name="lake", type="delta", folder="lake"), AT, record
    ),
    "writes": lambda lake, _: check_mounted(
        lake.stream.opened.book, lake.stream.opened.connections, lake.stream.opened.stream.sinks
    ),
    "writes a table": lambda lake, _: check_mounted(
        lake.stream.opened.book,
        lake.stream.opened.connections,
        [DeltaSink(name="lake", type="delta", folder="lake")],
    ),
    "compacts": lambda lake, _: steps.compact(
        lake.stream.opened,
        _settings(lake),
        "run",
        CompactionRequest(None, None, again=False),
        lambda *_: 0,
    ),
}


@pytest.mark.covers("N76")
@pytest.mark.parametrize("there", [False, True], ids=["no folder", "an empty mount point"])
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_nothing_is_taken_for_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Act, there: bool) -> None:
    monkeypatch.setattr("tidemark.sinks.hbase.plain.PlainHBase.erase", lambda *_: None)
    monkeypatch.setattr("tidemark.sinks.hbase.plain.PlainHBase.reach", lambda *_: None)
    lake = Lake(tmp_path)
    lake.ingest()
    book = lake.stream.opened.book
    (record,) = (one.record for one in book.committed())
    mounted, away = tmp_path / "lake", tmp_path / "not mounted"
    mounted.rename(away)
    if there:
        mounted.mkdir()
    what = "has no mark of its owner" if there else "is not there"
    with pytest.raises(
        Unreachable, match=rf"lake {what}, and windows have their results in it; its disk may not be mounted"
    ):
        act(lake, record)
    assert not any(mounted.rglob("*")), "it was begun anew"
    assert erased(book.committed()) == RangeSet()
    assert book.register()[1].lanes.keys() == {INGEST}  # type: ignore[index]
    if there:
        mounted.rmdir()
    away.rename(mounted)
    assert len(parquet_rows(book, "lake", 5)) == 5


@pytest.mark.covers("N76")
@pytest.mark.parametrize("again", [False, True], ids=["away", "mounted again"])
def test_what_was_written_to_a_mount_point_is_never_committed(tmp_path: Path, again: bool) -> None:
    """The disk went away under a writer: what it wrote was there, and read back, until the disk was there again."""
    lake = Lake(tmp_path)
    lake.ingest()
    (record,) = (one.record for one in lake.stream.opened.book.committed())
    check_stored(record.places)
    mounted, away = tmp_path / "lake", tmp_path / "not mounted"
    mounted.rename(away)
    place = lake.write(offsets((0, 5, 8)), INGEST, 2, record.attempt.generation + 1)
    # An attempt has put its mark before.
    (mounted / OWNER_FILE).unlink()
    if again:
        mounted.rename(tmp_path / "below")
        away.rename(mounted)
    what = "was written, and is not there" if again else "has no mark of its owner"
    with pytest.raises(Unreachable, match=f"{what}: its disk may have been mounted or unmounted meanwhile"):
        check_stored([place])


@pytest.mark.covers("N76")
def test_a_compaction_replaces_nothing_by_what_was_written_to_a_mount_point(tmp_path: Path) -> None:
    """What it replaces is removed afterwards."""
    lake = Lake(tmp_path)
    lake.ingest()
    lake.stream.ends((0, 20))
    assert ingest.plan_ingest(lake.stream.opened, "run 2") is not None
    lake.work(INGEST, "run 2")
    mounted, away = tmp_path / "lake", tmp_path / "not mounted"

    def rewrite(group: Sequence[FolderPart], folder: str, heard: Listener) -> int:
        mounted.rename(away)
        shutil.copytree(group[0].folder.removeprefix("file://").replace("/lake/", "/not mounted/"), folder[7:])
        return 5

    with pytest.raises(Unreachable, match="has no mark of its owner"):
        steps.compact(lake.stream.opened, _settings(lake), "run", CompactionRequest(None, None, again=True), rewrite)
    shutil.rmtree(mounted)
    away.rename(mounted)
    assert len(parquet_rows(lake.stream.opened.book, "lake", 5)) == 5


@pytest.mark.covers("N76")
def test_a_folder_that_nobody_has_written_is_no_lake_that_is_away(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    opened = lake.stream.opened
    check_mounted(opened.book, opened.connections, opened.stream.sinks)
    lake.ingest()
    check_mounted(opened.book, opened.connections, opened.stream.sinks)
