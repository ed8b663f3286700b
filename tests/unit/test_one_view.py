"""A decision is made of one view of the ledger: whatever another program commits between two of its reads changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane, claim_lanes
from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, offsets
from tidemark.errors import ClaimOverlap, Conflict, OffsetsErased, StaleLedger, WrongUse
from tidemark.ledger import places
from tidemark.ledger.erasures import erased
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, LaneKind, SinkReceipt
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.reading import Reading
from tidemark.runs import erasing, steering
from tidemark.runs.auditing import coverage_reports, read_ledger
from tidemark.runs.requests import keys
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.plan import check, plan_request
from tidemark.runs.requests.plan import digest as digest_of
from tidemark.runs.windows import lanes
from tidemark.views.event_time.progress import progress
from tidemark.views.events import events
from tidemark.views.plan import planned


@dataclass
class Watched(MemoryStore):
    """Calls `meanwhile` before a read of the history or a head, after so many of them."""

    left: int = -1
    meanwhile: Callable[[], None] = field(default=lambda: None)

    def __post_init__(self) -> None:
        super().__init__()

    def _read(self, key: Key) -> None:
        if key[0] not in ("history", "head", "register"):
            return
        self.left -= 1
        if self.left == -1:
            self.meanwhile()

    def read(self, key: Key) -> bytes | None:
        self._read(key)
        return super().read(key)

    def read_several(self, wanted: Any) -> list[bytes | None]:
        self._read(wanted[0] if wanted else ("none",))
        return super().read_several(wanted)

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        self._read(prefix)
        return super().scan(prefix)


def stream(folder: Path, text: str) -> StreamInMemory:
    made = StreamInMemory(folder, text=text, store=Watched())
    made.ends((0, 20))
    made.ingest("run 1")
    made.ends((0, 30))
    return made


def moments(
    folder: Path, text: str, what: Callable[[StreamInMemory], object]
) -> Iterator[tuple[StreamInMemory, list[bool]]]:
    """The same stream again and again: `what` happens before the first read of what is done with it, the second, and so on.

    The list has an item once it has happened. Ends with the stream in which it has not.
    """
    for number in range(200):
        place = folder / str(number)
        place.mkdir()
        made, happened = stream(place, text), list[bool]()
        store = made.store
        assert isinstance(store, Watched)

        def meanwhile(made: StreamInMemory = made, happened: list[bool] = happened) -> None:
            happened.append(True)
            what(made)

        store.left, store.meanwhile = number, meanwhile
        yield made, happened
        if not happened:
            return
    raise AssertionError("it never ends")


def erase(made: StreamInMemory) -> None:
    """Refused, if it comes after the replay has claimed the offsets."""
    with suppress(Conflict, WrongUse):
        _erase(made)


def _erase(made: StreamInMemory) -> None:
    lane = erasing.open_erasure(
        made.opened, "e", erasing.choose(made.opened, offsets((0, 0, 10))), "request", Requesters("ann")
    )
    while lanes.plan_lane(made.opened, lane, "e") is not None:
        made.process(lane, "e")
    lanes.finish(made.opened, lane)


@pytest.mark.slow
@pytest.mark.covers("N27")
@pytest.mark.parametrize("wanted", [(0, 5, 6), (0, 5, 15)])
def test_a_replay_that_meets_an_erasure_opens_its_lane_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(erasing, "_check_places", lambda *_: None)
    said: list[Exception] = []
    for made, happened in moments(tmp_path, TEXT, erase):
        try:
            mine = claim_lanes(made.opened, LaneKind.REPLAY, "run", offsets(wanted), "bug 17")
        except (OffsetsErased, ClaimOverlap, WrongUse) as problem:
            said.append(problem)
            assert happened
            assert lanes.lanes_of(made.opened, LaneKind.REPLAY, "run") == []
            continue
        assert mine == lanes.lanes_of(made.opened, LaneKind.REPLAY, "run") != []
        taken = lanes.selected_before(made.opened, mine[0])
        assert taken
        assert not taken & erased(made.opened.ledger.committed())
    assert any(isinstance(one, OffsetsErased) for one in said)
    assert all("erased" in str(one) or "claimed" in str(one) for one in said)


def digest(made: StreamInMemory, request: ReplayRequest) -> str:
    return digest_of(made.opened, plan_request(made.opened, request))


def replay(made: StreamInMemory) -> None:
    lane = claim_lane(made.opened, LaneKind.REPLAY, "other", offsets((0, 5, 8)), "another")
    while lanes.plan_lane(made.opened, lane, "other") is not None:
        made.process(lane, "other")
    lanes.finish(made.opened, lane)


@pytest.mark.slow
@pytest.mark.parametrize("what", [erase, replay, lambda made: made.ingest("run 2")], ids=["erase", "replay", "ingest"])
def test_a_plan_is_true_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Callable[[StreamInMemory], object]
) -> None:
    """Its offsets, its answers, what it replaces, and its digest are those from before a commit, or those from after it."""
    monkeypatch.setattr(erasing, "_check_places", lambda *_: None)
    monkeypatch.setattr("tidemark.runs.requests.plan.estimated", lambda *_: None)
    for number, asked in enumerate(
        (
            ReplayRequest(ranges="orders/0@3-25", reason="bug 17", dry_run=True),
            ReplayRequest(ignore_stored=True, reason="bug 17", dry_run=True),
            BackfillRequest(ranges="orders/0@0-20", mode="reprocess", reason="bug 17", dry_run=True),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()

        def plan(made: StreamInMemory, asked: ReplayRequest | BackfillRequest = asked) -> Any:
            found = planned(made.opened, asked)
            kept = {name: value for name, value in vars(found).items() if name not in ("made_at", "plan", "left_out")}
            return kept, found.plan, found.left_out.totals

        for made, _ in moments(folder, TEXT, what):
            seen = plan(made)
            after = plan(made)
            fresh = folder / f"fresh {made.folder.name}"
            fresh.mkdir()
            before = plan(stream(fresh, TEXT))
            assert seen[0] in (before[0], after[0])
            assert seen[2] in (before[2], after[2])
            assert (seen[0] == before[0]) or seen[1] == after[1]


def test_what_the_ingest_reads_meanwhile_is_not_gone_from_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "rows_of_pieces", lambda *_: iter(()))
    for made, _ in moments(tmp_path, TEXT, lambda made: made.ingest("run 2")):
        monkeypatch.setattr(type(made.opened), "dead_letter_table", lambda self: None)
        assert keys.find_key(made.opened, b"k", Reading()).unseen == 0


def test_an_audit_beside_an_ingest_finds_positions_and_windows_that_fit(tmp_path: Path) -> None:
    for made, _ in moments(tmp_path, TEXT, lambda made: made.ingest("run 2")):
        (proof,) = coverage_reports(read_ledger(made.opened))
        assert (proof.covered, proof.holes, proof.overlaps) == (proof.position, (), ())


def test_the_positions_of_a_view_are_those_after_its_last_window(tmp_path: Path) -> None:
    seen = set()
    for made, _ in moments(tmp_path, TEXT, lambda made: made.ingest("run 2")):
        view = made.opened.ledger.view()
        covered = view.authority.covered()
        assert view.below == covered != RangeSet()
        seen.add(covered.count())
        assert INGEST in view.heads
    assert seen == {20, 30}


@pytest.mark.covers("N14")
@pytest.mark.parametrize("planned_for", [["second"], [], ["hbase"]])
@pytest.mark.parametrize("into", [("second",), ("hbase",), None])
def test_a_plan_is_stale_where_a_sink_that_it_writes_has_other_results(
    tmp_path: Path, planned_for: list[str], into: tuple[str, ...] | None
) -> None:
    """A replay into one sink alone changes nothing for the offsets themselves, and all for plans that write this sink."""
    text = TEXT.replace("dead_letters:", "  - {type: hbase, name: second, table: second}\ndead_letters:")
    made = stream(tmp_path, text)
    asked: dict[str, Any] = {"ranges": "orders/0@5-8", "reason": "bug 17", "sinks": planned_for}
    plan = digest(made, ReplayRequest(**asked, dry_run=True))
    assert plan_request(made.opened, ReplayRequest(**asked, plan=plan)).ranges == offsets((0, 5, 8))
    lane = claim_lane(made.opened, LaneKind.REPLAY, "between", offsets((0, 6, 7)), "another", sinks=into)
    while lanes.plan_lane(made.opened, lane, "between") is not None:
        made.process(lane, "between")
    lanes.finish(made.opened, lane)
    request = ReplayRequest(**asked, plan=plan)
    if into is None or not planned_for or set(planned_for) & set(into):
        with pytest.raises(StaleLedger, match="is stale"):
            plan_request(made.opened, request)
        replaced = planned(made.opened, ReplayRequest(**asked, dry_run=True)).replaces
        assert replaced[0].window == f"{lane}/1"
    else:
        assert plan_request(made.opened, request).ranges == offsets((0, 5, 8))


@pytest.mark.covers("N14")
def test_a_plan_is_not_stale_when_a_sink_has_other_results_elsewhere(tmp_path: Path) -> None:
    """Who plans looks at some windows, and who claims at all of them: both must digest the same."""
    made = stream(
        tmp_path, TEXT.replace("dead_letters:", "  - {type: hbase, name: second, table: second}\ndead_letters:")
    )
    asked: dict[str, Any] = {"ranges": "orders/0@5-8", "reason": "bug 17"}
    plan = digest(made, ReplayRequest(**asked, dry_run=True))
    lane = claim_lane(made.opened, LaneKind.REPLAY, "between", offsets((0, 12, 13)), "another", sinks=("second",))
    while lanes.plan_lane(made.opened, lane, "between") is not None:
        made.process(lane, "between")
    lanes.finish(made.opened, lane)
    accepted = plan_request(made.opened, ReplayRequest(**asked, plan=plan))
    check(made.opened, accepted, made.opened.ledger.view())


def test_events_are_of_one_moment(tmp_path: Path) -> None:
    """A lane is cancelled and the place of its rows forgotten, before the first read, the second, and so on."""

    def what(made: StreamInMemory) -> None:
        lane = claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 0, 5)), "bug 17")
        steering.cancel(made.opened, lane, "the wrong one")
        rows = SinkReceipt(name="rows", type="hbase", place={"connection": "old", "table": "orders"})
        places.forget(made.opened.ledger, rows, "switched off", "ann")

    reads: list[int] = []
    for made, happened in moments(tmp_path, TEXT, what):
        found = {one.what for one in events(made.opened.ledger)}
        # What the register said first is older than what the heads said.
        assert found in ({"closed early", "place forgotten"}, {"closed early"}, set())
        reads.append(len(happened))
    # The register, the heads, the history: each is read once.
    assert sum(reads) == 3


def test_how_far_a_stream_is_is_judged_by_one_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its last look at the ledger, a run of the ingest commits what it has accepted."""
    made = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    made.ends((0, 10))
    made.ingest()
    views: list[str] = []

    def noted(name: str) -> Callable[..., object]:
        as_it_is = getattr(Ledger, name)

        def read(*arguments: object) -> object:
            views.append(name)
            return as_it_is(*arguments)

        return read

    for name in ("view", "committed"):
        monkeypatch.setattr(Ledger, name, noted(name))
    progress(made.opened)
    assert views == ["view"]
