"""Windows of a stream in an Iceberg table: what others see at each step, what an erasure leaves, and what a compaction does."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.statistics import StatisticsFile

from tests.support.iceberg_in_memory import IcebergInMemory, Killed, Writing
from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import offsets
from tidemark.commit.protocol import Step
from tidemark.errors import Conflict, ProcessingFailed
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, LaneKind, Receipt
from tidemark.ledger.recovery.backup import back_up, restore
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing
from tidemark.runs.windows import lanes
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg import compacting, data_files, table
from tidemark.sinks.iceberg.compacting import IcebergCompaction, compact
from tidemark.sinks.iceberg.holding import FilesOfOffsets
from tidemark.sinks.iceberg.live_files import files_of_all, live_files
from tidemark.sinks.iceberg.reading import listed, parts_that_count
from tidemark.sinks.iceberg.sink import IcebergAdmin

HOUR = 3_600_000
# The lane of the run `replay 1`.
REPLAY = lanes.lane_name(LaneKind.REPLAY, "replay 1")


@pytest.fixture
def world(tmp_path: Path) -> IcebergInMemory:
    """Three windows of two partitions."""
    made = IcebergInMemory(tmp_path)
    for number in range(1, 4):
        made.ends((0, 10 * number), (0, 5))
        made.ingest()
    return made


ALL = [(0, one) for one in range(30)] + [(1, one) for one in range(5)]


@pytest.mark.covers("I1")
def test_others_see_a_window_when_it_is_committed(world: IcebergInMemory) -> None:
    assert world.seen() == world.counting() == ALL
    world.ends((0, 40), (0, 5))
    for step in (Step.SINK_STORED, Step.VERIFIED):
        with pytest.raises(Killed):
            world.ingest("run 2", until=step)
        assert world.seen() == world.counting() == ALL
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    more = [*ALL[:30], *((0, one) for one in range(30, 40)), *ALL[30:]]
    # Between the commit and its publication, only readers of the ledger see it.
    assert (world.seen(), world.counting()) == (ALL, more)
    world.ingest("run 3")
    assert world.seen() == world.counting() == more
    # The files of the attempts that died are gone.
    assert world.files() == {task.file.file_path for task in world.table().scan().plan_files()}


@pytest.mark.covers("I2")
def test_a_replay_that_is_killed_at_any_step(world: IcebergInMemory) -> None:
    snapshots = len(world.table().snapshots())
    with pytest.raises(Killed):
        world.replay(offsets((0, 3, 15), (1, 2, 3)), "run 2", until=Step.SINK_STORED)
    for step in (Step.VERIFIED, Step.COMMITTED):
        with pytest.raises(Killed):
            world.process(_lane(world), "run 2", until=step)
        assert world.seen() == world.counting() == ALL
    lanes.finish(world.opened, _lane(world))
    assert world.seen() == world.counting() == ALL
    assert len(world.table().snapshots()) == snapshots + 1
    replayed = world.table().scan(row_filter="_offset >= 3 and _offset < 15 and _partition = 0").to_arrow()
    assert len({*replayed["_generation"].to_pylist()}) == 1


def _lane(world: IcebergInMemory) -> str:
    (lane,) = (name for name in world.opened.ledger.heads() if name != INGEST)
    return lane


def test_a_compaction_merges_files_and_others_see_the_same(world: IcebergInMemory) -> None:
    world.replay(offsets((0, 3, 5)), "replay 1")
    planned = IcebergCompaction().planned(world.opened, world.sink, CompactionRequest())
    assert [(one.files, one.windows) for one in planned] == [(4, ["ingest/1 to 3", f"{REPLAY}/1"])]
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert world.seen() == world.counting() == ALL
    assert len(list(world.table().scan().plan_files())) == 1
    (made,) = IcebergCompaction().made(world.opened, world.sink, "run 9")
    assert (made.rows, made.windows) == (35, ["ingest/1 to 3", f"{REPLAY}/1"])
    assert IcebergCompaction().planned(world.opened, world.sink, CompactionRequest()) == []
    # What comes later goes on with it: a replay takes its rows out of the large file.
    world.ends((0, 40), (0, 5))
    world.ingest("run 10")
    world.replay(offsets((0, 8, 35)), "replay 2")
    more = [*ALL[:30], *((0, one) for one in range(30, 40)), *ALL[30:]]
    assert world.seen() == world.counting() == more


@pytest.mark.covers("I2")
def test_a_table_forgets_lanes_that_are_closed(world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that may still publish something. Who wakes up late in one that it has forgotten publishes nothing."""
    monkeypatch.setattr("tidemark.sinks.iceberg.lanes.MAX_LANES", 3)

    def lanes_of_table() -> set[str]:
        named = (one.rpartition("/")[2] for one in world.table().properties if one.startswith("tidemark.lane."))
        return {one.removeprefix("replay-") for one in named}

    first = world.replay(offsets((0, 3, 6)), "replay 1")
    with pytest.raises(Killed):
        world.replay(offsets((1, 0, 2)), "sleeps", until=Step.SINK_STORED)
    for number in range(2, 8):
        world.replay(offsets((0, number, number + 2)), f"replay {number}")
    asleep = lanes.lane_name(LaneKind.REPLAY, "sleeps")
    # One of before the lane that sleeps is forgotten, and none that came after it.
    assert len(lanes_of_table()) == 7
    assert lanes.lane_name(LaneKind.REPLAY, "replay 1").removeprefix("replay-") not in lanes_of_table()
    generation = world.process(asleep, "sleeps").attempt.generation
    lanes.finish(world.opened, asleep)
    replayed = world.table().scan(row_filter="_partition = 1 and _offset < 2").to_arrow()
    assert {*replayed.column("_generation").to_pylist()} == {generation}
    world.replay(offsets((0, 20, 21)), "replay 8")
    world.replay(offsets((0, 21, 22)), "replay 9")
    assert len(lanes_of_table()) <= 4
    assert world.seen() == world.counting() == ALL

    before = world.table().metadata_location
    IcebergAdmin().publish(world.opened.ledger, world.opened.connections, first.places[0].place, first)
    assert world.table().metadata_location == before
    assert world.seen() == world.counting() == ALL


@pytest.mark.covers("I3")
def test_old_snapshots_expire_with_their_files(world: IcebergInMemory) -> None:
    world.replay(offsets((0, 3, 15)), "replay 1")
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    # The world's clock is far behind that of the snapshots: nothing is old yet.
    assert len(world.table().snapshots()) == 5
    world.now = world.table().snapshots()[-1].timestamp_ms + 25 * HOUR
    (planned,) = IcebergCompaction().planned(world.opened, world.sink, CompactionRequest())
    assert planned.windows == ["4 snapshots expire"]
    compact(world.opened, world.sink, "run 10", CompactionRequest())
    assert world.seen() == world.counting() == ALL
    now = world.table()
    assert len(now.snapshots()) == 1
    assert world.files() == {task.file.file_path for task in now.scan().plan_files()}
    metadata = Path(world.where.base.removeprefix("file://")) / "metadata"
    snapshot = now.current_snapshot()
    assert snapshot is not None
    named = {snapshot.manifest_list, *(one.manifest_path for one in snapshot.manifests(now.io))}
    assert {f"file://{one}" for one in metadata.glob("*.avro")} == named
    (made,) = IcebergCompaction().made(world.opened, world.sink, "run 10")
    assert made.windows == ["4 snapshots expired"]


def test_a_snapshot_that_was_read_until_now_does_not_expire_however_old_it_is(world: IcebergInMemory) -> None:
    before = world.table().snapshots()
    time.sleep(0.05)
    world.now = before[-1].timestamp_ms + 24 * HOUR + 1
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    now = world.table().snapshots()
    assert [one.snapshot_id for one in now[:-1]] == [before[-1].snapshot_id]
    assert {one.file.file_path for one in files_of_all(world.table(), now[:1])} <= world.files()


@pytest.mark.covers("I3")
def test_what_is_erased_is_gone_with_the_next_compaction(world: IcebergInMemory) -> None:
    erased = offsets((0, 4, 6), (1, 0, 1))
    world.erase(erased)
    left = [(partition, one) for partition, one in ALL if (partition, one) not in {(0, 4), (0, 5), (1, 0)}]
    assert world.seen() == world.counting() == left
    remains = IcebergAdmin().remains(world.opened, "iceberg", erased)
    (data,) = (one for one in world.files() if data_files.hold(one, erased))
    assert remains.startswith(
        "no reader of the newest snapshot sees it; 2 files of older snapshots hold it until they expire"
    )
    assert data.removeprefix(f"{world.where.base}/") in remains
    assert remains.endswith("-m0.avro): tidemark compact orders --sink iceberg")
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert IcebergAdmin().remains(world.opened, "iceberg", erased) == ""
    assert world.seen() == world.counting() == left
    assert not [one for one in world.files() if data_files.hold(one, erased)]


@pytest.mark.covers("I1")
def test_a_window_is_read_before_it_is_published_whatever_was_compacted(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compacted file has rows of generations below and above the window's own, and none of it."""
    world.ends((0, 40), (0, 5))
    real = Writing.verify

    def after_others(work: Writing) -> Receipt:
        monkeypatch.undo()
        world.replay(offsets((0, 3, 5)), "replay 1")
        compact(world.opened, world.sink, "run 9", CompactionRequest())
        return real(work)

    monkeypatch.setattr(Writing, "verify", after_others)
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    assert world.counting() == sorted([*ALL, *((0, one) for one in range(30, 40))])


def test_rows_that_are_replaced_count_no_more_though_others_still_see_them(world: IcebergInMemory) -> None:
    """All of a window is replaced, its rows lie in a file of others, and what replaces them waits for its publication."""
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    with pytest.raises(Killed):
        world.replay(offsets((0, 10, 20)), "replay 1", until=Step.COMMITTED)
    _, parts = parts_that_count(world.opened.ledger, "iceberg", world.opened.connections)
    (shared,) = (one for one in parts if len(one.windows) == 3)
    (lost,) = (shared.lost[window.generation] for window in shared.windows if window.generation in shared.lost)
    assert list(lost) == list(offsets((0, 10, 20)))
    assert world.counting() == ALL


@pytest.mark.slow
def test_a_ledger_that_is_restored_publishes_what_it_does_not_know_once(world: IcebergInMemory, tmp_path: Path) -> None:
    ledger = world.opened.ledger
    back_up(ledger, tmp_path / "backup")
    world.ends((0, 40), (0, 5))
    world.ingest("run 2")
    more = sorted([*ALL, *((0, one) for one in range(30, 40))])
    assert world.seen() == more
    restored = Ledger(MemoryStore(), ledger.stream, clock=ledger.clock)
    restore(restored, tmp_path / "backup")
    world.opened = replace(world.opened, ledger=restored)
    # A first try that dies makes the next one sweep the folders of its window.
    with pytest.raises(Killed):
        world.ingest("run 3", until=Step.SINK_STORED)
    world.ingest("run 3")
    assert world.seen() == world.counting() == more
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert world.seen() == world.counting() == more
    assert {one.path for one in files_of_all(world.table())} <= world.files()


def test_a_compacted_file_is_read_once_under_a_ledger_that_was_restored(world: IcebergInMemory) -> None:
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    (file,) = live_files(world.table())
    for record in (one.record for one in world.opened.ledger.view("iceberg").windows):
        (place,) = (one.place for one in record.places if one.name == "iceberg")
        assert data_files.in_folder(place["folder"])
        assert listed(world.table()).of_window(record, place["folder"], "orders/restored 5", settled=False) == [
            file.path
        ]


def test_a_compaction_keeps_the_statistics_of_other_programs(world: IcebergInMemory) -> None:
    there = Path(world.where.base.removeprefix("file://")) / "metadata" / "of-trino.stats"
    there.write_bytes(b"PFA1")
    os.utime(there, (1, 1))
    now = world.table()
    snapshot = now.current_snapshot()
    assert snapshot is not None
    said = {"snapshot-id": snapshot.snapshot_id, "statistics-path": f"file://{there}", "blob-metadata": []}
    sizes = {"file-size-in-bytes": 4, "file-footer-size-in-bytes": 4}
    with now.update_statistics() as update:
        update.set_statistics(StatisticsFile.model_validate({**said, **sizes}))
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert there.exists()


@pytest.mark.covers("I3")
def test_an_erasure_says_what_commits_that_died_have_left(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise Killed(Step.COMMITTED)

    with monkeypatch.context() as patched:
        patched.setattr("tidemark.sinks.iceberg.table.snapshot", dies)
        # Who is killed removes nothing.
        patched.setattr("tidemark.sinks.iceberg.table._remove", lambda _: None)
        with pytest.raises(ProcessingFailed):
            world.replay(offsets((0, 3, 5)), "replay 1")
    lanes.finish(world.opened, REPLAY)
    erased = offsets((0, 6, 8))
    world.erase(erased)
    world.now = world.table().snapshots()[-1].timestamp_ms + 25 * HOUR
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    (copy,) = (one for one in world.files() if data_files.hold(one, erased))
    assert IcebergAdmin().remains(world.opened, "iceberg", erased) == (
        "no reader of the newest snapshot sees it; 1 file that died on the way into the table holds it for a day "
        f"({copy.removeprefix(f'{world.where.base}/')}): tidemark compact orders --sink iceberg"
    )
    for one in world.files():
        os.utime(one.removeprefix("file://"), (1, 1))
    compact(world.opened, world.sink, "run 10", CompactionRequest())
    assert IcebergAdmin().remains(world.opened, "iceberg", erased) == ""
    assert not [one for one in world.files() if data_files.hold(one, erased)]


@pytest.mark.covers("E64")
def test_what_is_published_after_an_erasure_is_named_and_cleared_again(world: IcebergInMemory) -> None:
    """With `at_most_once`, a window is committed before it is written: a job that slept meanwhile publishes it late."""
    erased, kept = offsets((0, 4, 6)), offsets((0, 7, 8))
    (first,) = (one for one in live_files(world.table()) if one.offsets[0] == 0)

    def said(wanted: RangeSet) -> str:
        (found,) = (one.remains for one in erasing.remaining(world.opened, wanted) if one.name == "iceberg")
        return found

    world.erase(erased)
    before = said(erased)
    assert "came late" not in before

    def late(there: Table, transaction: Transaction, _: list[str]) -> bool:
        file = data_files.described(there.metadata, first.path)
        assert file is not None
        table.snapshot(there, transaction, [], [file], {})
        return True

    table.change(world.where, late)
    assert (0, 4) in world.seen()
    assert said(erased).startswith("1 of its rows or files came late")
    assert "came late" not in said(kept)
    erasing.clear_again(world.opened, erased)
    assert (0, 4) not in world.seen()
    assert said(erased).startswith("no reader of the newest snapshot sees it; ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "time_"),
    [
        (compacting, "live_files", 1),
        (compacting, "copied", 1),
        (compacting, "named_files", 1),
        (Transaction, "commit_transaction", 2),
    ],
)
@pytest.mark.covers("I3")
def test_two_compactions_at_once(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, time_: int
) -> None:
    """The other one has removed the files that this one is about to read, or the snapshots that it lets expire."""
    world.erase(offsets((0, 4, 6)))
    before = world.seen()
    world.now = world.table().snapshots()[-1].timestamp_ms + 25 * HOUR
    times = 0
    real = getattr(owner, name)

    def after_another(*given: object) -> object:
        nonlocal times
        times += 1
        if times == time_:
            monkeypatch.undo()
            compact(world.opened, world.sink, "other", CompactionRequest())
        return real(*given)

    monkeypatch.setattr(owner, name, after_another)
    compact(world.opened, world.sink, "mine", CompactionRequest())
    assert times == time_
    assert world.seen() == world.counting() == before


def test_a_compaction_that_fails_begins_again_only_after_changes_of_others(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own snapshots, and the expiry of others, are none."""
    world.erase(offsets((0, 4, 6)))
    world.now = world.table().snapshots()[-1].timestamp_ms + 25 * HOUR
    tries = 0

    def broken(*_: object) -> object:
        nonlocal tries
        tries += 1
        raise OSError("the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(compacting, "listed", broken)
        with pytest.raises(OSError, match="the disk is away"):
            compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert (tries, len(world.table().snapshots())) == (1, 1)

    def after_another(seen: compacting.VersionSeen) -> None:
        table.change(seen.where, lambda _, made, __: bool(made.set_properties(tries=str(tries))))
        seen.change(lambda _, made, __: bool(made.set_properties(mine=str(tries))))
        broken()

    tries = 0
    with pytest.raises(Conflict, match="others changed it each time while it was compacted: the disk is away"):
        compacting.steadily(world.where, after_another)
    assert tries == 5


def test_a_compaction_that_is_never_first_leaves_no_file(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, compacted = SqlCatalog.commit_table, Path(world.where.base.removeprefix("file://")) / "data" / "compacted"
    others, depth = iter(range(40, 400, 10)), list[int]()

    def beside(self: SqlCatalog, *given: Any) -> Any:
        if not depth:
            depth.append(1)
            assert [*compacted.iterdir()]
            world.ends((0, until := next(others)), (0, 5))
            world.ingest(f"until {until}")
            depth.clear()
        return real(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", beside)
        patched.setattr(table, "_WAIT", 0)
        patched.setattr(table, "_TIMES", 2)
        with pytest.raises(Conflict, match="other programs changed it before each commit"):
            compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert not [*compacted.iterdir()]
    assert world.seen() == world.counting()
    assert len(world.seen()) > len(ALL)


def test_what_an_erasure_has_left_is_named_beside_a_compaction(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased = offsets((0, 4, 6))
    world.erase(erased)

    def after_a_compaction(*given: Any) -> object:
        monkeypatch.undo()
        compact(world.opened, world.sink, "other", CompactionRequest())
        return FilesOfOffsets(*given)

    monkeypatch.setattr("tidemark.sinks.iceberg.remains.FilesOfOffsets", after_a_compaction)
    assert IcebergAdmin().remains(world.opened, "iceberg", erased) == ""


def test_a_compaction_leaves_files_that_a_replay_has_replaced_meanwhile(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = table.change

    def after_a_replay(*given: object) -> None:
        monkeypatch.undo()
        world.replay(offsets((0, 3, 5)), "replay 1")
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("tidemark.sinks.iceberg.compacting.change", after_a_replay)
    compact(world.opened, world.sink, "run 9", CompactionRequest())
    assert world.seen() == world.counting() == ALL
    assert not [one for one in world.files() if "/compacted/" in one]
    compact(world.opened, world.sink, "run 10", CompactionRequest())
    assert len(list(world.table().scan().plan_files())) == 1


@pytest.mark.covers("I7")
def test_a_wide_table_reads_its_names_once_for_each_file(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five hundred fields took twelve times as long: the library reads the text of all names at each question."""
    table.prepare(
        world.where, {**world.opened.fields, **{f"c{number}": "integer" for number in range(50)}}, "orders", "ledger"
    )
    asked: list[int] = []
    real = TableMetadataV2.name_mapping

    def counted(metadata: TableMetadataV2) -> NameMapping | None:
        asked.append(1)
        return real(metadata)

    monkeypatch.setattr(TableMetadataV2, "name_mapping", counted)
    world.replay(offsets((0, 1, 3)), "run 2")
    assert world.seen() == world.counting() == ALL
    assert len(asked) < 20


@pytest.mark.covers("I7")
def test_a_window_that_replaces_nothing_reads_no_manifest(
    world: IcebergInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library looks in each for files that are taken out: with 65 of them, publishing took twice as long as with 25."""
    read: list[str] = []
    real = ManifestFile.fetch_manifest_entry

    def noted(manifest: ManifestFile, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        read.append(manifest.manifest_path)
        return list(real(manifest, io, discard_deleted))

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", noted)
    world.ends((0, 40), (0, 5))
    world.ingest("run 4")
    assert read == []
    monkeypatch.undo()
    assert world.seen() == world.counting()
    assert len(world.seen()) == 45
