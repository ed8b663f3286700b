"""What was erased stays erased: no request takes it, no lane may claim it, and the ledger says who erased it, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.claiming import claim_lane, claim_lanes
from tests.support.protocol_world import NoWork, hold
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.audit.coverage import coverage
from tidemark.audit.report import prove_coverage, tombstone_reports
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Listener
from tidemark.errors import (
    ClaimOverlap,
    Fenced,
    NotApproved,
    OffsetsErased,
    StaleLedger,
    Unreachable,
    WrongUse,
)
from tidemark.ledger.erasures import erased, tombstones
from tidemark.ledger.holes import Ingest
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import INGEST, Attempt, Erasure, LaneKind, Record, SinkReceipt, positions
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import NewLane, note_places, open_lane, open_together
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs import erasing, steering
from tidemark.runs.requests import keys
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.requests.forms import BackfillRequest, EraseRequest, ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.requests.selecting import divided
from tidemark.runs.windows import ingest, lanes
from tidemark.runs.windows.empty_windows import commit_unread
from tidemark.sinks.hbase.sink import HBaseAdmin
from tidemark.sinks.sweeping import SinkSweeper
from tidemark.views.messages import trace
from tidemark.views.messages.fates import CoveringWindow, Fate, possible

LATER = TEXT.replace("start: earliest", "start: {offsets: {orders/0: 20}}")
REASON = "request 4711"
ANN = Requesters("ann")


def made_in(folder: Path, text: str = LATER) -> StreamInMemory:
    """The ingest has read [20, 40) in two windows; Kafka has [0, 50)."""
    stream = StreamInMemory(folder, text=text)
    for end in (30, 40):
        stream.ends((0, end))
        stream.ingest(f"run {end}")
    stream.ends((0, 50))
    return stream


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    return made_in(tmp_path)


def opened_lane(made: StreamInMemory, wanted: RangeSet, run: str = "erasure", by: Requesters = ANN) -> str:
    return erasing.open_erasure(made.opened, run, erasing.choose(made.opened, wanted), REASON, by)


def erase(made: StreamInMemory, wanted: RangeSet, run: str = "erasure") -> Record:
    lane = opened_lane(made, wanted, run)
    pending = lanes.plan_lane(made.opened, lane, run)
    assert pending is not None
    assert not made.opened.ledger.reads(pending.window)
    record = commit_unread(made.opened, lane, pending.window.seq, run)
    lanes.finish(made.opened, lane)
    return record


def read(made: StreamInMemory, lane: str, run: str) -> RangeSet:
    found = RangeSet()
    while lanes.plan_lane(made.opened, lane, run) is not None:
        found |= made.opened.ledger.covers(made.process(lane, run).window)
    lanes.finish(made.opened, lane)
    return found


@pytest.mark.covers("N27")
def test_what_is_erased_has_no_result_and_a_tombstone(made: StreamInMemory) -> None:
    # A hole may be erased too, and offsets that Kafka has deleted.
    made.ends((25, 50))
    record = erase(made, offsets((0, 10, 12), (0, 22, 23), (0, 35, 36)))
    windows = made.opened.ledger.committed()
    (stone,) = tombstones(windows)
    assert (stone.offsets, stone.asked_by, stone.record.window.reason) == (
        offsets((0, 10, 12), (0, 22, 23), (0, 35, 36)),
        "ann",
        REASON,
    )
    assert stone.said() == f"erased by {record.lane}, {stone.said().rpartition(', ')[2]}"
    authority = made.opened.ledger.authority()
    assert {authority.of(at(0), one) for one in (10, 22, 35)} == {record.attempt.generation}
    assert look_up(made.opened.ledger, Coordinate(at(0), 22)).windows[0] == record
    # Every place where an older window has written is cleared, and the tables of today's file are not asked for.
    assert made.sweeps.erased == [(record.lane, stone.offsets)]
    (report,) = tombstone_reports(windows)
    assert (report.offsets, report.asked_by, report.reason) == (4, "ann", REASON)
    assert verify(made.opened.ledger) == []
    # It is no hole, and no overlap either.
    (proof,) = prove_coverage(windows, Ingest({at(0): 10}, {at(0): 40}))
    assert (proof.holes, proof.overlaps) == (offsets((0, 12, 20)), RangeSet())
    (part,) = coverage(windows, Ingest.seen(made.opened.ledger.view()))
    assert part.lanes[record.lane] == stone.offsets


@pytest.mark.covers("N27")
def test_no_lane_may_claim_it_whoever_asks(made: StreamInMemory) -> None:
    erase(made, offsets((0, 10, 11), (0, 25, 26)))
    ledger = made.opened.ledger
    for kind, wanted in (
        (LaneKind.REPLAY, offsets((0, 24, 27))),
        (LaneKind.BACKFILL, offsets((0, 10, 12))),
        (LaneKind.ERASE, offsets((0, 25, 26))),
    ):
        ref = ledger.store_selection(wanted)
        with pytest.raises(OffsetsErased, match=r"orders/0@\d+-\d+: erased"):
            open_lane(ledger, f"{kind.value}-by-hand", kind, run="x", start=positions({at(0): 10}), selection=ref)
    # What opens lanes for everybody leaves it out: also for an audit's findings from before.
    lane = claim_lane(made.opened, LaneKind.REPLAY, "repair", offsets((0, 20, 40)), "findings")
    assert read(made, lane, "repair") == offsets((0, 20, 25), (0, 26, 40))
    with pytest.raises(WrongUse, match="nothing to replay: everything selected was erased"):
        claim_lane(made.opened, LaneKind.REPLAY, "again", offsets((0, 25, 26)), "findings")


@pytest.mark.covers("N27", "N14")
def test_what_is_erased_is_gone_from_every_sink_also_those_that_were_filled_alone(made: StreamInMemory) -> None:
    ledger, (name,) = made.opened.ledger, [sink.name for sink in made.opened.stream.sinks]
    filled = claim_lane(made.opened, LaneKind.REPLAY, "fill", offsets((0, 20, 40)), "a new sink", sinks=(name,))
    read(made, filled, "fill")
    record = erase(made, offsets((0, 25, 26)))
    for sink in (None, name, "another"):
        assert ledger.authority(sink).of(at(0), 25) == record.attempt.generation
    again = claim_lane(made.opened, LaneKind.REPLAY, "again", offsets((0, 24, 27)), "once more", sinks=(name,))
    assert read(made, again, "again") == offsets((0, 24, 25), (0, 26, 27))
    assert ledger.authority(name).of(at(0), 25) == record.attempt.generation


ASKED: list[Callable[[], Any]] = [
    lambda: ReplayRequest(reason="bug 17", ranges="orders/0@0-50"),
    lambda: ReplayRequest(reason="bug 17", ignore_stored=True),
    lambda: ReplayRequest(reason="bug 17", records="\n".join(f"orders/0@{one}" for one in range(50))),
    lambda: ReplayRequest(reason="bug 17", since="1970-01-01T00:00:00Z"),
    lambda: BackfillRequest(reason="bug 17", ranges="orders/0@0-50"),
    lambda: BackfillRequest(reason="bug 17", ranges="orders/0@0-50", mode="reprocess"),
    lambda: BackfillRequest(reason="bug 17", everything_before=True),
    lambda: BackfillRequest(reason="bug 17", since="1970-01-01T00:00:00Z"),
]


@pytest.mark.covers("N27")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(gone=st.sets(st.integers(0, 38), min_size=1, max_size=8), number=st.integers(0, len(ASKED) - 1))
def test_no_request_takes_it(tmp_path_factory: pytest.TempPathFactory, gone: set[int], number: int) -> None:
    made = made_in(tmp_path_factory.mktemp("erased"))
    wanted = offsets(*((0, one, one + 1) for one in gone))
    erase(made, wanted)
    request = ASKED[number]()
    found = plan_request(made.opened, request)
    assert not found.all & wanted
    said = RangeSet(one for why, part in found.left_out.items() if why.startswith("erased by erase-") for one in part)
    named = RangeSet(one for part in (found.all, *found.left_out.values()) for one in part)
    assert said == wanted & named
    mine = claim_lanes(made.opened, request.kind, "asked", found.ranges, REASON, again=found.again)
    assert RangeSet(one for lane in mine for one in read(made, lane, "asked")) == found.all
    authority, (stone,) = made.opened.ledger.authority(), tombstones(made.opened.ledger.committed())
    assert authority.held_by(stone.record.attempt.generation, wanted) == wanted


@pytest.mark.covers("N27")
def test_an_erasure_and_another_lane_never_claim_the_same(made: StreamInMemory) -> None:
    replay = claim_lane(made.opened, LaneKind.REPLAY, "replay", offsets((0, 20, 30)), "a test")
    with pytest.raises(ClaimOverlap, match=rf"orders/0@25-26: claimed by the open lane {replay} \(run replay\)"):
        opened_lane(made, offsets((0, 25, 26)))
    steering.cancel(made.opened, replay, "a test")
    mine = opened_lane(made, offsets((0, 25, 26)))
    with pytest.raises(ClaimOverlap, match=rf"claimed by the open lane {mine}"):
        claim_lane(made.opened, LaneKind.REPLAY, "later", offsets((0, 20, 30)), "a test")
    # One that was not carried out erases nothing.
    steering.cancel(made.opened, steering.lanes_of(made.opened, "erasure")[0], "asked for the wrong one")
    assert not erased(made.opened.ledger.committed())
    assert plan_request(made.opened, ReplayRequest(reason="bug 17", ranges="orders/0@25-26")).ranges == offsets(
        (0, 25, 26)
    )


@pytest.mark.covers("N27")
def test_what_the_ingest_has_not_read_cannot_be_erased(made: StreamInMemory) -> None:
    with pytest.raises(WrongUse, match=r"at or above the ingest position: orders/0@40-41.*erase them after"):
        erasing.choose(made.opened, offsets((0, 39, 41)))
    ref = made.opened.ledger.store_selection(offsets((0, 39, 41)))
    with pytest.raises(ClaimOverlap, match="at or above the ingest position"):
        open_lane(made.opened.ledger, "erase-x", LaneKind.ERASE, run="x", start=positions({at(0): 39}), selection=ref)
    none = StreamInMemory(made.folder, made.kafka, f"{LATER}guarantee: none\n", made.store)
    with pytest.raises(WrongUse, match="nothing can be erased for good"):
        erasing.choose(none.opened, offsets((0, 25, 26)))


def test_a_second_erasure_names_the_first(made: StreamInMemory) -> None:
    first = erase(made, offsets((0, 25, 26)))
    chosen = erasing.choose(made.opened, offsets((0, 25, 27)))
    assert chosen.offsets == offsets((0, 26, 27))
    ((why, before),) = chosen.before.items()
    assert (why.startswith(f"erased by {first.lane}, "), before) == (True, offsets((0, 25, 26)))
    assert erasing.choose(made.opened, offsets((0, 25, 26))).offsets == RangeSet()
    assert {why: part for why, part in divided(made.opened, offsets((0, 24, 26))).items() if part} == {
        why: offsets((0, 25, 26)),
        "a window has read them": offsets((0, 24, 25)),
    }


@pytest.mark.covers("N97")
def test_what_was_shown_is_erased_or_nothing(made: StreamInMemory) -> None:
    asked = EraseRequest(records="orders/0@25\norders/0@26", reason=REASON, dry_run=True)
    shown, _ = erasing.requested(made.opened, "shown", asked, {})
    plan = erasing.digest(made.opened, shown)
    meant = asked.model_copy(update={"plan": plan, "dry_run": False})
    # What the ingest reads meanwhile is nothing to it, and who names the same in another way asks for the same.
    made.ingest("run 50")
    again = meant.model_copy(update={"records": "orders,0,26\norders,0,25"})
    assert erasing.requested(made.opened, "mine", again, {})[0] == shown
    erase_one = EraseRequest(records="orders/0@26", reason=REASON)
    chosen, _ = erasing.requested(made.opened, "another's", erase_one, {})
    lane = erasing.open_erasure(made.opened, "another's", chosen, REASON)
    erasing.erase(made.opened, lane, "another's")
    with pytest.raises(StaleLedger, match="since it was made, the offsets that would be erased"):
        erasing.requested(made.opened, "mine", meant, {})
    # So it is for one that was checked before, and has waited.
    with pytest.raises(StaleLedger, match="is stale: since it was made"):
        erasing.open_erasure(made.opened, "mine", erasing.choose(made.opened, shown.offsets), REASON, plan=plan)
    # Whoever has begun goes on with what was claimed.
    now, _ = erasing.requested(made.opened, "mine", meant.model_copy(update={"plan": ""}), {})
    fields = meant.fields()
    erasing.open_erasure(made.opened, "mine", now, REASON, asked=fields)
    assert erasing.requested(made.opened, "mine", meant, fields)[0].offsets == now.offsets


def test_an_erasure_that_died_is_gone_on_with(made: StreamInMemory) -> None:
    lane = opened_lane(made, offsets((0, 25, 26)))
    pending = lanes.plan_lane(made.opened, lane, "erasure")
    assert pending is not None
    made.sweeps.fails = True
    with pytest.raises(RuntimeError):
        commit_unread(made.opened, lane, pending.window.seq, "erasure")
    # It is committed. Whoever runs next clears the sinks first.
    made.sweeps.fails = False
    assert made.sweeps.erased == []
    made.ingest("the next run")
    assert made.sweeps.erased == [(lane, offsets((0, 25, 26)))]
    assert lanes.plan_lane(made.opened, lane, "erasure") is None


class _Paused(NoWork):
    """Work that others overtake while it writes; then it goes on, and fails if it is to."""

    def __init__(self, others: Callable[[], None], fails: Exception | None) -> None:
        self._others, self._fails = others, fails

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        self._others()
        if self._fails is not None:
            raise self._fails


@pytest.mark.covers("N27")
@pytest.mark.parametrize("fails", [None, Unreachable("a sink is away")], ids=["goes on", "fails"])
def test_an_attempt_that_wrote_after_an_erasure_clears_it_once_more(
    made: StreamInMemory, fails: Exception | None
) -> None:
    """It was paused between a look at its fence and a write, while the erasure cleared the sinks: nobody does so later."""
    pending = ingest.plan_ingest(made.opened, "slow")
    assert pending is not None
    erased_then: list[Record] = []

    def others() -> None:
        protocol.process(
            made.opened.ledger, made.sweeps, NoWork(), hold, INGEST, pending.window.seq, run, take_over=True
        )
        erased_then.append(erase(made, offsets((0, 44, 45))))

    run = protocol.Run("fast", "v1", "d")
    slow = replace(run, name="slow")
    work = _Paused(others, fails)
    with pytest.raises((Fenced, Unreachable)):
        protocol.process(made.opened.ledger, made.sweeps, work, hold, INGEST, pending.window.seq, slow)
    (record,) = erased_then
    assert made.sweeps.erased == [(record.lane, offsets((0, 44, 45)))] * 2


def test_an_attempt_that_fails_and_holds_its_window_clears_nothing(made: StreamInMemory) -> None:
    """While it holds the window, nobody can have erased anything of it; its failure costs one look at the head."""
    erase(made, offsets((0, 25, 26)))
    pending = ingest.plan_ingest(made.opened, "slow")
    assert pending is not None
    work = _Paused(lambda: None, Unreachable("a sink is away"))
    run = protocol.Run("slow", "v1", "d")
    with pytest.raises(Unreachable):
        protocol.process(made.opened.ledger, made.sweeps, work, hold, INGEST, pending.window.seq, run)
    assert len(made.sweeps.erased) == 1


def test_many_offsets_need_a_second_person(tmp_path: Path) -> None:
    made = made_in(tmp_path, f"{LATER}limits: {{approve_above: 2}}\n")
    with pytest.raises(NotApproved, match="3 offsets are more than 2"):
        opened_lane(made, offsets((0, 25, 28)))
    opened_lane(made, offsets((0, 25, 28)), by=Requesters("ann", "bob"))
    with pytest.raises(WrongUse, match="needs a reason"):
        erasing.open_erasure(made.opened, "x", erasing.choose(made.opened, offsets((0, 30, 31))), " ")


def test_an_erasure_that_an_earlier_version_has_begun_reads_nothing(made: StreamInMemory) -> None:
    """It had claimed the rest of a block, to read it again. What such windows have read counts."""
    ledger = made.opened.ledger
    claim, part = ledger.store_selection(offsets((0, 20, 30))), ledger.store_selection(offsets((0, 25, 26)))
    lane, erasure = lanes.lane_name(LaneKind.ERASE, "e"), Erasure(selection=part)
    start = positions({at(0): 20})
    open_together(
        ledger,
        NewLane(lane=lane, kind=LaneKind.ERASE, run="e", start=start, selection=claim, reason=REASON, erases=erasure),
    )
    erasing.erase(made.opened, lane, "e")
    (window,) = [one for one in ledger.committed() if one.record.lane == lane]
    assert window.covers == window.erased == offsets((0, 25, 26))
    assert lanes.is_done(made.opened, lane)
    (range_,) = window.record.window.ranges
    theirs = structs.replace(
        window.record.window, selection=claim, ranges=(structs.replace(range_, start=20, until=30),)
    )
    assert (ledger.erases(theirs), ledger.reads(theirs)) == (offsets((0, 25, 26)), offsets((0, 20, 25), (0, 26, 30)))


def test_an_erasure_asks_kafka_nothing(made: StreamInMemory) -> None:
    """Its topic may be gone, or its log."""
    made.kafka.logs.clear()
    record = erase(made, offsets((0, 25, 26)))
    assert made.opened.ledger.covers(record.window) == offsets((0, 25, 26))


ACCEPTING = TEXT.replace("start: earliest", "start: earliest\n  on_recreated: accept\n  on_truncated: accept")


@pytest.fixture
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """The first incarnation was read from 0 to 20 in partition 0, and was cut at 8. Of the second, [8, 12) was read."""
    monkeypatch.setattr("tidemark.runs.live.kafka_now._STALE_PAUSE_SECONDS", 0)
    made = StreamInMemory(tmp_path, text=ACCEPTING)
    made.ends((0, 20))
    made.ingest("run 1")
    made.ends((0, 8))
    made.ingest("run 2")
    made.ends((0, 12))
    made.ingest("run 3")
    return made


def named(made: StreamInMemory, records: str) -> list[str]:
    found, _ = erasing.wanted(made.opened, EraseRequest(records=records, reason=REASON))
    return [str(one) for one in found]


@pytest.mark.covers("N27")
def test_what_is_erased_is_what_show_shows(anew: StreamInMemory) -> None:
    """Below the cut it is the message of the first incarnation, above it that of the second."""
    said = [f"orders/0@{offset}" for offset in (3, 9)] + ["orders#1/0@9", "orders#2/0@9"]
    assert named(anew, "\n".join(said[:2])) == ["orders/0@3-4", "orders#2/0@9-10"]
    for one in said:
        (erased_one,) = named(anew, one)
        shown = trace.coordinate(anew.opened, one)
        assert erased_one == str(shown.as_range())
    record = erase(anew, erasing.wanted(anew.opened, EraseRequest(records="orders/0@3", reason=REASON))[0])
    authority = anew.opened.ledger.authority()
    assert authority.of(at(0), 3) == record.attempt.generation
    assert look_up(anew.opened.ledger, Coordinate(at(0), 3)).counting() == record
    # Kafka still has the message below the cut, and not the one that was written over.
    kafka = {
        offset: erasing.remaining(anew.opened, offsets((0, offset, offset + 1)))[-1].remains.partition(" ")[0]
        for offset in (3, 9)
    }
    assert kafka == {3: "1", 9: ""}


@pytest.mark.covers("N27")
def test_an_offset_that_only_another_incarnation_has_is_refused_until_it_is_named(anew: StreamInMemory) -> None:
    said = (
        r"^orders#2/0@15: no window has read this message, but one has read orders#1/0@15. Nothing was changed. Say which "
        r"you mean: orders#1/0@15 \(tidemark show orders orders#1/0@15\), or orders#2/0@15$"
    )
    with pytest.raises(WrongUse, match=said):
        named(anew, "orders/0@3\norders/0@15")
    assert named(anew, "orders#1/0@15") == ["orders/0@15-16"]
    record = erase(anew, RangeSet([OffsetRange(at(0), 15, 16)]))
    assert erased([one for one in anew.opened.ledger.committed() if one.record == record]) == offsets((0, 15, 16))
    # Of a topic that was created again, the first incarnation has what the third has not.
    anew.kafka.ids["orders"] = "created again"
    anew.ends((0, 2))
    anew.ingest("run 4")
    with pytest.raises(WrongUse, match=r"^orders#3/0@3: .* one has read orders#1/0@3"):
        named(anew, "orders/0@3")
    assert named(anew, "orders/0@1") == ["orders#3/0@1-2"]


def test_the_fate_of_an_erased_offset() -> None:
    assert possible(CoveringWindow(None, erased=True), None) == {Fate.ERASED}


@pytest.mark.parametrize(("said", "key"), [("me", b"me"), ("hex:00ff", b"\0\xff"), ("hex:", b"")])
def test_keys(said: str, key: bytes) -> None:
    assert keys.parse_key(said) == key


def test_a_key_that_is_none() -> None:
    with pytest.raises(WrongUse, match="expected hexadecimal digits"):
        keys.parse_key("hex:0g")


def test_a_place_of_a_type_that_is_not_installed_is_named_with_what_to_do(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of the stream's own has written there, and is gone: the plan shows the place, an erasure is refused by it."""
    monkeypatch.setattr(HBaseAdmin, "reach", lambda *_: None)
    made.opened = replace(made.opened, sweeper=SinkSweeper(made.opened.connections))
    written = SinkReceipt(name="search", type="elastic", place={"connection": "c", "index": "orders"})
    note_places(made.opened.ledger, [written])
    (found,) = [one for one in erasing.remaining(made.opened, offsets((0, 5, 6))) if one.name == "search"]
    assert found.remains.startswith("not known: the sink type 'elastic' is unknown here")
    told = (
        r"the sink search \(elastic, connection=c index=orders\): the sink type 'elastic' is unknown here.*Nothing was erased. "
        r".*tidemark ledger forget-place orders search connection=c index=orders --reason"
    )
    chosen = erasing.choose(made.opened, offsets((0, 5, 6)))
    with pytest.raises(WrongUse, match=told):
        erasing.open_erasure(made.opened, "erasure", chosen, "request 4711", Requesters("ann"))
    assert erased(made.opened.ledger.committed()) == RangeSet()
    assert made.opened.ledger.register()[1].lanes.keys() == {"ingest"}  # type: ignore[index]
