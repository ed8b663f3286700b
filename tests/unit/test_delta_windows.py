"""What others see of a Delta table while windows are stored, committed, published, read again, forgotten and erased."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import rmtree
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support import delta_in_memory
from tests.support.delta_in_memory import DeltaInMemory, add
from tests.support.erasures import ANN, REASON
from tests.support.iceberg_in_memory import Killed, Writing
from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import offsets
from tidemark.clients.lake import beside
from tidemark.commit.protocol import Fence, Listener, Step
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, Attempt
from tidemark.ledger.recovery.backup import back_up, restore
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing, steering
from tidemark.sinks.delta import changing, publishing, remains
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.changing import FileChange
from tidemark.sinks.delta.publishing import _Publication, publish


@pytest.fixture
def stream(tmp_path: Path) -> DeltaInMemory:
    return DeltaInMemory(tmp_path)


def of(*numbers: range) -> list[tuple[int, int]]:
    return sorted((0, one) for some in numbers for one in some)


@pytest.mark.covers("I1")
def test_others_see_a_window_once_it_is_committed(stream: DeltaInMemory) -> None:
    stream.ends((0, 5))
    for step in (Step.SINK_STORED, Step.VERIFIED):
        with pytest.raises(Killed):
            stream.ingest(until=step)
        assert stream.seen() == []
    assert len(stream.left()) == 2
    with pytest.raises(Killed):
        stream.ingest(until=Step.COMMITTED)
    # Not yet: but Tidemark's reader has it.
    assert (stream.seen(), stream.counting()) == ([], of(range(5)))
    stream.ends((0, 8))
    stream.ingest()
    assert stream.seen() == stream.counting() == of(range(8))
    assert stream.left() == []
    # Nor folders, of which there would be one more with each window.
    assert [*Path(beside(stream.base).removeprefix("file://")).glob("lane=*/seq=*")] == []


@pytest.mark.covers("I2")
def test_a_replay_is_one_step(stream: DeltaInMemory) -> None:
    stream.ends((0, 10))
    stream.ingest()
    before = stream.foreign().version()
    with pytest.raises(Killed):
        stream.replay(offsets((0, 3, 7)), "run 2", until=Step.COMMITTED)
    assert stream.seen() == of(range(10))
    stream.ends((0, 12))
    stream.ingest("run 3")
    assert stream.seen() == stream.counting() == of(range(12))
    assert stream.foreign().version() == before + 2


@pytest.mark.covers("I2")
def test_a_restored_ledger_shows_each_row_once(stream: DeltaInMemory, tmp_path: Path) -> None:
    stream.ends((0, 3))
    stream.ingest()
    back_up(stream.opened.ledger, tmp_path / "nightly")
    for end in (6, 9):
        stream.now += 5_000
        stream.ends((0, end))
        stream.ingest(f"run {end}")
    stream.replay(offsets((0, 1, 2)), "run 10")
    stream.now += 5_000
    restored = Ledger(MemoryStore(), "orders", clock=lambda: stream.now)
    restore(restored, tmp_path / "nightly")
    object.__setattr__(stream.opened, "ledger", restored)
    stream.ends((0, 5))
    stream.now += 5_000
    stream.ingest("run 11")
    seen = stream.seen()
    assert len(seen) == len({*seen})
    stream.ends((0, 10))
    stream.now += 5_000
    stream.ingest("run 12")
    seen = stream.seen()
    assert len(seen) == len({*seen})
    # The replay that is forgotten had taken out the row of offset 1, and its own counts no more: an audit misses it.
    assert {*of(range(10))} - {*seen} == {(0, 1)}


def written_into_the_table(stream: DeltaInMemory, until: Step) -> None:
    """An attempt of an earlier version of Tidemark: it wrote into the table itself, before the commit."""
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(delta_in_memory, "attempt_folder", lambda base, *_: delta_table.partition_folder(base, _[2]))
        real = Writing.store

        def store(self: Writing, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
            real(self, attempt, fence, lambda step: None)
            add(stream.base, f"orders/{self.lane}", attempt.generation, f"{self.lane}/{self.seq}")
            on_step(Step.SINK_STORED)

        earlier.setattr(Writing, "store", store)
        earlier.setattr(publishing, "publish", lambda *_: True)
        with pytest.raises(Killed):
            stream.ingest(until=until)


@pytest.mark.covers("I1")
@pytest.mark.parametrize("until", [Step.SINK_STORED, Step.COMMITTED, Step.SETTLED])
def test_a_table_of_an_earlier_version_goes_on(stream: DeltaInMemory, until: Step) -> None:
    """Whatever it has of attempts that died goes, with the first window that is published."""
    stream.ends((0, 4))
    stream.ingest()
    rmtree(stream.base.removeprefix("file://"))
    object.__setattr__(stream.opened, "ledger", Ledger(MemoryStore(), "orders", clock=lambda: stream.now))
    for end in (4, 7):
        stream.ends((0, end))
        written_into_the_table(stream, Step.SETTLED)
    stream.ends((0, 9))
    for _ in range(2):
        written_into_the_table(stream, Step.SINK_STORED)
    assert len(stream.seen()) == 7 + 4
    if until != Step.SINK_STORED:
        written_into_the_table(stream, until)
    assert stream.counting() == of(range(7 if until == Step.SINK_STORED else 9))
    stream.ends((0, 11))
    stream.ingest()
    # A window that is pending is read first.
    assert stream.seen() == stream.counting() == of(range(9 if until == Step.SINK_STORED else 11))
    version = stream.foreign().version()
    stream.ends((0, 12))
    stream.ingest()
    # Once.
    assert stream.foreign().version() == version + 1
    stream.replay(offsets((0, 1, 8)), "again")
    assert stream.seen() == stream.counting() == of(range(12))


@pytest.mark.covers("I1")
def test_a_vacuum_just_before_a_window_is_named_loses_nothing(
    stream: DeltaInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another program, that keeps nothing."""
    stream.ends((0, 5))
    stream.ingest()
    real = changing._commit

    def vacuumed(table: DeltaTable, change: FileChange) -> None:
        # As Delta's own, which makes no version, unlike that of delta-rs.
        gone = DeltaTable(stream.base).vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
        assert gone
        for name in gone:
            Path(f"{stream.base.removeprefix('file://')}/{name}").unlink()
        real(table, change)

    monkeypatch.setattr(changing, "_commit", vacuumed)
    stream.ends((0, 8))
    stream.ingest()
    assert stream.seen() == stream.counting() == of(range(8))


@pytest.mark.covers("I2")
def test_another_program_merges_files_between_two_publications(
    stream: DeltaInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay begins again with the files that it finds then, and has left no copies behind."""
    for end in (3, 6):
        stream.ends((0, end))
        stream.ingest()
    real, tries = changing._commit, list[int]()

    def optimized(table: DeltaTable, change: FileChange) -> None:
        tries.append(1)
        if len(tries) == 1:
            DeltaTable(stream.base).optimize.z_order(["_offset"])
        real(table, change)

    monkeypatch.setattr(changing, "_commit", optimized)
    stream.replay(offsets((0, 2, 4)), "run 2")
    assert len(tries) == 2
    assert stream.seen() == stream.counting() == of(range(6))
    assert [*remains.unnamed(stream.base)] == []


@pytest.mark.covers("I2")
def test_two_programs_publish_one_window(stream: DeltaInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other has published it, and removed its folder, while this one looked."""
    stream.ends((0, 5))
    real = _Publication.stage

    def beside(self: _Publication, table: DeltaTable, change: FileChange) -> None:
        monkeypatch.setattr(_Publication, "stage", real)
        publish(self.ledger, self.base, self.sink, self.record, self.folder)
        self.stage(table, change)

    monkeypatch.setattr(_Publication, "stage", beside)
    stream.ingest()
    assert stream.seen() == stream.counting() == of(range(5))


def test_what_a_cancelled_lane_has_left_goes_with_the_next_window(stream: DeltaInMemory) -> None:
    stream.ends((0, 5))
    stream.ingest()
    with pytest.raises(Killed):
        stream.replay(offsets((0, 1, 3)), "wrong", until=Step.SINK_STORED)
    assert len(stream.left()) == 1
    (lane,) = {one for one in stream.opened.ledger.heads() if one != INGEST}
    steering.cancel(stream.opened, lane, "asked for the wrong hour")
    stream.ends((0, 6))
    stream.ingest()
    assert stream.left() == []
    assert stream.seen() == of(range(6))


@pytest.mark.covers("I3")
def test_erased_messages_are_in_no_file_that_nobody_names(
    stream: DeltaInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of attempts that died, now and in earlier versions, and of publications that died; then a vacuum, and no byte is left."""
    stream.ends((0, 5))
    stream.ingest()
    for _ in range(2):
        with pytest.raises(Killed):
            stream.replay(offsets((0, 1, 3)), "wrong", until=Step.SINK_STORED)
    (lane,) = {one for one in stream.opened.ledger.heads() if one != INGEST}
    steering.cancel(stream.opened, lane, "asked for the wrong hour")
    base = Path(stream.base.removeprefix("file://"))
    (mine,) = base.rglob("*.parquet")
    # As an attempt of before that died between its files and the table; and a copy that died on its way.
    dead = base / "_generation=7"
    dead.mkdir()
    for path in (dead / "part-0.parquet", mine.with_name("copy.parquet")):
        path.write_bytes(mine.read_bytes())
    erased = offsets((0, 2, 3))
    lane = erasing.open_erasure(stream.opened, "e", erasing.choose(stream.opened, erased), REASON, ANN)
    erasing.erase(stream.opened, lane, "e")
    assert stream.seen() == of(range(2), range(3, 5))

    def holding() -> set[Path]:
        files = stream.folder.rglob("*.parquet")
        return {one for one in files if 2 in pq.read_table(one, partitioning=None).column("_offset").to_pylist()}

    assert holding() == {mine}
    (said,) = (one.remains for one in erasing.remaining(stream.opened, erased) if one.name == "delta")
    older = "no reader of the newest version sees it; 1 file of older versions holds it until the table is vacuumed"
    assert said == f"{older} ({mine.relative_to(base)})"
    stream.foreign().vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert holding() == set()
    assert [one.remains for one in erasing.remaining(stream.opened, erased) if one.name == "delta"] == [""]


def test_rows_of_another_program_stop_nothing(stream: DeltaInMemory) -> None:
    stream.ends((0, 5))
    stream.ingest()
    theirs = pa.table({"_topic": ["orders"], "_partition": pa.array([9], pa.int32()), "_offset": [4]})
    write_deltalake(stream.base, theirs, mode="append", schema_mode="merge")
    stream.replay(offsets((0, 1, 5)), "run 2")
    assert stream.counting() == of(range(5))
    assert stream.seen() == [*of(range(5)), (9, 4)]


@pytest.mark.covers("I1")
def test_a_window_without_rows_may_be_published_by_two(stream: DeltaInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is first makes no version of the table, and removes the file that the other one is about to put there."""
    stream.ends((0, 3))
    stream.ingest()
    monkeypatch.setattr(Writing, "read", lambda self, *_: setattr(self, "_covers", RangeSet()))
    stream.ends((0, 5))
    with pytest.raises(Killed):
        stream.ingest(until=Step.COMMITTED)
    found = stream.opened.ledger.head(INGEST)
    assert found is not None
    record = found.head.last
    assert record is not None
    (place,) = record.places
    there = (stream.opened.ledger, stream.base, "delta", record, place.place["folder"])
    real = changing.link

    def after_another(path: str, name: str) -> None:
        monkeypatch.setattr(changing, "link", real)
        assert publish(*there)
        real(path, name)

    monkeypatch.setattr(changing, "link", after_another)
    assert len(stream.left()) == 1
    assert publish(*there)
    assert stream.left() == []
    assert stream.seen() == stream.counting() == of(range(3))


def _noting(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[object]:
    """What a function of a module is asked for from now on."""
    asked, real = list[object](), getattr(module, name)

    def noted(of: object) -> object:
        asked.append(of)
        return real(of)

    monkeypatch.setattr(module, name, noted)
    return asked


@pytest.mark.covers("I1")
def test_a_window_is_published_without_a_second_look_at_the_table(
    stream: DeltaInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever loads a table reads all of its files' names, of which each window has more."""
    stream.ends((0, 3))
    stream.ingest()
    loaded = _noting(monkeypatch, delta_table, "opened")
    listed = _noting(monkeypatch, publishing, "live_files")
    with monkeypatch.context() as published:
        published.setattr(delta_table, "prepare", lambda *_: None)
        stream.ends((0, 5))
        stream.ingest()
    # What the table has shown, before a generation is drawn; whose the table is; and the version that is changed.
    assert (len(loaded), listed) == (3, [])
    assert stream.seen() == of(range(5))


@pytest.mark.covers("I1")
def test_old_versions_go_with_some_windows_and_not_with_each(
    stream: DeltaInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs lists all versions to find those that are too old."""
    monkeypatch.setattr(delta_table, "_CLEANED_EVERY", 4)
    log = Path(stream.base.removeprefix("file://")) / "_delta_log"
    versions, left = [], []
    for number in range(1, 9):
        stream.ends((0, number))
        stream.ingest()
        stream.foreign().create_checkpoint()
        for one in log.iterdir():
            os.utime(one, (1, 1))
        versions.append(stream.foreign().version())
        left.append((log / f"{0:020}.json").exists())
    assert left == [version < 4 for version in versions]
    assert stream.seen() == of(range(8))
