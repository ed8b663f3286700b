"""A place that is away stops an erasure before its commit, and no stream after it; one that is gone is said to be gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.erasures import ANN, REASON, Killed
from tests.support.lakes import Lake
from tests.support.memory import MemoryStore
from tests.support.protocol_world import NoWork, hold
from tests.support.streams_in_memory import StreamInMemory, offsets
from tidemark.audit.levels import Level
from tidemark.audit.page import page_of
from tidemark.cli import stream_lookup
from tidemark.cli.commands import ledger
from tidemark.clients.connections import Connection
from tidemark.clients.hbase.endpoint import TableMissing
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.errors import ConnectionMissing, ProcessingFailed, TidemarkError, Unreachable, WrongUse
from tidemark.ledger import places
from tidemark.ledger.erasures import WrittenPlace, erased, places_written
from tidemark.ledger.ledger import REGISTER, Ledger
from tidemark.ledger.records import INGEST, Receipt, Record, SinkReceipt
from tidemark.ledger.recovery.backup import restore
from tidemark.ledger.recovery.rebuilding import rebuild
from tidemark.ledger.register import note_places
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing, steering
from tidemark.runs.auditing import audit_without_spark
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.hbase.sink import HBaseAdmin
from tidemark.sinks.sweeping import SinkSweeper
from tidemark.views.events import events

FIVE = offsets((0, 5, 6))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Offsets 0 to 10 are in a folder of files. The table of the dead letters answers, and holds nothing."""
    monkeypatch.setattr(HBaseAdmin, "erase", lambda *_: None)
    monkeypatch.setattr(HBaseAdmin, "reach", lambda *_: None)
    made = Lake(tmp_path)
    made.ingest()
    return made


def away(lake: Lake) -> None:
    (lake.folder / "lake").rename(lake.folder / "not mounted")


def back(lake: Lake) -> None:
    (lake.folder / "not mounted").rename(lake.folder / "lake")


def open_erasure(lake: Lake, run: str = "e") -> str:
    return erasing.open_erasure(lake.stream.opened, run, erasing.choose(lake.stream.opened, FIVE), REASON, ANN)


def goes_on(lake: Lake, end: int) -> None:
    """The ingest pins and commits."""
    lake.stream.ends((0, end))
    assert ingest.plan_ingest(lake.stream.opened, f"run {end}") is not None
    opened = lake.stream.opened
    seq = opened.ledger.head(INGEST).head.seq + 1  # type: ignore[union-attr]
    protocol.process(opened.ledger, opened.sweeper, NoWork(), hold, INGEST, seq, Run(f"run {end}", "v", "d"))


def forget(lake: Lake, *words: str) -> None:
    ledger = lake.stream.opened.ledger
    places.forget(ledger, places.named(ledger, words), "the disk broke", "ann")


def said_to_remain(lake: Lake) -> str:
    return next(one.remains for one in erasing.remaining(lake.stream.opened, FIVE) if one.name == "lake")


def settled_without(lake: Lake, lane: str) -> None:
    """The stream goes on, the erasure is done, and its answer and the audit say what was not cleared."""
    opened = lake.stream.opened
    goes_on(lake, 20)
    erasing.erase(opened, lane, "e")
    assert erased(opened.ledger.committed()) == FIVE
    assert "not cleared: ann said at 1970" in said_to_remain(lake)
    assert "gone for good: the disk broke" in said_to_remain(lake)
    report = audit_without_spark(opened, "a", Level.LEDGER)
    assert [(one.name, one.place, one.reason, one.by) for one in report.forgotten] == [
        ("lake", f"base={lake.base}", "the disk broke", "ann")
    ]
    assert "the disk broke" in page_of(report)
    assert [one.why for one in events(opened.ledger) if one.what == "place forgotten"] == ["the disk broke (ann)"]


@pytest.mark.covers("N60")
def test_an_erasure_is_refused_while_a_place_is_away(lake: Lake) -> None:
    away(lake)
    told = (
        rf"lake is not there, and windows have their results in it; its disk may not be mounted. .*Nothing was erased. .*"
        rf"tidemark ledger forget-place orders lake base={lake.base} --reason"
    )
    with pytest.raises(Unreachable, match=told):
        open_erasure(lake)
    assert lake.stream.opened.ledger.register()[1].lanes.keys() == {INGEST}  # type: ignore[index]
    goes_on(lake, 15)
    # When it is there again, the same request goes through.
    back(lake)
    lane = open_erasure(lake)
    erasing.erase(lake.stream.opened, lane, "e")
    assert erased(lake.stream.opened.ledger.committed()) == FIVE


@pytest.mark.covers("N60")
def test_a_place_that_goes_away_after_the_request(lake: Lake) -> None:
    """Its window is not committed: it can be given up, and all other lanes go on."""
    lane = open_erasure(lake)
    away(lake)
    with pytest.raises(Unreachable, match="forget-place"):
        erasing.erase(lake.stream.opened, lane, "e")
    assert erased(lake.stream.opened.ledger.committed()) == RangeSet()
    goes_on(lake, 15)
    steering.cancel(lake.stream.opened, lane, "the disk is away")
    forget(lake, "lake")
    lane = open_erasure(lake, "again")
    erasing.erase(lake.stream.opened, lane, "again")
    assert erased(lake.stream.opened.ledger.committed()) == FIVE


class Vanishing(SinkSweeper):
    """The folder goes away between the commit and the clearing of it."""

    lake: Lake

    def erase(self, record: Record, erased: RangeSet, places: Sequence[WrittenPlace]) -> None:
        if (self.lake.folder / "lake").exists():
            away(self.lake)
        super().erase(record, erased, places)


@pytest.mark.covers("N60")
def test_a_place_that_goes_away_between_the_commit_and_the_clearing(lake: Lake) -> None:
    opened = lake.stream.opened
    sweeper = Vanishing(opened.connections)
    sweeper.lake = lake
    lake.stream.opened = opened = replace(opened, sweeper=sweeper)
    lane = open_erasure(lake)
    with pytest.raises(Unreachable, match="Until that is done, no run of orders goes on"):
        erasing.erase(opened, lane, "e")
    lake.stream.ends((0, 20))
    for act in (
        lambda: ingest.plan_ingest(opened, "run 20"),
        lambda: steering.cancel(opened, lane, "the disk broke"),
        lambda: lanes.plan_lane(opened, lane, "e"),
    ):
        with pytest.raises(Unreachable, match="forget-place orders lake"):
            act()
    forget(lake, "lake", f"base={lake.base}")
    settled_without(lake, lane)


@pytest.mark.covers("N60")
def test_a_forgotten_place_that_is_there_again_is_cleared_before_it_is_written(lake: Lake) -> None:
    opened = lake.stream.opened
    lane = lake.cancelled_replay()
    (left,) = [one for one in lake.holding(5) if lane in one]
    away(lake)
    forget(lake, "lake")
    erasing.erase(opened, open_erasure(lake), "e")
    lake.stream.ends((0, 20))
    assert ingest.plan_ingest(opened, "run 20") is not None
    back(lake)
    with pytest.raises(
        WrongUse, match=rf"gone for good: the disk broke.*forget-place orders lake base={lake.base} --back"
    ):
        lake.work(INGEST, "run 20")
    assert left in lake.holding(5)
    with pytest.raises(WrongUse, match="nobody has said"):
        places.come_back(opened.ledger, SinkReceipt(name="other", type="hbase", place={}), opened.sweeper.erase)
    place = places.named(opened.ledger, ["lake"])
    # A crash on the way: nothing is written there until all of it is cleared.
    with pytest.raises(Killed):
        places.come_back(opened.ledger, place, _killed)
    with pytest.raises(WrongUse, match="--back"):
        note_places(opened.ledger, [place])
    assert places.come_back(opened.ledger, place, opened.sweeper.erase) == 1
    assert left not in lake.holding(5)
    lake.stream.now += 1
    lake.work(INGEST, "run 20")
    assert "not cleared" not in said_to_remain(lake)


def _killed(*_: object) -> None:
    raise Killed


ELSEWHERE = SinkReceipt(name="rows", type="hbase", place={"connection": "hbase_old", "table": "orders"})


class WithAttempts(NoWork):
    """Work whose receipt names a place. The first attempts die."""

    def __init__(self, made: StreamInMemory, place: SinkReceipt, dies: int) -> None:
        self._made, self._place, self._dies = made, place, dies

    def verify(self) -> Receipt:
        note_places(self._made.opened.ledger, [self._place])
        if self._dies:
            self._dies -= 1
            raise Killed
        return Receipt(tallies=(), sinks=(self._place,), dead_letters=None, started_at=1, finished_at=2)


def no_connection(name: str) -> Connection:
    raise ConnectionMissing(f"there is no connection {name}")


def dropped(*_: object) -> None:
    raise TableMissing("no such table")


def broken(*_: object) -> None:
    raise KeyError("a bug of an own sink")


@pytest.mark.covers("N60")
@pytest.mark.parametrize(
    ("problem", "raised"),
    [(None, ConnectionMissing), (dropped, Unreachable), (broken, ProcessingFailed)],
    ids=["no connection", "no table", "a bug"],
)
def test_a_sweep_of_a_place_that_is_gone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problem: Callable[..., None] | None,
    raised: type[TidemarkError],
) -> None:
    """The second attempt at a window owes a sweep. What is gone then would stop all lanes after the commit."""
    made = StreamInMemory(tmp_path)
    if problem is not None:
        monkeypatch.setattr(HBaseAdmin, "sweep", problem)
    made.opened = replace(made.opened, sweeper=SinkSweeper(no_connection), connections=no_connection)
    made.ends((0, 10))
    work = WithAttempts(made, ELSEWHERE, dies=1)
    assert ingest.plan_ingest(made.opened, "run 1") is not None
    run = Run("run 1", "v", "d")
    with pytest.raises(Killed):
        protocol.process(made.opened.ledger, made.opened.sweeper, work, hold, INGEST, 1, run)
    told = r"the sink rows \(hbase, connection=hbase_old table=orders\).*forget-place orders rows connection=hbase_old"
    with pytest.raises(raised, match=told):
        protocol.process(made.opened.ledger, made.opened.sweeper, work, hold, INGEST, 1, run)
    made.ends((0, 20))
    with pytest.raises(raised, match=told):
        ingest.plan_ingest(made.opened, "run 2")
    places.forget(made.opened.ledger, ELSEWHERE, "the cluster was switched off", "ann")
    assert ingest.plan_ingest(made.opened, "run 2") is not None


@pytest.mark.covers("N60")
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 10))
    made.ingest()
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    other = SinkReceipt(name="rows", type="hbase", place={"connection": "hbase_new", "table": "my orders"})
    note_places(made.opened.ledger, [ELSEWHERE, other])
    with pytest.raises(
        WrongUse, match=r"'rows' names several places; say which: rows connection=hbase_old table=orders; rows"
    ):
        ledger.forget_place("orders", yes=True, place=["rows"], reason="gone")
    with pytest.raises(
        WrongUse, match=r"'nothing' names no place where results may be; expected one of:.*'table=my orders'"
    ):
        ledger.forget_place("orders", yes=True, place=["nothing"], reason="gone")
    with pytest.raises(WrongUse, match="needs a reason"):
        ledger.forget_place("orders", yes=True, place=["rows", "table=my orders"])
    for _ in range(2):
        # Saying it again changes nothing.
        ledger.forget_place("orders", yes=True, place=["rows", "table=my orders"], reason="switched off")
        made.now += 5_000
    (gone,) = made.opened.ledger.register()[1].forgotten  # type: ignore[index]
    assert (gone.place, gone.reason, gone.at) == (other, "switched off", 1_000_000)
    assert "What it holds of erased messages is not cleared" in capsys.readouterr().out
    ledger.forget_place("orders", yes=True, place=["rows", "table=my orders"], back=True)
    assert made.opened.ledger.register()[1].forgotten == ()  # type: ignore[index]


@pytest.mark.covers("N60")
def test_a_rebuilt_register_knows_the_places_of_the_history(lake: Lake, tmp_path: Path) -> None:
    ledger = lake.stream.opened.ledger
    del lake.stream.store.values[REGISTER]
    _, missing = rebuild(ledger, tmp_path / "rebuilt", lambda: "the mark of the results", lambda type_: False)
    assert any("places that only attempts without a commit have written to" in one for one in missing)
    there = Ledger(MemoryStore(), "orders")
    restore(there, tmp_path / "rebuilt")
    again = there.register()
    assert again is not None
    assert [one.words for one in again[1].places] == [("lake", f"base={lake.base}")]
    assert [one.place.words for one in places_written(there)] == [("lake", f"base={lake.base}")]
