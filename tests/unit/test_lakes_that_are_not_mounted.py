"""A lake whose disk is not mounted never reads as deleted data, and nobody begins it anew: its owner's mark is not there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest
from msgspec import structs
from pyiceberg.table import Table, Transaction

from tests.support.delta_in_memory import DeltaInMemory
from tests.support.erasures import ANN, REASON
from tests.support.iceberg_in_memory import IcebergInMemory, Killed
from tests.support.lakes import Lake
from tests.support.streams_in_memory import offsets
from tidemark.commit.protocol import Step
from tidemark.errors import Unreachable
from tidemark.ledger.erasures import erased
from tidemark.ledger.records import INGEST, Record, SinkReceipt
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs import erasing
from tidemark.runs.windows import ingest
from tidemark.settings.parts import Name
from tidemark.sinks.contract import CompactionRequest, SinkSettings
from tidemark.sinks.dead_letters.delta.settings import DeltaDeadLetters
from tidemark.sinks.delta import publishing as delta_publishing
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.delta.sink import DeltaAdmin
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import located
from tidemark.sinks.iceberg.settings import IcebergSink, place_of
from tidemark.sinks.mounts import FolderMarks, check_mounted
from tidemark.sinks.parquet import files, steps
from tidemark.sinks.parquet.folders import OWNER_FILE
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.sinks.parquet.settings import FolderSettings, ParquetSink
from tidemark.sinks.parquet.sink import ParquetAdmin
from tidemark.sinks.parquet.steps import Listener
from tidemark.sinks.reading import parquet_rows
from tidemark.sinks.versions import versions_of

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
    "reads": lambda lake, _: parquet_rows(lake.stream.opened.ledger, "lake", 5),
    "looks at a message": lambda lake, record: ParquetAdmin().rows_at(
        lake.stream.opened,
        _settings(lake),
        AT,
        record,
    ),
    "says what remains": lambda lake, _: lake.remains(),
    "erases": _erases,
    "sweeps": lambda lake, record: ParquetAdmin().sweep(
        lake.stream.opened.connections, {"base": lake.base}, record, RangeSet()
    ),
    "sweeps a table": lambda lake, record: DeltaAdmin().sweep(
        lake.stream.opened.connections, {"base": lake.base}, record, RangeSet()
    ),
    "looks at a message in a table": lambda lake, record: DeltaAdmin().rows_at(
        lake.stream.opened, DeltaSink(name="lake", type="delta", folder="lake"), AT, record
    ),
    "writes": lambda lake, _: check_mounted(
        lake.stream.opened.ledger, lake.stream.opened.connections, lake.stream.opened.stream.sinks
    ),
    "writes a table": lambda lake, _: check_mounted(
        lake.stream.opened.ledger,
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
    monkeypatch.setattr("tidemark.sinks.hbase.sink.HBaseAdmin.erase", lambda *_: None)
    monkeypatch.setattr("tidemark.sinks.hbase.sink.HBaseAdmin.reach", lambda *_: None)
    lake = Lake(tmp_path)
    lake.ingest()
    ledger = lake.stream.opened.ledger
    (record,) = (one.record for one in ledger.committed())
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
    assert erased(ledger.committed()) == RangeSet()
    assert ledger.register()[1].lanes.keys() == {INGEST}  # type: ignore[index]
    if there:
        mounted.rmdir()
    away.rename(mounted)
    assert len(parquet_rows(ledger, "lake", 5)) == 5


class OwnSink(FolderSettings):
    """A sink of files of another package, which marks nothing."""

    type: Literal["own"]
    name: Name = "own"


class OtherSink(SinkSettings):
    """One whose settings derive from nothing of files."""

    type: Literal["other"]

    @property
    def connection(self) -> str:
        return "lake_default"

    file_system = connection

    @property
    def own_folder(self) -> str:
        return DISK


DISK = "disk/results"
KINDS: dict[str, SinkSettings] = {
    "parquet": ParquetSink(name="lake", type="parquet", folder=DISK),
    "delta": DeltaSink(name="lake", type="delta", folder=DISK),
    "iceberg": IcebergSink(name="lake", type="iceberg", folder=DISK, table="lake.other"),
    "own": OwnSink(name="lake", type="own", folder=DISK),
    "other": OtherSink(name="lake", type="other"),
    "dead letters": DeltaDeadLetters(type="delta", folder=DISK).sink,
}


class Disk:
    """A job that has begun to write to a folder on a disk, which goes away and comes back."""

    def __init__(self, folder: Path, settings: SinkSettings) -> None:
        self.world = IcebergInMemory(folder)
        self.world.ends((0, 5))
        self.world.ingest()
        self.settings, self.opened = settings, self.world.opened
        self.base = OwnSink(name="lake", type="own", folder=DISK).base(self.opened.connections)
        self.mounted, self.away, self.below = folder / "disk", folder / "not mounted", folder / "below"
        self.mounted.mkdir()

    def begins(self) -> FolderMarks:
        return FolderMarks(self.opened.ledger, self.opened.connections, [self.settings])

    def prepare(self) -> None:
        fields = self.opened.fields
        match self.settings:
            case DeltaSink():
                delta_table.prepare(self.base, delta_table.columns(fields), "orders", "ledger")
            case IcebergSink():
                where = located(self.opened.connections, place_of(self.settings, self.base))
                iceberg_table.prepare(where, fields, "orders", "ledger")
            case ParquetSink():
                files.own(self.base, "orders", "ledger", "lake")
            case _:
                Path(self.base.removeprefix("file://")).mkdir(exist_ok=True)

    def goes(self) -> None:
        self.mounted.rename(self.away)
        self.mounted.mkdir()

    def is_back(self) -> None:
        self.mounted.rename(self.below)
        self.away.rename(self.mounted)

    def writes(self) -> SinkReceipt:
        folder = f"{self.base}/data/generation=7"
        Path(folder.removeprefix("file://")).mkdir(parents=True)
        place = {"base": self.base, "folder": folder}
        return SinkReceipt(name="lake", type=self.settings.type, place=place)


@pytest.mark.slow
@pytest.mark.covers("N76")
@pytest.mark.parametrize("again", [False, True], ids=["away", "mounted again"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_to_a_mount_point_is_never_committed(tmp_path: Path, kind: str, again: bool) -> None:
    """The disk went away under a writer: what it wrote was there, and read back, until the disk was there again."""
    disk = Disk(tmp_path, KINDS[kind])
    mounts = disk.begins()
    with mounts.preparing():
        disk.prepare()
    mounts.check([disk.writes()], ["lake"])
    disk.goes()
    place = disk.writes()
    if again:
        disk.is_back()
        (tmp_path / "disk/results/data/generation=7").rmdir()
    with pytest.raises(Unreachable, match=r"disk may|not there|No such file"):
        mounts.check([place], ["lake"])


@pytest.mark.covers("N76")
@pytest.mark.parametrize("kind", KINDS)
def test_a_mount_point_that_is_prepared_in_the_place_of_a_folder_is_found(tmp_path: Path, kind: str) -> None:
    """Whoever prepares it would mark it, as one that nobody has written."""
    disk = Disk(tmp_path, KINDS[kind])
    mounts = disk.begins()
    with mounts.preparing():
        disk.prepare()
    mounts = disk.begins()
    disk.goes()
    with pytest.raises(Unreachable):
        _prepares(disk, mounts)
    assert not [*disk.mounted.rglob("*.json")], "a later job would take this mark for that of the folder"
    disk.is_back()
    with mounts.preparing():
        pass


def _prepares(disk: Disk, mounts: FolderMarks) -> None:
    with mounts.preparing():
        disk.prepare()


@pytest.mark.covers("N76")
def test_an_own_sink_without_a_mark_is_known_by_its_newest_folder(tmp_path: Path) -> None:
    """One that was there before a mark was asked for goes on; one whose disk is away does not begin anew."""
    lake = Lake(tmp_path)
    lake.ingest()
    (tmp_path / "lake" / OWNER_FILE).unlink()
    opened, own = lake.stream.opened, OwnSink(name="lake", type="own", folder="lake")
    mounts = FolderMarks(opened.ledger, opened.connections, [own])
    with mounts.preparing():
        pass
    assert (tmp_path / "lake" / OWNER_FILE).exists()
    (tmp_path / "lake").rename(tmp_path / "not mounted")
    (tmp_path / "lake").mkdir()
    with pytest.raises(Unreachable, match=r"has no mark of its owner, and .* is not there, which has results"):
        FolderMarks(opened.ledger, opened.connections, [own])


@pytest.mark.covers("I1")
def test_no_snapshot_of_iceberg_goes_to_a_mount_point(tmp_path: Path) -> None:
    """Its catalog is elsewhere, and would name it for ever."""
    world = IcebergInMemory(tmp_path)
    world.ends((0, 5))
    world.ingest()
    before = world.seen()
    mounted, away = tmp_path / "orders_iceberg", tmp_path / "not mounted"

    def goes(table: Table, transaction: Transaction, made: list[str]) -> bool:
        mounted.rename(away)
        mounted.mkdir()
        transaction.set_properties({"a": "b"})
        return True

    with pytest.raises(Unreachable):
        iceberg_table.change(world.where, goes)
    assert not any(mounted.rglob("*"))
    mounted.rmdir()
    away.rename(mounted)
    assert world.seen() == before
    world.ends((0, 9))
    world.ingest("run 2")
    assert len(world.seen()) == 9


@pytest.mark.covers("I1")
def test_no_window_is_published_without_its_files(tmp_path: Path) -> None:
    world = IcebergInMemory(tmp_path)
    world.ends((0, 5))
    with pytest.raises(Killed):
        world.ingest(until=Step.COMMITTED)
    data, away = tmp_path / "orders_iceberg/data", tmp_path / "away"
    data.rename(away)
    with pytest.raises(Unreachable, match="is not there; its disk may have been unmounted just now"):
        world.ingest("run 2")
    away.rename(data)
    world.ingest("run 3")
    assert len(world.seen()) == 5


@pytest.mark.covers("N76")
@pytest.mark.parametrize("kind", [DeltaInMemory, IcebergInMemory])
def test_what_is_published_as_soon_as_it_is_written_is_there(tmp_path: Path, kind: type[IcebergInMemory]) -> None:
    """With `at_most_once`, a window is committed before it is written, and its record says nothing of its rows."""
    world = kind(tmp_path)
    world.ends((0, 5))
    with pytest.raises(Killed):
        world.ingest(until=Step.COMMITTED)
    ledger = world.opened.ledger
    (record,) = (structs.replace(one.record, receipt=None) for one in ledger.committed())
    folder = Path(world.receipt(INGEST, 1, record.attempt.generation).place["folder"].removeprefix("file://"))
    folder.rename(tmp_path / "away")
    name = f"file://{folder}"

    def publish() -> bool:
        if isinstance(world, DeltaInMemory):
            return delta_publishing.publish(ledger, world.base, "delta", record, name, wrote=True)
        return iceberg_table.publish(world.where, versions_of(ledger), record, name, RangeSet(), wrote=True)

    with pytest.raises(Unreachable, match="is not there; its disk may have been unmounted just now"):
        publish()
    (tmp_path / "away").rename(folder)
    assert publish()
    assert len(world.seen()) == 5


@pytest.mark.covers("N76")
def test_what_others_have_read_again_before_it_was_published_is_no_disk_that_is_away(tmp_path: Path) -> None:
    """With `at_most_once`: of a window that was read again as a whole, no file comes into the table."""
    world = DeltaInMemory(tmp_path)
    world.ends((0, 5))
    world.ingest()
    world.replay(offsets((0, 0, 5)), "run 2")
    opened = world.opened
    mounts = FolderMarks(opened.ledger, opened.connections, opened.stream.sinks)
    with mounts.preparing():
        pass
    ingested, replayed = (place for one in opened.ledger.committed() for place in one.record.places)
    mounts.check([ingested, replayed], ["delta"])
    generation = replayed.place["folder"].rpartition("=")[2]
    other = replayed.place["folder"].removesuffix(generation) + str(int(generation) + 1)
    with pytest.raises(Unreachable, match="was written, and is not there"):
        mounts.check([structs.replace(replayed, place={**replayed.place, "folder": other})], ["delta"])


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
    assert len(parquet_rows(lake.stream.opened.ledger, "lake", 5)) == 5


@pytest.mark.covers("N76")
def test_a_folder_that_nobody_has_written_is_no_lake_that_is_away(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    opened = lake.stream.opened
    check_mounted(opened.ledger, opened.connections, opened.stream.sinks)
    lake.ingest()
    check_mounted(opened.ledger, opened.connections, opened.stream.sinks)
