"""The state of a stream, over a table of situations: each bad thing makes a stream bad, the worst first, with a number."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.overviews import partition, shown_overview
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, offsets
from tidemark.ledger.covered import unread_now
from tidemark.ledger.holes import UnreadOffsets
from tidemark.ledger.records import LaneKind
from tidemark.ledger.recovery.backup import retire
from tidemark.runs.windows import lanes
from tidemark.views.audits import AuditEnded
from tidemark.views.jumped_over import SkippedOffsets
from tidemark.views.metrics import gauges
from tidemark.views.overview import IngestDeadLetters, Overview, Status, overview
from tidemark.views.scheduling import RunInAirflow, Scheduling, SilentProgram
from tidemark.views.state_words import SEVERITY, StreamState
from tidemark.views.states import reasons_of, state_of
from tidemark.views.stream_line import line_of
from tidemark.views.triage import with_state

HOUR = 3_600_000
NOW = 100 * HOUR
DAG = "orders__ingest"
FINE = Status("OK", "no lag", "orders", 0, "orders/0: the lag is 0")
NEVER_READ = {"status": None, "lag": None, "in_topics": 12_000}


def status(word: str) -> dict[str, Any]:
    return {"status": Status(word, "a rule", "orders", 0, "orders/0: the lag is 7")}


# What is wrong with a stream, by the ledger and Kafka, and the number that has to be said.
BAD: dict[StreamState, tuple[dict[str, Any], str]] = {
    **{StreamState(word): (status(word), "7") for word in ("WARNING", "STALLED", "REWOUND", "STOPPED")},
    StreamState.NEW: ({"ingest": IngestDeadLetters(0, 0, 0, [], [], None), **NEVER_READ}, "12000"),
    StreamState.DEAD_LETTERS: ({"ingest": IngestDeadLetters(20, 2_000, 900, [], [], None)}, "45"),
    StreamState.LATE: ({"late": "the last 3 windows were late: 95 min, 96 min, 97 min; the limit is 90 min"}, "97"),
    StreamState.FINDINGS: ({"audit": AuditEnded("run", 1, "full", False, "5 rows are missing")}, "5"),
    StreamState.SKIPPED: ({"skipped": SkippedOffsets(3_600, "orders/0@0-3600", "max_behind")}, "3600"),
    StreamState.HOLES: ({"holes": ["orders/0@1-9"]}, "1-9"),
    StreamState.EXPIRING: ({"expiring": ["orders/0: retention.ms may delete offset 8 in 3 h"]}, "3 h"),
    StreamState.NO_TOPIC: ({"missing_topics": ["orders"]}, "orders"),
    StreamState.LOST: ({"lost_unread": ["orders/0@5-9: Kafka has deleted it before it was read"]}, "5-9"),
    StreamState.RETIRED: ({"retired": "this ledger of orders was retired: moved to ledger2"}, "ledger2"),
    StreamState.UNREACHABLE: ({"kafka_problem": "Kafka at k:9092 does not answer"}, "9092"),
}
# And by Airflow.
BAD_IN_AIRFLOW: dict[StreamState, tuple[dict[str, Any], str]] = {
    StreamState.PAUSED: ({"paused": True}, DAG),
    StreamState.FAILED: ({"last": RunInAirflow("scheduled__1", "failed", NOW - 3 * HOUR)}, "3 h"),
    StreamState.OVERDUE: ({"due": NOW - 20 * HOUR}, "20 h"),
    StreamState.NO_HEARTBEAT: ({"silent": (SilentProgram("scheduler", NOW - 2 * HOUR),)}, "2 h"),
    StreamState.NO_DAG: ({"import_error": "ModuleNotFoundError: No module named 'x'"}, "No module named"),
}


def well(**given: Any) -> Overview:
    return shown_overview(partition(lag=0), **{"status": FINE, **given})


def states(shown: Overview, scheduling: Scheduling | None = None) -> list[StreamState]:
    return [reason.state for reason in reasons_of(line_of(shown), scheduling)]


@pytest.mark.covers("U19")
def test_a_stream_with_nothing_wrong_is_ok() -> None:
    seen = Scheduling(DAG, NOW, due=NOW + HOUR, last=RunInAirflow("scheduled__1", "success", NOW - HOUR))
    assert states(well(), seen) == states(well()) == []
    assert with_state(well(), 1, seen).state == StreamState.OK


@pytest.mark.covers("U19")
@pytest.mark.parametrize("state", [*BAD, *BAD_IN_AIRFLOW])
def test_each_bad_thing_makes_a_stream_bad_and_says_its_number_and_the_way_out(state: StreamState) -> None:
    given, number = (BAD | BAD_IN_AIRFLOW)[state]
    shown, seen = (well(**given), None) if state in BAD else (well(), Scheduling(DAG, NOW, **given))
    (reason,) = reasons_of(line_of(shown), seen)
    assert reason.state == state
    assert number in reason.sentence
    assert reason.brief
    # What nobody but a server's owner can mend says so in its own sentence.
    assert reason.remedy or state in (StreamState.UNREACHABLE, StreamState.RETIRED)
    assert with_state(shown, 1, seen).state == state
    if seen is None:
        # A task sends the same state.
        assert [one.value for one in gauges(shown) if one.name == "state"] == [SEVERITY.index(state)]


@pytest.mark.covers("U19")
def test_of_any_two_bad_things_the_worse_is_the_state_and_none_hides_the_other() -> None:
    alone = [*BAD, *BAD_IN_AIRFLOW]
    for one, other in combinations(alone, 2):
        given = [BAD.get(state, ({}, ""))[0] for state in (one, other)]
        # A partition has one word, one with dead letters has windows, and nobody knows what is new in a Kafka that is away.
        if given[0].keys() & given[1].keys() or {one, other} == {StreamState.NEW, StreamState.UNREACHABLE}:
            continue
        if {one, other} == {StreamState.PAUSED, StreamState.OVERDUE}:
            # No run of a paused DAG is due.
            continue
        shown = well(**given[0], **given[1])
        in_airflow = {
            key: value for state in (one, other) for key, value in BAD_IN_AIRFLOW.get(state, ({}, ""))[0].items()
        }
        found = states(shown, Scheduling(DAG, NOW, **in_airflow))
        assert found == sorted((one, other), key=SEVERITY.index, reverse=True)


@pytest.mark.covers("U19")
def test_airflow_begins_runs_within_minutes_and_what_runs_is_not_overdue() -> None:
    waits = Scheduling(DAG, NOW, due=NOW - 5 * 60_000)
    assert states(well(), waits) == []
    late = replace(waits, due=NOW - HOUR)
    assert states(well(), late) == [StreamState.OVERDUE]
    # While a run takes longer than its schedule allows, the next one is due, and waits for it.
    assert states(well(), replace(late, last=RunInAirflow("r", "running", NOW - 2 * HOUR))) == []
    queued = replace(waits, last=RunInAirflow("r", "queued", NOW - HOUR))
    assert states(well(), queued) == [StreamState.OVERDUE]
    assert states(well(), replace(queued, last=RunInAirflow("r", "queued", NOW - 60_000))) == []


@pytest.mark.covers("U19")
def test_a_dag_that_airflow_has_dropped_is_no_ok() -> None:
    (reason,) = reasons_of(line_of(well()), Scheduling(DAG, NOW, stale=True, due=None))
    assert (reason.state, reason.brief) == (StreamState.NO_DAG, "dropped by Airflow")
    # Who may not see import errors learns that there is one.
    (reason,) = reasons_of(line_of(well()), Scheduling(DAG, NOW, stale=True, import_error=""))
    assert (reason.state, reason.brief) == (StreamState.NO_DAG, "import error")
    silent = Scheduling(DAG, NOW, silent=(SilentProgram("dag-processor", None),))
    (reason,) = reasons_of(line_of(well()), silent)
    assert "Airflow's dag processor has never given a sign of life" in reason.sentence


@pytest.mark.covers("U19")
def test_what_waits_is_said_of_streams_that_do_not_read() -> None:
    paused = Scheduling(DAG, NOW, paused=True)
    behind = well(lag=7, lag_sentence="7 offsets are unread, in 1 of 1 partition")
    (reason,) = reasons_of(line_of(behind), paused)
    assert "7 offsets are unread" in reason.sentence
    first, second = reasons_of(line_of(well(**{**NEVER_READ, "in_topics": 9})), paused)
    assert [first.state, second.state] == [StreamState.PAUSED, StreamState.NEW]
    assert "9 offsets in Kafka" in first.sentence
    assert "9 offsets in Kafka" in second.sentence


@pytest.mark.covers("U19")
@pytest.mark.parametrize(("dead", "bad"), [(0, False), (9, False), (10, True), (45, True), (100, True)])
def test_a_tenth_of_dead_letters_is_no_ok(dead: int, bad: bool) -> None:
    reasons = reasons_of(line_of(well(ingest=IngestDeadLetters(20, 100, dead, [], [], None))))
    assert [reason.state for reason in reasons] == [StreamState.DEAD_LETTERS] * bad
    assert all(f"{dead} of the 100 messages" in reason.sentence and f"{dead} %" in reason.brief for reason in reasons)


MAX_BEHIND = TEXT + "limits: {max_behind: 4}\n"


def skipped(tmp_path: Path) -> StreamInMemory:
    """A stream whose second window has skipped 6 of 10 offsets."""
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=MAX_BEHIND)
    orders.ends((0, 2))
    orders.ingest()
    orders.ends((0, 12))
    orders.ingest()
    return orders


def seen(orders: StreamInMemory) -> Overview:
    found = unread_now(orders.opened.ledger)
    assert found == UnreadOffsets.seen(orders.opened.ledger.view())
    return overview(orders.opened, found)


@pytest.mark.covers("U19", "S4")
def test_what_was_skipped_is_bad_until_a_window_has_read_it(tmp_path: Path) -> None:
    orders = skipped(tmp_path)
    # Also where nobody has read the history.
    for shown in (seen(orders), overview(orders.opened)):
        (reason,) = reasons_of(line_of(shown))
        assert (reason.state, reason.brief) == (StreamState.SKIPPED, "6 offsets skipped")
        assert "6 offsets were skipped by max_behind: 4, and no window has read them: orders/0@2-8" in reason.sentence
        # The lag alone says nothing of them.
        assert "6 offsets were skipped" in (shown.lag_sentence or "")
    lane = claim_lane(orders.opened, LaneKind.BACKFILL, "rest", offsets((0, 2, 8)), "the skipped ones")
    lanes.plan_lane(orders.opened, lane, "rest")
    orders.process(lane, "rest")
    assert states(seen(orders)) == []


@pytest.mark.covers("U19", "S4")
def test_what_was_skipped_and_is_deleted_is_lost_and_in_time_forgotten(tmp_path: Path) -> None:
    orders = skipped(tmp_path)
    orders.ends((5, 13))
    shown = seen(orders)
    assert states(shown) == [StreamState.LOST, StreamState.SKIPPED]
    assert (shown.lost, shown.skipped) == (
        SkippedOffsets(3, "orders/0@2-5", "max_behind: 4"),
        SkippedOffsets(3, "orders/0@5-8", "max_behind: 4"),
    )
    for end in range(14, 40):
        orders.ends((8, end))
        orders.ingest()
    assert states(seen(orders)) == []


@pytest.mark.covers("U19")
def test_what_kafka_has_lost_and_a_policy_has_passed_over_is_no_ok(tmp_path: Path) -> None:
    text = TEXT.replace("  start: earliest\n", "  start: earliest\n  on_out_of_range: earliest\n")
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=text)
    orders.ends((0, 10))
    orders.ingest()
    orders.ends((30, 35))
    orders.ingest()
    (reason,) = reasons_of(line_of(seen(orders)))
    assert (reason.state, reason.brief) == (StreamState.LOST, "20 offsets lost")


@pytest.mark.covers("U19")
def test_a_new_stream_says_what_waits_and_a_retired_ledger_that_it_is(tmp_path: Path) -> None:
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    orders.ends((0, 12_000))
    (reason,) = reasons_of(line_of(seen(orders)))
    assert (reason.state, reason.brief) == (StreamState.NEW, "no window yet, 12000 offsets in Kafka")
    orders.ingest()
    assert states(seen(orders)) == []
    retire(orders.opened.ledger, "moved to ledger2")
    (reason,) = reasons_of(line_of(seen(orders)))
    assert reason.state == StreamState.RETIRED
    assert re.search("moved to ledger2. Name the ledger that replaces it", reason.sentence)
    assert state_of([reason]) == StreamState.RETIRED
