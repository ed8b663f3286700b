"""A partition's word by Burrow's rules: its own fixtures, what must hold for any history, and a stream in memory."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.clients.kafka.retention import Forecast, PartitionSnapshot, RetentionState
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.live.retention import PartitionForecast
from tidemark.runs.windows import ingest
from tidemark.views.status import Commit, PartitionState, Verdict, VerdictRule, judge, worst
from tidemark.views.verdicts import verdicts

FIXTURES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "support" / "lag_fixtures" / "burrow.json").read_text()
)
HOUR = 3_600_000


def judged(fixture: dict[str, Any]) -> Verdict:
    commits = [Commit(at, position, lag) for at, position, lag in fixture["commits"]]
    return judge(commits, fixture["lag"], fixture["now"], ends=fixture["ends"], allowed_lag=fixture["allowed_lag"])


@pytest.mark.covers("A51")
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda one: str(one["number"]))
def test_each_of_burrows_fixtures_has_the_same_status(fixture: dict[str, Any]) -> None:
    assert judged(fixture).word == fixture["word"]


@pytest.mark.covers("A51")
def test_there_are_all_sixteen_with_the_rule_that_fired() -> None:
    assert [one["number"] for one in FIXTURES] == list(range(16))
    rules = [judged(one).rule for one in FIXTURES]
    caught_up, stopped, unmoved = VerdictRule.CAUGHT_UP, VerdictRule.SILENT, VerdictRule.UNMOVED
    assert rules == [
        *(caught_up, caught_up, stopped, stopped, caught_up, unmoved, unmoved),
        *(VerdictRule.FALLING, VerdictRule.NO_LAG, stopped, caught_up, caught_up),
        *(VerdictRule.NO_LAG, unmoved, VerdictRule.FALLING, VerdictRule.FELL),
    ]


def test_a_sentence_has_the_numbers_of_its_rule() -> None:
    assert [judged(FIXTURES[number]).sentence for number in (2, 5, 15)] == [
        "no commit for 8 min 20 s, although the last windows took 6 min 40 s; the lag is 200",
        "the last 5 windows left the position at 1000, and the lag is 300",
        "the position fell from 3000 to 2000, is now 2500, and the lag is 300",
    ]
    slow = [Commit(at * HOUR, at * 10, 5 + at) for at in range(4)]
    assert judge(slow, 30, 4 * HOUR) == Verdict(
        PartitionState.WARNING,
        VerdictRule.NOT_FALLING,
        "over the last 4 windows the lag went from 5 to 8, and is now 30",
    )


commits = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 5)), max_size=8).map(
    lambda found: [Commit(at, position, lag) for at, position, lag in sorted(found, key=lambda one: one[0])]
)


@given(commits, st.integers(0, 9), st.integers(0, 9), st.integers(50, 200))
def test_what_has_no_more_lag_than_is_allowed_is_ok(found: list[Commit], lag: int, more: int, now: int) -> None:
    assert judge(found, lag, now, allowed_lag=lag + more).word == PartitionState.OK


@given(commits, st.integers(1, 9), st.integers(50, 200), st.integers(0, 300))
def test_each_word_says_what_it_says(found: list[Commit], lag: int, now: int, patience: int) -> None:
    verdict = judge(found, lag, now, patience_ms=patience)
    offsets = [one.position for one in found]
    lags = [one.lag for one in found if one.lag is not None]
    match verdict.word:
        case PartitionState.STOPPED:
            assert now - found[-1].at > max(patience, found[-1].at - found[0].at)
        case PartitionState.REWOUND:
            assert any(later < before for before, later in pairwise(offsets))
        case PartitionState.STALLED:
            assert (len(set(offsets)), 0 in lags) == (1, False)
        case PartitionState.WARNING:
            assert (lags, 0 in lags, len(set(offsets)) > 1) == (sorted(lags), False, True)
    # Patience only ever takes STOPPED away.
    assert judge(found, lag, now, patience_ms=10**9).word != PartitionState.STOPPED
    # Whoever was caught up lately has not stopped.
    if found:
        assert judge(found, lag, now, ends=[found[-1].position]).word != PartitionState.STOPPED


@given(st.lists(st.sampled_from(PartitionState), max_size=5))
def test_the_worst_word_is_the_streams(words: list[PartitionState]) -> None:
    found = worst(Verdict(word, VerdictRule.NO_LAG, "") for word in words)
    order = ["OK", "WARNING", "STALLED", "REWOUND", "STOPPED"]
    assert (None if found is None else found.word) == max(words, key=lambda word: order.index(word), default=None)


# A stream, whose ingest is due every hour


def of(made: StreamInMemory, unread_since: int | None = None) -> Verdict:
    """The verdict on partition 0."""
    opened = made.opened
    register, head = opened.ledger.register(), opened.ledger.head(INGEST)
    assert register is not None
    assert head is not None
    logs = made.kafka.topics(["orders"], "read_committed")
    end = logs["orders"].partitions[0].end
    forecasted = {
        TopicPartition("orders", 0): PartitionForecast(
            PartitionSnapshot(made.now, 0, end, 0), Forecast(RetentionState.SAFE), unread_since
        )
    }
    lately = newest_of_lane(opened.ledger, INGEST, head.head, 20)
    opened_at = register[1].lanes[INGEST].opened_at
    return verdicts(head.head, opened_at, lately, logs, forecasted, opened.stream, made.now)["orders", 0]


def test_a_stream_has_stopped_when_two_runs_were_due_and_nothing_was_committed(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 10))
    made.now = 100 * HOUR + 60_000
    made.ingest()
    assert (of(made).word, of(made).rule) == (PartitionState.OK, VerdictRule.NO_LAG)
    # Something comes; the runs of 101:00 and of 102:00 should have read it.
    made.ends((0, 15))
    since = made.now + 60_000
    made.now = 101 * HOUR + 60_000
    assert of(made, since).word == PartitionState.OK
    made.now = 102 * HOUR + 60_000
    assert (of(made, since).word, of(made, since).rule) == (PartitionState.STOPPED, VerdictRule.SILENT)
    assert of(made, since).sentence == "no commit for 2 h, although two runs were due since; the lag is 5"
    # What came a moment ago has waited for no run, however long nothing was committed before.
    made.now = 200 * HOUR + 60_000
    assert of(made, made.now - 1_000).word == PartitionState.OK
    assert of(made).word == PartitionState.STOPPED
    made.ingest("run 2")
    assert of(made).word == PartitionState.OK


def test_an_ingest_that_has_never_committed_has_stopped_too(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 10))
    made.now = 100 * HOUR + 60_000
    assert ingest.plan_ingest(made.opened, "run 1") is not None
    assert of(made).word == PartitionState.OK
    made.now = 103 * HOUR
    assert of(made).word == PartitionState.STOPPED


@pytest.mark.parametrize("allowed", [0, 5, 24])
def test_a_stream_that_reads_less_than_comes_is_a_warning(tmp_path: Path, allowed: int) -> None:
    made = StreamInMemory(tmp_path, text=f"{TEXT}limits: {{max_records: 4}}\nalarm: {{allowed_lag: {allowed}}}\n")
    for hour in range(1, 5):
        made.now = (100 + hour) * HOUR
        made.ends((0, 10 * hour))
        made.ingest(f"run {hour}")
    verdict = of(made)
    if allowed == 24:
        assert verdict.rule == VerdictRule.NO_LAG
        return
    assert (verdict.word, verdict.rule) == (PartitionState.WARNING, VerdictRule.NOT_FALLING)
    assert verdict.sentence == "over the last 4 windows the lag went from 6 to 24, and is now 24"


def test_a_lag_is_explained_by_a_partition_that_has_it() -> None:
    caught_up = Verdict(PartitionState.OK, VerdictRule.CAUGHT_UP, "the lag is 6")
    verdicts = [
        Verdict(PartitionState.OK, VerdictRule.NO_LAG, "the lag is 0"),
        caught_up,
        Verdict(PartitionState.OK, VerdictRule.FALLING, ""),
    ]
    assert worst(verdicts) is caught_up
