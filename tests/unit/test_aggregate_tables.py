"""Tables in HBase with aggregates of each key, against a small model: whatever runs, replays, dies and wakes up late."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.hbase_in_memory import CLUSTERS
from tests.support.latest_tables import (
    Change,
    DeltaAggregatesInMemory,
    HBaseAggregatesInMemory,
    IcebergAggregatesInMemory,
    Killed,
    TotalsInMemory,
    rewritten,
)
from tests.support.streams_in_memory import offsets
from tests.support.table_stories import Story, random_code
from tidemark.commit.protocol import Step
from tidemark.errors import Fenced, WrongUse
from tidemark.ledger.records import INGEST, LaneKind, Record
from tidemark.runs.windows import lanes
from tidemark.runs.windows.ingest import plan_ingest
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.hbase.keyed.table import KeyedTable
from tidemark.sinks.owners import OWNER_ROW
from tidemark.sinks.parquet import compactions, files, steps

pytestmark = pytest.mark.usefixtures("hbase_in_memory")

SEEDS = 16
LAKES: dict[str, Callable[..., TotalsInMemory]] = {
    "delta_aggregates": DeltaAggregatesInMemory,
    "iceberg_aggregates": IcebergAggregatesInMemory,
}
KINDS: dict[str, Callable[..., TotalsInMemory]] = {**LAKES, "hbase_aggregates": HBaseAggregatesInMemory}
SHORT, LONG = pytest.mark.covers("G2"), pytest.mark.full


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(one, marks=SHORT if one < SEEDS // 2 else LONG) for one in range(SEEDS)])
@pytest.mark.parametrize("kind", KINDS)
def test_each_key_has_the_totals_of_what_counts(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = KINDS[kind](tmp_path, wide=seed % 2 == 1)
    world.code = random_code(0)
    story = Story(world, seed, monkeypatch)
    story.ingest()
    for _ in range(12):
        story.step()


@pytest.mark.covers("N108")
@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_summed_may_have_another_name(kind: str, tmp_path: Path) -> None:
    world = KINDS[kind](tmp_path, code=lambda _, offset: [Change(offset % 7, f"m{offset}")])
    world.ends((0, 14))
    world.ingest()
    renamed = ("    number: integer\n", "    count: integer\n", "numbers: {sum: number}", "numbers: {sum: count}")
    world.rewrite(*renamed, "stream: orders\n", "stream: orders\nwas: {count: number}\n")
    # Of both names.
    world.replay(offsets((0, 2, 5)), "replay 1")
    world.check(published=True)
    world.ends((0, 20))
    world.ingest()
    world.check(published=True)


class OneKey:
    """A stream whose rows all have one key: offsets below 10 are there for backfills, those above are ingested."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.world, self.patch = HBaseAggregatesInMemory(folder, late=True), patch
        self.threads = ThreadPoolExecutor()
        self.world.code = lambda partition, offset: [Change(1, f"{offset}")]
        self.world.ends((0, 10))
        self.world.ingest("run 0")

    def claimed(self, kind: LaneKind, start: int, until: int, run: str) -> Callable[[], Record]:
        """What commits a window of these offsets, and dies before it publishes. Whoever begins publishes what others left."""
        lane = claim_lane(self.world.opened, kind, run, offsets((0, start, until)), "a test")
        assert lanes.plan_lane(self.world.opened, lane, run) is not None
        return partial(self._committed, lane, run)

    def ingesting(self, end: int) -> Callable[[], Record]:
        """The same of the ingest, up to an offset."""
        self.world.ends((0, end))
        run = f"run {end}"
        assert plan_ingest(self.world.opened, run) is not None
        return partial(self._committed, INGEST, run)

    def _committed(self, lane: str, run: str) -> Record:
        with pytest.raises(Killed):
            self.world.process(lane, run, until=Step.COMMITTED)
        return self.last(lane)

    def last(self, lane: str) -> Record:
        found = self.world.opened.ledger.head(lane)
        assert found is not None
        assert found.head.last is not None
        return found.head.last

    def publish(self, record: Record) -> None:
        (place,) = record.places
        self.world.admin.publish(self.world.opened.ledger, self.world.opened.connections, place.place, record)

    def before_the_rows(self, act: Callable[[], object]) -> None:
        """Do something once, in the moment when a publication has read the ledger, and not the table."""
        real = KeyedTable.rows

        def rows(*given: Any) -> Any:
            self.patch.setattr(KeyedTable, "rows", real)
            act()
            return real(*given)

        self.patch.setattr(KeyedTable, "rows", rows)

    def slow(self, record: Record) -> Callable[[], None]:
        """Begin a publication that gets its number and falls asleep. What is returned lets it go on to its end."""
        begun, go_on = threading.Event(), threading.Event()
        real = KeyedTable.begin

        def begin(*given: Any) -> Any:
            number = real(*given)
            self.patch.setattr(KeyedTable, "begin", real)
            begun.set()
            assert go_on.wait(30)
            return number

        self.patch.setattr(KeyedTable, "begin", begin)
        publishing = self.threads.submit(self.publish, record)
        assert begun.wait(30)

        def to_the_end() -> None:
            go_on.set()
            publishing.result(30)

        return to_the_end

    def settled(self) -> None:
        """Runs that finish what is left, and a look at the table."""
        self.world.ingest("the end")
        for lane in self.world.opened.ledger.heads():
            if lane != INGEST:
                self.world.finish(lane, "the end")
        self.world.check(published=True)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneKey:
    return OneKey(tmp_path, monkeypatch)


@pytest.mark.covers("G2")
def test_a_window_that_is_settled_while_another_is_published_counts_once(one: OneKey) -> None:
    """Publications 2 and 3 of three: the third has read the ledger before the second, and the row after it."""
    one.world.ends((0, 12))
    one.world.ingest("run 1")
    ingest, replay = one.ingesting(13), one.claimed(LaneKind.REPLAY, 10, 12, "replay")
    window = ingest()
    one.publish(window)
    second = one.slow(window)

    def settled() -> None:
        # Its own process is done. The second publication then knows it as settled, and names it no more.
        one.world.opened.ledger.mark_settled(window)
        replay()
        second()

    one.before_the_rows(settled)
    one.publish(window)
    # All are published, though the replay's own process is not done.
    one.world.check(published=True)
    one.settled()


@pytest.mark.covers("G2")
def test_a_window_that_is_committed_while_keys_are_computed_anew_counts_once(one: OneKey) -> None:
    """The history was read before, so the row has not counted it, and must not name it."""
    one.world.ends((0, 12))
    one.world.ingest("run 1")
    ingest, again = one.ingesting(15), one.claimed(LaneKind.REPLAY, 10, 12, "replay")()
    one.before_the_rows(ingest)
    one.publish(again)
    one.world.opened.ledger.mark_settled(again)
    one.settled()


@pytest.mark.covers("G2")
def test_a_row_goes_on_to_name_what_another_publication_has_counted(one: OneKey) -> None:
    """The third publication does not know the window of the ingest, which the second has counted: it was committed later."""
    one.world.ends((0, 12))
    one.world.ingest("run 1")
    first, other = (one.claimed(LaneKind.BACKFILL, start, start + 3, f"from {start}") for start in (0, 5))
    ingest = one.ingesting(15)
    second = one.slow(first())
    third = other()

    def committed() -> None:
        ingest()
        second()

    one.before_the_rows(committed)
    one.publish(third)
    one.settled()


@pytest.mark.covers("N76")
def test_a_compaction_whose_folder_a_newer_one_has_removed_is_fenced(tmp_path: Path) -> None:
    """In the moment after the folder was written. It was said that a disk may not be mounted."""
    world = HBaseAggregatesInMemory(tmp_path)
    for end in (3, 6):
        world.ends((0, end))
        world.ingest(f"run {end}")
    history = world.sink.history(world.opened.connections)

    def removed(group: Any, folder: str, heard: Any) -> int:
        rows = rewritten(group, folder, heard)
        compactions.claim(world.opened.ledger, history.name, "newer")
        files.delete(folder)
        return rows

    with pytest.raises(Fenced, match="begun by run newer"):
        steps.compact(world.opened, history, "older", CompactionRequest(), removed)
    world.check(published=True)


@pytest.mark.covers("G2")
def test_a_table_of_blocks_is_refused(tmp_path: Path) -> None:
    """By readers too."""
    world = HBaseAggregatesInMemory(tmp_path)
    world.ends((0, 3))
    world.ingest()
    mark = {"stream": "orders", "ledger": world.ledger, "key": ["id"], "values": {}, "block_offsets": 1_000}
    cluster = CLUSTERS[world._host]
    cluster.put("orders_latest", [(OWNER_ROW, b"t:owner", json.dumps(mark).encode())], cluster.now() + 10)
    refused = r"made by an earlier version of Tidemark.*fill it by a replay of everything"
    with pytest.raises(WrongUse, match=refused):
        world.prepare()
    with pytest.raises(WrongUse, match=refused):
        [*world.admin.rows(world.opened, world.sink, 10)]
