"""Tables of a lake with the newest row of each key, against a small model: whatever runs, replays, dies and wakes up late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest

from tests.support.browsed import browsed, places_of
from tests.support.latest_tables import (
    BUCKETS,
    Change,
    DeltaLatestInMemory,
    HBaseLatestInMemory,
    IcebergLatestInMemory,
    Killed,
    LatestInMemory,
)
from tests.support.streams_in_memory import TEXT, offsets
from tests.support.table_stories import Story, random_code
from tidemark.commit.protocol import Step
from tidemark.errors import OwnedByAnother, ProcessingFailed, Unreachable, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import INGEST, LaneKind, TopicIncarnation
from tidemark.ledger.recovery.backup import back_up
from tidemark.runs.windows import lanes
from tidemark.sinks.latest.rows import newest
from tidemark.sinks.latest.sink import LatestRowsAdmin
from tidemark.sinks.latest.table import _newest as newest_by_the_ledger
from tidemark.sinks.mounts import check_mounted
from tidemark.sinks.parquet import folders

SEEDS = 8
LAKES = {"delta_latest": DeltaLatestInMemory, "iceberg_latest": IcebergLatestInMemory}
KINDS: dict[str, Callable[..., LatestInMemory]] = {**LAKES, "hbase_latest": HBaseLatestInMemory}
pytestmark = pytest.mark.usefixtures("hbase_in_memory")


SHORT, LONG = pytest.mark.covers("L1", "L2"), pytest.mark.full


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(one, marks=SHORT if one < SEEDS // 2 else LONG) for one in range(SEEDS)])
@pytest.mark.parametrize("kind", KINDS)
def test_each_key_has_its_newest_row(kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = KINDS[kind](tmp_path, wide=seed % 2 == 1)
    world.code = random_code(0)
    story = Story(world, seed, monkeypatch)
    story.ingest()
    for _ in range(12):
        story.step()


@pytest.mark.covers("L5")
@pytest.mark.parametrize("comes", ["a window", "a replay", "an erasure"])
@pytest.mark.parametrize("kind", LAKES)
def test_a_bucket_whose_file_is_lost_is_made_again(kind: str, comes: str, tmp_path: Path) -> None:
    world = KINDS[kind](tmp_path, code=lambda _, offset: [Change(offset % 7, f"m{offset}")])
    for number in (1, 2):
        world.ends((0, 7 * number))
        world.ingest(f"run {number}")
    assert isinstance(world.admin, LatestRowsAdmin)
    version = world.admin.table(world.opened.connections, world.admin.table_place(world.sink, world.base)).opened()
    assert version is not None
    lost = [version.paths(bucket)[0] for bucket in version.sizes]
    for one in lost:
        Path(one.removeprefix("file://")).unlink()
    with pytest.raises(Unreachable, match="is gone, and the newest version of its table names it"):
        world.counting()
    match comes:
        case "a window":
            world.ends((0, 21))
            world.ingest("run 3")
        case "a replay":
            world.replay(offsets((0, 0, 1)), "run 3")
        case _:
            world.erase(offsets((0, 9, 10)))
    assert world.shown() == world.counting() == world.wanted()


def one_key(partition: int, offset: int) -> list[Change]:
    return [Change(1, f"{partition}@{offset}")]


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> LatestInMemory:
    made = KINDS[request.param](tmp_path)
    made.code = one_key
    made.ends((0, 5), (0, 0))
    return made


# For what only tables with versions have.
in_lakes = pytest.mark.parametrize("world", LAKES, indirect=True)


@pytest.mark.slow
@pytest.mark.covers("L1", "L3")
def test_others_see_a_window_after_its_commit_and_two_who_publish_it_are_one(
    world: LatestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (Step.SINK_STORED, Step.COMMITTED):
        with pytest.raises(Killed):
            world.ingest("run 1", until=step)
        assert world.seen() == []
    assert world.counting() == world.wanted() == {1: ((4, 0, 0), "0@4", False)}
    (window,) = world.opened.ledger.committed()
    ((owner, name), *_) = world.looking
    real = getattr(owner, name)

    def sleeping(*given: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        found = real(*given)
        # Another process settles the window before this one commits to the table, which has no file of the bucket yet.
        world.ends((0, 6), (0, 0))
        world.ingest("run 2")
        return found

    monkeypatch.setattr(owner, name, sleeping)
    place = window.record.places[0].place
    world.admin.publish(world.opened.ledger, world.opened.connections, place, window.record)
    assert world.shown() == world.wanted() == {1: ((5, 0, 0), "0@5", False)}


@in_lakes
@pytest.mark.covers("L1")
def test_a_window_that_changes_nothing_makes_no_version(world: LatestInMemory) -> None:
    world.ingest()
    before = world.versions()
    (window,) = world.opened.ledger.committed()
    world.admin.publish(world.opened.ledger, world.opened.connections, window.record.places[0].place, window.record)
    # Older messages of the key, read again, do not change it.
    world.replay(offsets((0, 1, 3)), "replay 1")
    assert world.versions() == before
    assert world.shown() == world.wanted()
    # Nor does a window whose messages give no row.
    world.code = lambda partition, offset: []
    world.ends((0, 9), (0, 0))
    world.ingest()
    assert world.versions() == before
    world.replay(offsets((0, 4, 5)), "replay 2")
    assert world.versions() == before + 1
    assert world.shown() == world.wanted() == {1: ((3, 0, 0), "0@3", False)}


@pytest.mark.slow
@pytest.mark.covers("L1")
def test_plain_readers_find_rows_by_each_column(world: LatestInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that have no statistics of a column may be taken for such that have only nulls there."""
    # Without it, polars warns of a faster package.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    world.code = lambda partition, offset: [Change(offset, f"{partition}@{offset}", offset % 3 == 0)]
    for end in (20, 40):
        world.ends((0, end), (0, 5))
        world.ingest()
    rows = world.seen()
    assert len(rows) == 40
    for column in rows[0]:
        for value in {rows[0][column], rows[-1][column]} - {None}:
            assert world.found(column, value) == {sum(row[column] == value for row in rows)}, (column, value)


@pytest.mark.covers("L4")
def test_a_window_is_published_without_those_before_it(world: LatestInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    world.code = lambda partition, offset: [Change(offset % 4, f"{partition}@{offset}")]
    world.ingest()
    for number in range(6, 9):
        world.ends((0, number), (0, 0))
        world.ingest()
    # A replay that takes nothing out, whose generation is newer than that of the window.
    before = {one.record.lane: one.record for one in world.opened.ledger.committed()}[INGEST]
    world.replay(offsets((0, 0, 4)), "replay 1")
    world.ends((0, 9), (0, 0))
    with pytest.raises(Killed):
        world.ingest(until=Step.COMMITTED)
    records = {(one.record.lane, one.record.seq): one.record for one in world.opened.ledger.committed()}
    last = records[INGEST, before.seq + 1]

    opened: list[str] = []
    real = folders.opened

    def noted(name: str) -> Any:
        opened.append(name)
        return real(name)

    with monkeypatch.context() as patched:
        patched.setattr(folders, "opened", noted)
        # That of the ledger.
        patched.setattr(Ledger, "records_with_bytes", lambda _: pytest.fail("the history was read"))
        for record in (last, records[lanes.lane_name(LaneKind.REPLAY, "replay 1"), 1], before):
            place = record.places[0].place
            opened.clear()
            world.admin.publish(world.opened.ledger, world.opened.connections, place, record)
            history = {name for name in opened if name.startswith(f"{place['base']}/lane")}
            # Of a table without versions, each publication takes in what is not settled: the last window.
            read = {place["folder"], last.places[0].place["folder"]} if "hbase" in world.kind else {place["folder"]}
            assert {name for name in history if not any(map(name.startswith, read))} == set()
            assert history
    assert world.shown() == world.wanted()
    # One bucket of three was written, or none is in files.
    assert sum("bucket" in name for name in opened) <= 2 * BUCKETS


@pytest.mark.slow
@pytest.mark.covers("N91", "N108")
@pytest.mark.parametrize("kind", KINDS)
def test_columns_change_as_the_format_lets_them(kind: str, tmp_path: Path) -> None:
    world = KINDS[kind](tmp_path)
    world.rewrite("    id: integer\n", "    id: int\n    number: int\n")
    world.code = lambda partition, offset: [Change(offset % 3, f"{partition}@{offset}")]
    world.ends((0, 5), (0, 0))
    world.ingest()

    def numbers() -> dict[int, Any]:
        assert world.shown() == world.counting() == world.wanted()
        return {row["id"]: row["number"] for row in world.seen()}

    assert numbers() == {0: 3, 1: 4, 2: 2}
    # Wider: the key too. Of the rows that come back, the history has the narrower type.
    world.rewrite("    id: int\n", "    id: integer\n")
    world.rewrite("    number: int\n", "    number: integer\n")
    world.ends((0, 7), (0, 0))
    if kind == "delta_latest":
        for refuses in (world.prepare, lambda: world.admin.check_fields(world.opened, world.sink)):
            with pytest.raises(WrongUse, match=r"has the column id as int, .* as integer, and Delta cannot widen it"):
                refuses()
        world.rewrite("    id: integer\n", "    id: int\n")
        world.rewrite("    number: integer\n", "    number: int\n")
    world.ingest()
    assert numbers() == {0: 6, 1: 4, 2: 5}
    world.code = lambda partition, offset: []
    world.replay(offsets((0, 5, 7)), "replay 1")
    assert numbers() == {0: 3, 1: 4, 2: 2}
    # One is added, then one is left out.
    world.code = lambda partition, offset: [Change(offset % 3, f"{partition}@{offset}")]
    world.rewrite("    value: string\n", "    value: string\n    day: date\n")
    world.ends((0, 8), (0, 0))
    world.ingest()
    assert {(row["id"], row["day"]) for row in world.seen()} == {(0, None), (1, None), (2, None)}
    kept = "    number: int\n" if kind == "delta_latest" else "    number: integer\n"
    world.rewrite(kept, "")
    world.ends((0, 9), (0, 0))
    world.ingest()
    assert numbers() == {0: 3, 1: 7, 2: None}
    # A bucket that is written again keeps what older rows have in it.
    world.vacuum(hours=0)
    world.code = lambda partition, offset: []
    world.replay(offsets((0, 8, 9)), "replay 2")
    assert numbers() == {0: 3, 1: 7, 2: 2}
    # Another name.
    world.rewrite("    value: string\n", "    text: string\n")
    world.rewrite("stream: orders\n", "stream: orders\nwas: {text: value}\n")
    if kind == "hbase_latest":
        # Rows that come back have it, too.
        world.ingest()
        world.replay(offsets((0, 7, 9)), "replay 3")
        rows = world.admin.rows(world.opened, world.sink, 10)
        assert {row["fields"]["id"]: row["fields"]["text"] for row in rows} == {"0": "0@3", "1": "0@4", "2": "0@2"}
        return
    for check in (world.prepare, lambda: world.admin.check_fields(world.opened, world.sink)):
        with pytest.raises(
            WrongUse, match=r"has the column value, and the stream file says that it is now text: .*replay"
        ):
            check()


@pytest.mark.slow
@pytest.mark.covers("L1")
def test_rows_that_a_restored_ledger_has_forgotten_go(world: LatestInMemory, tmp_path: Path) -> None:
    world.code = lambda partition, offset: [Change(offset, f"{partition}@{offset}")]
    world.ends((0, 3), (0, 0))
    world.ingest()
    back_up(world.opened.ledger, tmp_path / "backup")
    before = dict(world.committed)
    # Twice from one backup: each time another code gives the messages after it keys in other buckets.
    for key in (3, 0, 1, 2):
        world.code = lambda partition, offset, key=key: [Change(key, f"{key} of {partition}@{offset}")]
        world.ends((0, 6), (0, 0))
        world.ingest(f"run of {key}")
        assert world.shown() == world.counting() == world.wanted()
        world.restore(tmp_path / "backup")
        world.committed = dict(before)
        # Others see what is forgotten until the first publication; Tidemark's readers do not.
        assert (
            world.counting()
            == world.wanted()
            == {number: ((number, 0, 0), f"0@{number}", False) for number in range(3)}
        )


@pytest.mark.slow
@pytest.mark.covers("L1")
@pytest.mark.parametrize("gave", ["another key", "no row"])
def test_rows_that_a_forgotten_replay_took_out_come_back(
    world: LatestInMemory, gave: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the table says that they were there. Rows of the history are compared a few at a time."""
    monkeypatch.setattr("tidemark.sinks.latest.history._AT_ONCE", 1)
    by_offset = world.code = lambda partition, offset: [Change(offset % 4, f"{partition}@{offset}")]
    for end in (3, 6):
        world.ends((0, end), (0, 0))
        world.ingest()
    back_up(world.opened.ledger, tmp_path / "backup")
    before = dict(world.committed)
    world.code = lambda partition, offset: [Change(9, "other code")] if gave == "another key" else []
    world.replay(offsets((0, 2, 4)), "replay 1")
    assert world.shown() == world.counting() == world.wanted()
    world.restore(tmp_path / "backup")
    world.committed, world.code = before, by_offset
    assert world.counting() == world.wanted()
    assert world.counting()[2] == ((2, 0, 0), "0@2", False)
    world.ends((0, 7), (0, 0))
    world.ingest()
    assert world.shown() == world.counting() == world.wanted()


@pytest.mark.slow
@pytest.mark.covers("L1", "L2")
def test_a_ledger_from_before_a_compaction_goes_on(world: LatestInMemory, tmp_path: Path) -> None:
    """Its history names folders that are gone. The table has what was the newest in them."""
    world.code = lambda partition, offset: [Change(offset, f"{partition}@{offset}")]
    for end in (3, 6):
        world.ends((0, end), (0, 0))
        world.ingest()
    back_up(world.opened.ledger, tmp_path / "backup")
    before = dict(world.committed)
    world.ends((0, 8), (0, 0))
    world.ingest("forgotten")
    world.compact("compaction")
    world.restore(tmp_path / "backup")
    world.committed, world.code = before, lambda partition, offset: [Change(9, f"{partition}@{offset}")]
    # The first takes out rows that the ledger has forgotten, and the second some that it replaces.
    world.ingest("anew")
    assert world.shown() == world.counting() == world.wanted()
    world.replay(offsets((0, 1, 2)), "replay 1")
    assert world.shown() == world.counting() == world.wanted()


@pytest.mark.covers("L1")
def test_a_topic_that_is_made_anew_has_the_newer_messages(tmp_path: Path) -> None:
    for kind, made in KINDS.items():
        (tmp_path / kind).mkdir()
        world = made(
            tmp_path / kind, text=TEXT.replace("  start: earliest\n", "  start: earliest\n  on_recreated: accept\n")
        )
        world.code = one_key
        world.ends((0, 5), (0, 0))
        world.ingest()
        world.kafka.ids["orders"] = "another id"
        world.ends((0, 2), (0, 0))
        world.ingest()
        assert world.shown() == world.counting() == world.wanted() == {1: ((1, 0, 0), "0@1", False)}
        # The first window, once more.
        (first, _) = (one.record for one in world.opened.ledger.committed())
        world.admin.publish(world.opened.ledger, world.opened.connections, first.places[0].place, first)
        assert world.shown() == world.counting() == world.wanted()


@pytest.mark.covers("L1")
def test_a_topic_is_made_anew_while_a_window_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The publication has read the ledger before, and the rows of the table after it."""
    text = TEXT.replace("  start: earliest\n", "  start: earliest\n  on_recreated: accept\n")
    for kind, made in KINDS.items():
        (tmp_path / kind).mkdir()
        world = made(tmp_path / kind, text=text)
        world.code = one_key
        world.ends((0, 5), (0, 0))
        world.ingest()
        ((owner, name), *_) = world.looking
        real = getattr(owner, name)

        def sleeping(*given: Any, world: LatestInMemory = world, at: Any = (owner, name, real)) -> Any:
            monkeypatch.setattr(*at)
            world.kafka.ids["orders"] = "another id"
            world.ends((0, 2), (0, 0))
            world.ingest("another")
            return at[2](*given)

        monkeypatch.setattr(owner, name, sleeping)
        (first,) = (one.record for one in world.opened.ledger.committed())
        world.admin.publish(world.opened.ledger, world.opened.connections, first.places[0].place, first)
        assert world.shown() == world.counting() == world.wanted()


@pytest.mark.covers("L2", "L3")
def test_what_was_erased_is_gone_with_a_compaction(world: LatestInMemory) -> None:
    world.ingest()
    gone = offsets((0, 3, 5))
    world.erase(gone)
    assert world.shown() == world.counting() == world.wanted() == {1: ((2, 0, 0), "0@2", False)}
    remains = world.admin.remains(world.opened, world.sink.name, gone)
    compact = f"tidemark compact orders --sink {world.sink.name}"
    held = f"no reader of Tidemark shows it; files of ingest/1 hold it until: {compact}"
    if world.older:
        assert remains.startswith(f"{held}; no reader of ")
        assert world.older in remains
    assert remains.endswith(compact)
    planned = world.planned()
    assert [one.windows for one in planned] == [["ingest/1"], *([[world.expiring]] if world.expiring else [])]
    world.compact("run 9")
    world.vacuum()
    assert world.admin.remains(world.opened, world.sink.name, gone) == ""
    assert world.planned() == []
    assert world.shown() == world.counting() == world.wanted()


@in_lakes
@pytest.mark.covers("L1", "L2")
@pytest.mark.parametrize("known", [False, True])
def test_a_reader_begins_again_where_a_compaction_has_removed_what_was_erased(
    known: bool, world: LatestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with what was erased go at once. A reader may have begun with the version that names them, before or after
    the ledger's commit of the erasure."""
    world.ingest()
    gone, lane = offsets((0, 4, 5)), lanes.lane_name(LaneKind.ERASE, "erasure")
    if known:
        with monkeypatch.context() as killed:
            killed.setattr("tidemark.sinks.latest.table.take_out", None)
            with pytest.raises(ProcessingFailed):
                world.erase(gone)
    began = False

    def beside(*given: Any) -> Any:
        nonlocal began
        if began:
            return newest_by_the_ledger(*given)
        began = True
        # What is on its way into the table by then is read here, and everything else afterwards.
        read = None if known else newest_by_the_ledger(*given)
        lanes.finish(world.opened, lane) if known else world.erase(gone)
        world.vacuum()
        return read or newest_by_the_ledger(*given)

    with monkeypatch.context() as patched:
        patched.setattr("tidemark.sinks.latest.table._newest", beside)
        rows = [row["coordinate"] for row in world.admin.rows(world.opened, world.sink, 9)]
    assert (rows, began) == (["orders/0@3"], True)


@pytest.mark.covers("L2")
def test_readers_do_not_show_what_another_stream_has_erased(world: LatestInMemory) -> None:
    world.ingest()
    opened = replace(world.opened, ledger=world.opened.ledger.hiding(offsets((0, 4, 5))))
    (shown,) = world.admin.rows(opened, world.sink, 10)
    assert (shown["coordinate"], shown["fields"]["value"]) == ("orders/0@3", "0@3")
    assert world.shown() == world.wanted() == {1: ((4, 0, 0), "0@4", False)}


@in_lakes
@pytest.mark.covers("L3")
def test_older_versions_go_after_their_hours(world: LatestInMemory) -> None:
    world.ingest()
    world.ends((0, 6), (0, 0))
    world.ingest()
    assert world.table_files() == 2
    world.vacuum()
    assert world.table_files() == 2
    world.vacuum(hours=0)
    assert world.table_files() == 1
    assert world.shown() == world.counting() == world.wanted()
    # The history is none of the table's files, and a vacuum leaves it.
    world.replay(offsets((0, 5, 6)), "replay 1")
    assert world.shown() == world.wanted()


@pytest.mark.covers("L1")
def test_a_table_keeps_its_key_and_its_buckets(world: LatestInMemory) -> None:
    world.ingest()
    with pytest.raises(WrongUse, match=r'was made with the key \["id"\], the stream file says \["value"\]'):
        world.prepare(key=["value"])
    with pytest.raises(WrongUse, match="was made with the number of buckets 3, the stream file says 4"):
        world.prepare(buckets=4)
    with pytest.raises(OwnedByAnother, match="belongs to stream orders"):
        world.prepare(stream="another")


@pytest.mark.covers("L1")
def test_a_table_that_is_gone_is_not_begun_anew(world: LatestInMemory) -> None:
    world.ingest()
    rmtree(world.base.removeprefix("file://"))
    (window,) = world.opened.ledger.committed()
    with pytest.raises(Unreachable):
        world.admin.publish(world.opened.ledger, world.opened.connections, window.record.places[0].place, window.record)
    with pytest.raises(Unreachable, match="windows have their results in it; its disk may not be mounted"):
        check_mounted(world.opened.ledger, world.opened.connections, [world.sink])


@pytest.mark.covers("L1")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [1.5, float("nan"), None]),
        (pa.float32(), [0.0, -float("nan"), None]),
        (pa.string(), ["a", "", None]),
        (pa.decimal128(9, 2), [Decimal("1.10"), Decimal("1.11"), None]),
        (pa.date32(), [date(2026, 11, 27), date(1969, 1, 1), None]),
        (pa.binary(), [b"a", b"", None]),
        (pa.bool_(), [True, False, None]),
    ],
)
def test_null_is_a_key_like_any_other(kind: pa.DataType, values: list[Any]) -> None:
    rows = pa.table(
        {
            "_topic": ["orders"] * 6,
            "_incarnation": [1] * 6,
            "_partition": [0] * 6,
            "_offset": range(6),
            "_index": [0] * 6,
            "key": pa.array([*values, *(-one if isinstance(one, float) and one == 0 else one for one in values)], kind),
        }
    )
    epochs = Epochs({"orders": (TopicIncarnation(topic_id="id", incarnation=1, since=1, partitions=1),)})
    assert list(newest(rows, ["key"], epochs)) == [3, 4, 5]


@pytest.mark.slow
@pytest.mark.covers("U28")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 50])
def test_looking_through_finds_the_newest_rows_of_keys_once_and_no_others(
    kind: str, count: int, tmp_path: Path
) -> None:
    """By the offsets that they come from: of a key that was overwritten, one row alone."""
    world = KINDS[kind](tmp_path)
    world.code = random_code(1)
    for until in (10, 25):
        world.ends((0, until), (0, until // 2))
        world.ingest()
    world.code = random_code(2)
    lane = world.replay(offsets((0, 3, 20)), "replay 1").lane
    opened, name = world.opened, world.sink.name
    shown = {(row["coordinate"], row["index"]): row for row in world.admin.rows(opened, world.sink, 1_000)}
    found = browsed(opened, name, count=count)
    assert [(one.at, one.index) for one in found] == sorted((one.at, one.index) for one in found)
    deleted = {(str(one.at), one.index): one.deleted for one in found}
    assert deleted == {place: row["deleted"] for place, row in shown.items()}
    assert {*deleted.values()} == {True, False}
    values = {place for place, row in shown.items() if "code 1" in row["fields"].get("value", "")}
    assert 0 < len(values) < len(shown)
    assert {*places_of(browsed(opened, name, "value contains 'code 1'", count=count))} == values
    # The window of the replay is the newest one, and its rows come first.
    back = places_of(browsed(opened, name, count=count, backwards=True))
    replayed = places_of(browsed(opened, name, window=lane))
    assert (len(back), {*back}) == (len(shown), {*shown})
    assert 0 < len(replayed) < len(shown)
    assert {*back[: len(replayed)]} == {*replayed}
    # What is committed counts before others see it.
    world.ends((0, 40), (0, 20))
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    shown = {(row["coordinate"], row["index"]): row for row in world.admin.rows(opened, world.sink, 1_000)}
    assert {*shown} != {*back}
    assert {*places_of(browsed(opened, name))} == {*shown}
