"""Dead letters in groups: all that count, each once, and named as a replay takes them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.known_streams import OUTCOMES, KnownStream, tables
from tests.support.streams_in_memory import at, offsets
from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Committed
from tidemark.runs.requests import selecting
from tidemark.runs.requests.answers import EXPIRED, totals
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive
from tidemark.runs.requests.forms import ReplayRequest, checked
from tidemark.runs.requests.outcomes import answers_of
from tidemark.runs.requests.plan import plan_request
from tidemark.views.dead_letters import dead_letters, selects
from tidemark.views.messages.fates import Fate
from tidemark.views.summary import committed_by

__all__ = ["tables"]


@pytest.mark.covers("U8")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(OUTCOMES[:3]), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from(OUTCOMES[:2])), max_size=4),
    st.sampled_from(["", "ingest", "ingest/2", "nowhere/1"]),
    st.sampled_from([None, "bad 0", "good"]),
)
def test_each_dead_letter_that_counts_is_in_one_group(
    contents: list[Fate], again: list[tuple[int, Fate]], window: str, reason: str | None
) -> None:
    """Messages are replayed too, and become another thing: then only the newest window counts."""
    with TemporaryDirectory() as folder:
        world = KnownStream(Path(folder), list(contents))
        world.ends((0, len(contents)))
        while world.ingest() is not None:
            pass
        for number, (offset, outcome) in enumerate(again):
            if offset < len(contents):
                world.log.contents[offset] = outcome
                world.replay(f"again {number}", (offset, offset + 1))
        if window and not any(window in (one.record.lane, _name(one)) for one in world.opened.ledger.committed()):
            # There is none: `no dead letters` would be no answer.
            with pytest.raises(WrongUse, match=f"window {window}: orders has no committed window"):
                dead_letters(world.opened, DeadLetterFilter(reason, window))
            return
        truth: Counter[tuple[str, str]] = Counter()
        for offset, (lane, seq) in world.read.items():
            name, why = f"{lane}/{seq}", f"bad {offset % 2}"
            asked = window in ("", lane, name) and reason in (None, why)
            if world.log.contents[offset] == Fate.DEAD_LETTER and asked:
                truth[why, name] += 1
        found = dead_letters(world.opened, DeadLetterFilter(reason, window))
        groups = found.groups
        assert {(one.reason, part.window): part.number for one in groups for part in one.windows} == truth
        assert found.counted == truth.total() == sum(one.number for one in groups)
        assert (found.complete, found.not_counted) == (True, 0)
        assert [one.number for one in groups] == sorted((one.number for one in groups), reverse=True)
        for one in groups:
            for example in one.examples:
                place = int(example.rpartition("@")[2])
                assert (world.log.contents[place], one.reason) == (Fate.DEAD_LETTER, f"bad {place % 2}")


def _name(one: Committed) -> str:
    return f"{one.record.lane}/{one.record.seq}"


@pytest.mark.covers("U8")
def test_the_newest_windows_come_first_when_there_is_no_time_for_all(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.DEAD_LETTER] * 15)
    world.ends((0, 15))
    while world.ingest() is not None:
        pass
    found = dead_letters(world.opened, DeadLetterFilter(), enough=lambda counted: counted >= 7)
    assert (found.complete, found.counted) == (False, 7)
    assert (found.windows, found.windows_counted, found.not_counted) == (3, 1, 10)
    windows = {part.window: part.number for one in found.groups for part in one.windows}
    assert windows.keys() == {"ingest/3", "ingest/2"}


@pytest.fixture
def many(tmp_path: Path) -> KnownStream:
    """Fifteen dead letters in three windows; Kafka has only those from 7 on."""
    world = KnownStream(tmp_path, [Fate.DEAD_LETTER] * 15)
    world.ends((0, 15))
    while world.ingest() is not None:
        pass
    world.ends((7, 15))
    return world


@pytest.mark.covers("U8")
def test_a_redrive_by_time_names_those_that_have_expired(many: KnownStream) -> None:
    """Offset n has the time n seconds, in its dead letter too."""
    times: dict[str, Any] = {"since": "1970-01-01T00:00:04Z", "until_time": "1970-01-01T00:00:09Z"}
    found = plan_request(many.opened, ReplayRequest(dead_letters="*", reason="a test", **times))
    assert (found.ranges, dict(found.left_out)) == (offsets((0, 7, 9)), {EXPIRED: offsets((0, 4, 7))})
    with pytest.raises(WrongUse, match=r"strict: 3 offsets cannot be read by a replay. expired"):
        plan_request(many.opened, ReplayRequest(dead_letters="*", reason="a test", strict=True, **times))
    shown = dead_letters(many.opened, DeadLetterFilter(None, "", *selecting.times(*times.values())))
    assert (shown.counted, shown.windows) == (5, 2)


def test_a_redrive_reads_no_messages_and_only_where_dead_letters_may_be(many: KnownStream) -> None:
    since, until = (datetime.fromtimestamp(second, UTC) for second in (4, 5))
    for wanted, places in (
        (DeadLetterFilter(), range(15)),
        (DeadLetterFilter(None, "ingest/2"), range(5, 10)),
        (DeadLetterFilter(None, "", since, until), range(5)),
        (DeadLetterFilter(None, "", until), range(5, 15)),
    ):
        many.dead.read.clear()
        redrive(many.opened, wanted)
        assert many.dead.read == [(frozenset({"reason", "error", "redrives", "timestamp"}), one) for one in places]
    # Nothing is there: all are looked at for their reasons alone.
    many.dead.read.clear()
    said = r"no dead letter of orders has the reason 'bad 2' .* ingest/2; reasons are: 'bad 0' \(8\), 'bad 1' \(7\)"
    with pytest.raises(WrongUse, match=said):
        redrive(many.opened, DeadLetterFilter("bad 2", "ingest/2"))
    assert many.dead.read[5:] == [(frozenset({"reason"}), one) for one in range(15)]


def test_a_window_without_counts_may_have_made_any(many: KnownStream) -> None:
    """As of a ledger that was made anew out of the sinks."""
    record = many.opened.ledger.committed()[0].record
    assert record.receipt is not None
    without = structs.replace(record, receipt=structs.replace(record.receipt, tallies=()))
    later = datetime.fromtimestamp(9, UTC)
    assert [DeadLetterFilter(since=later).may_be_in(one) for one in (record, without)] == [[], [at(0)]]
    assert [DeadLetterFilter(window="ingest/2").may_be_in(one) for one in (record, without)] == [[], []]
    alone = structs.replace(without, window=structs.replace(without.window, sinks=("hbase",)))
    assert DeadLetterFilter().may_be_in(alone) == []


def test_the_answers_of_a_replay_read_no_messages(many: KnownStream) -> None:
    lane = many.replay("again", (8, 11))
    many.dead.read.clear()
    assert totals(answers_of(many.opened, committed_by(many.opened, lane, "again"))) == {
        "found, a dead letter again: redrive 1 of 3": 3
    }
    assert {fields for fields, _ in many.dead.read} == {frozenset({"redrives"})}


def test_those_that_were_redriven_too_often_are_counted(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.DEAD_LETTER] * 4)
    world.ends((0, 4))
    world.ingest()
    for number in range(world.opened.stream.dead_letters.max_redrives):
        world.replay(f"run {number}", (0, 1), (2, 3))
    found = {one.reason: (one.number, one.too_often) for one in dead_letters(world.opened, DeadLetterFilter()).groups}
    assert found == {"bad 0": (2, 2), "bad 1": (2, 0)}
    assert world.opened.ledger.authority().of(at(0), 0) != world.opened.ledger.authority().of(at(0), 1)


@pytest.mark.covers("U8")
@pytest.mark.parametrize("reason", ["bad", " spaces around ", "line\nbreak", '"><script>', "x" * 200, "\u202egnp"])
def test_a_replay_takes_what_a_group_names(reason: str) -> None:
    """As Airflow's API gets it: the request has the reason unchanged."""
    assert selects(reason) == reason
    sent = {"dead_letters": reason, "dead_letters_window": "ingest/17", "reason": "a test"}
    assert checked(ReplayRequest, sent, sent).dead_letters == reason


@pytest.mark.parametrize("reason", ["", "   ", "*", "x" * 201, "not utf-8 \ufffd"])
def test_reasons_that_a_request_cannot_name_are_not_offered(reason: str) -> None:
    assert selects(reason) is None


@pytest.mark.covers("U8")
@pytest.mark.parametrize("window", ["zzz", "ingest/99", "replay-1/1", "ingest/0"])
def test_a_window_that_has_committed_nothing_is_refused_and_not_answered_with_none(
    many: KnownStream, window: str
) -> None:
    """On the page, on the command line, and by a replay alike."""
    wanted = DeadLetterFilter(None, window)
    for ask in (lambda: dead_letters(many.opened, wanted), lambda: redrive(many.opened, wanted)):
        with pytest.raises(WrongUse, match=f"window {window}: orders has no committed window of this name"):
            ask()
