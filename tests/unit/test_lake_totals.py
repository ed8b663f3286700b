"""Tables of a lake with totals of each key: what is added to a version, what is computed anew, and what files hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.grep import holding
from tests.support.latest_tables import (
    Change,
    DeltaAggregatesInMemory,
    IcebergAggregatesInMemory,
    Killed,
    LakeTotalsInMemory,
)
from tests.support.streams_in_memory import offsets
from tidemark.commit.protocol import Step
from tidemark.errors import Unreachable, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record
from tidemark.ledger.recovery.backup import back_up
from tidemark.sinks.aggregates.sink import LakeTotalsAdmin
from tidemark.sinks.latest.merging import TableVersion
from tidemark.sinks.parquet import folders

pytestmark = pytest.mark.covers("L8")

SECRET = "anna@secret.org"
KINDS: dict[str, Callable[..., LakeTotalsInMemory]] = {
    "delta_aggregates": DeltaAggregatesInMemory,
    "iceberg_aggregates": IcebergAggregatesInMemory,
}


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTotalsInMemory:
    made = KINDS[request.param](tmp_path, code=lambda _, offset: [Change(offset % 7, f"m{offset}")])
    made.ends((0, 14))
    made.ingest()
    return made


def version_of(world: LakeTotalsInMemory) -> TableVersion:
    plain = world.admin
    assert isinstance(plain, LakeTotalsAdmin)
    found = plain.table(world.opened.connections, plain.table_place(world.sink, world.base)).opened()
    assert found is not None
    return found


def publish(world: LakeTotalsInMemory, record: Record) -> None:
    world.admin.publish(world.opened.ledger, world.opened.connections, record.places[0].place, record)


def files_of(world: LakeTotalsInMemory) -> list[Path]:
    version = version_of(world)
    return [Path(one.removeprefix("file://")) for bucket in version.sizes for one in version.paths(bucket)]


def test_a_window_that_is_there_is_not_added_again(world: LakeTotalsInMemory) -> None:
    """Its publisher dies before the window is settled, and another one publishes it. So does one that wakes up late."""
    world.ends((0, 20))
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    (_, last) = (one.record for one in world.opened.ledger.committed())
    for _ in range(2):
        publish(world, last)
        assert not world.opened.ledger.is_settled(last)
        world.check(published=True)
    versions = world.versions()
    world.ends((0, 21))
    world.ingest("run 3")
    for one in world.opened.ledger.committed():
        publish(world, one.record)
    assert world.versions() == versions + 1
    world.check(published=True)


def test_a_window_is_added_without_the_history(world: LakeTotalsInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ends((0, 15))
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    (_, last) = (one.record for one in world.opened.ledger.committed())
    read: list[str] = []
    real = folders.opened

    def noted(name: str) -> Any:
        read.append(name)
        return real(name)

    with monkeypatch.context() as patched:
        patched.setattr(folders, "opened", noted)
        patched.setattr(Ledger, "records_with_bytes", lambda _: pytest.fail("the history was read"))
        publish(world, last)
    place = last.places[0].place
    history = {name for name in read if name.startswith(f"{place['base']}/lane")}
    assert history
    assert {name for name in history if not name.startswith(place["folder"])} == set()
    world.check(published=True)
    # One bucket of three was read and written.
    assert len({name for name in read if "bucket" in name}) == 2


def test_a_replay_that_changes_no_total_makes_no_version(world: LakeTotalsInMemory) -> None:
    before = world.versions()
    world.replay(offsets((0, 2, 5)), "replay 1")
    assert world.versions() == before
    # Of one key, one bucket is written.
    files = {*files_of(world)}
    world.code = lambda _, offset: []
    world.replay(offsets((0, 2, 3)), "replay 2")
    assert world.versions() == before + 1
    assert len(files - {*files_of(world)}) == 1
    world.check(published=True)
    # Of a key without rows there is no row.
    world.replay(offsets((0, 9, 10)), "replay 3")
    world.check(published=True)
    assert 2 not in world.totals()


def test_what_another_program_has_changed_is_shown_until_it_is_made_right(world: LakeTotalsInMemory) -> None:
    """So an audit finds it. The next window is not added to it."""
    world.rewrite_table(more=1)
    wrong = world.totals_shown()
    assert wrong == world.totals_counting() != world.totals()
    world.ends((0, 15))
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    assert world.totals_shown() == wrong != world.totals_counting() != world.totals()
    world.ingest("run 2")
    world.check(published=True)
    # Files that were put together are other files with the same rows.
    world.rewrite_table()
    world.ends((0, 16))
    world.ingest("run 3")
    world.check(published=True)
    # An older version says what it has counted, and the ledger says that more is settled.
    world.set_back()
    world.ends((0, 17))
    world.ingest("run 4")
    world.check(published=True)


@pytest.mark.parametrize("then", ["a window", "a replay"])
def test_a_file_that_is_lost_is_made_again(world: LakeTotalsInMemory, then: str) -> None:
    for one in files_of(world):
        one.unlink()
    with pytest.raises(Unreachable, match="is gone, and the newest version of its table names it"):
        world.totals_counting()
    world.ends((0, 21))
    world.ingest("run 2") if then == "a window" else world.replay(offsets((0, 0, 1)), "replay")
    world.check(published=True)


def test_what_was_erased_is_in_no_file_after_a_compaction(tmp_path: Path, world: LakeTotalsInMemory) -> None:
    """Totals have the values of messages: the least one of a key."""
    world.code = lambda _, offset: [Change(offset % 7, SECRET if offset == 16 else f"m{offset}")]
    for number in (3, 4):
        world.ends((0, 7 * number))
        world.ingest(f"run {number}")
    erased = offsets((0, 16, 17))
    assert holding(tmp_path, SECRET)
    world.erase(erased)
    world.check(published=True)
    said = world.admin.remains(world.opened, world.sink.name, erased)
    found = [one for one in holding(tmp_path, SECRET) if "/_history/" not in one]
    assert found
    assert all(one.rpartition("/")[2] in said for one in found)
    # A window comes before the compaction.
    world.ends((0, 30))
    world.ingest("run 5")
    world.compact("compaction 1")
    world.vacuum(24)
    assert holding(tmp_path, SECRET) == set()
    assert world.admin.remains(world.opened, world.sink.name, erased) == ""
    # What older versions have that never counted it stays for its time.
    kept = world.table_files()
    world.ends((0, 35))
    world.ingest("run 6")
    world.vacuum(24)
    assert world.table_files() > kept
    assert world.admin.remains(world.opened, world.sink.name, erased) == ""
    world.check(published=True)


def test_a_ledger_that_has_forgotten_a_window(world: LakeTotalsInMemory, tmp_path: Path) -> None:
    back_up(world.opened.ledger, tmp_path / "backup")
    before = dict(world.committed)
    world.ends((0, 20))
    world.ingest("forgotten")
    world.restore(tmp_path / "backup")
    world.committed = before
    world.check(published=False)
    world.code = lambda _, offset: [Change(offset % 3, f"other {offset}")]
    world.ingest("anew")
    world.check(published=True)


def test_a_table_keeps_its_key_and_its_values(world: LakeTotalsInMemory) -> None:
    with pytest.raises(WrongUse, match=r'was made with the key \["id"\], the stream file says \["value"\]'):
        world.prepare(key=["value"])
    with pytest.raises(WrongUse, match="was made with the number of buckets 3, the stream file says 4"):
        world.prepare(buckets=4)
    world.rewrite("      least: {min: value}\n", "      least: {max: value}\n")
    with pytest.raises(WrongUse, match=r"was made with the values .*, the stream file says .*fill it by a replay"):
        world.prepare()


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_the_key_takes_a_wider_type_where_its_column_does(kind: str, tmp_path: Path) -> None:
    world = KINDS[kind](tmp_path, code=lambda _, offset: [Change(offset % 7, f"m{offset}")])
    world.rewrite("    id: integer\n", "    id: int\n")
    world.ends((0, 14))
    world.ingest()
    world.rewrite("    id: int\n", "    id: integer\n")
    if kind == "delta_aggregates":
        with pytest.raises(WrongUse, match="Delta cannot widen it"):
            world.admin.check_fields(world.opened, world.sink)
        with pytest.raises(WrongUse, match="Delta cannot widen it"):
            world.prepare()
        return
    world.admin.check_fields(world.opened, world.sink)
    # One bucket of three is written again.
    world.ends((0, 15))
    world.ingest("run 2")
    world.check(published=True)
    world.replay(offsets((0, 2, 5)), "replay 1")
    world.check(published=True)


def test_a_field_of_the_key_keeps_its_name(world: LakeTotalsInMemory) -> None:
    """The table has its column."""
    renamed = ("    id: integer\n", "    name: integer\n", "    key: id\n", "    key: name\n")
    world.rewrite(*renamed, "stream: orders\n", "stream: orders\nwas: {name: id}\n")
    with pytest.raises(WrongUse, match="made with the key"):
        world.prepare()
