"""Where a message went: one answer for each offset, against every way in which a window's counts could have come about."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.known_streams import OUTCOMES, KnownStream, tables
from tests.support.streams_in_memory import at
from tidemark.clients.kafka.slots import Slot
from tidemark.errors import WrongUse
from tidemark.ledger.records import INGEST, GapKind, TopicIncarnation
from tidemark.ledger.register import change_topics
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs.requests import answers
from tidemark.runs.requests.answers import totals
from tidemark.runs.requests.dead_letters import DeadLetterFilter
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest, checked
from tidemark.runs.requests.outcomes import answers_of
from tidemark.runs.windows import ingest
from tidemark.views.dead_letters import dead_letters
from tidemark.views.messages import message, trace
from tidemark.views.messages.fates import CoveringWindow, Fate, OffsetFacts, OutcomeCounts, fate, possible
from tidemark.views.messages.payloads import Masked, Value
from tidemark.views.messages.rereading import again
from tidemark.views.summary import committed_by
from tidemark.views.window import window_of

__all__ = ["tables"]


def seen(outcome: Fate, *, by_coordinate: bool) -> tuple[bool, bool | None]:
    """Whether a dead letter is seen at an offset that had an outcome, and whether a row is."""
    return outcome == Fate.DEAD_LETTER, (outcome == Fate.STORED) if by_coordinate else None


def slots_of(outcome: Fate) -> set[Slot | None]:
    """What Kafka may say later of an offset that had an outcome, of which readers of committed messages read."""
    gone = {Slot.COMPACTED, Slot.EXPIRED, None}
    return gone | ({Slot.ABORTED, Slot.MARKER} if outcome == Fate.NO_MESSAGE else {Slot.MESSAGE})


@pytest.mark.covers("U6")
@given(st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4), st.booleans(), st.data())
def test_an_outcome_is_possible_when_some_window_with_these_counts_had_it(
    truth: list[Fate], by_coordinate: bool, data: st.DataObject
) -> None:
    """Every division of the offsets among the outcomes that has the same counts, and of which the same is seen here."""
    target = data.draw(st.integers(0, len(truth) - 1))
    slot = data.draw(st.sampled_from(sorted(slots_of(truth[target]), key=str)))
    sight = seen(truth[target], by_coordinate=by_coordinate)
    oracle = {
        other[target]
        for other in product(OUTCOMES, repeat=len(truth))
        if Counter(other) == Counter(truth)
        and seen(other[target], by_coordinate=by_coordinate) == sight
        and slot in slots_of(other[target])
    }
    numbers = Counter(truth)
    found = possible(CoveringWindow(OutcomeCounts(*(numbers[one] for one in OUTCOMES)), *sight), slot)
    assert found == oracle
    answer = fate(
        7, OffsetFacts(slot, covering=CoveringWindow(OutcomeCounts(*(numbers[one] for one in OUTCOMES)), *sight))
    )
    assert answer == (truth[target] if len(oracle) == 1 else Fate.READ)


def test_a_row_that_is_gone_is_missing_and_not_skipped() -> None:
    """All four were stored, and here is no row."""
    assert (
        fate(3, OffsetFacts(Slot.MESSAGE, covering=CoveringWindow(OutcomeCounts(4, 0, 0, 0), row=False)))
        == Fate.MISSING
    )
    assert (
        fate(3, OffsetFacts(Slot.MESSAGE, covering=CoveringWindow(OutcomeCounts(3, 1, 0, 0), row=False)))
        == Fate.MISSING
    )
    assert (
        fate(3, OffsetFacts(Slot.MESSAGE, covering=CoveringWindow(OutcomeCounts(3, 0, 1, 0), row=False)))
        == Fate.SKIPPED
    )


def test_a_window_that_read_uncommitted_messages_has_read_aborted_ones() -> None:
    counted = OutcomeCounts(1, 0, 0, 1)
    assert fate(3, OffsetFacts(Slot.ABORTED, covering=CoveringWindow(counted, row=None))) == Fate.NO_MESSAGE
    assert (
        fate(3, OffsetFacts(Slot.ABORTED, covering=CoveringWindow(counted, row=None, uncommitted=True))) == Fate.STORED
    )


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("slot", [None, *Slot])
def test_what_no_window_has_committed(slot: Slot | None, unknown: bool) -> None:
    """Pending before a gap, a gap before what Kafka says."""

    def of(offset: int, **more: Any) -> Fate:
        return fate(offset, OffsetFacts(None if unknown else slot, unknown=unknown, **{"asked_for": (5, 10), **more}))

    assert of(3, pending=True, gap=GapKind.LOST) == of(12, pending=True) == Fate.PENDING
    assert (of(3, gap=GapKind.LOST), of(3, gap=GapKind.SKIPPED)) == (Fate.LOST, Fate.PASSED_OVER)
    assert of(3, chosen=False) == of(12, chosen=False) == Fate.NOT_OF_THE_STREAM
    fixed = {None: Fate.GONE, Slot.EXPIRED: Fate.EXPIRED, Slot.BEYOND: Fate.NOT_YET}
    none = {Slot.MARKER, Slot.COMPACTED, Slot.ABORTED}
    if unknown:
        assert (of(9), of(10), of(0, asked_for=(0, 0))) == (Fate.HOLE, Fate.NOT_READ_YET, Fate.NOT_READ_YET)
        assert of(4) == Fate.BEFORE
    elif slot in fixed:
        assert {of(9), of(4), of(10), of(0, asked_for=(0, 0))} == {fixed[slot]}
    else:
        above = Fate.NO_MESSAGE if slot in none else Fate.NOT_READ_YET
        assert (of(9), of(10), of(0, asked_for=(0, 0))) == (Fate.HOLE, above, above)
        # Below the beginning of the ingest, nobody has asked for it.
        assert of(4) == Fate.BEFORE
        read = fate(10, OffsetFacts(slot, asked_for=(0, 10), isolation="read_uncommitted"))
        assert read == (Fate.NOT_READ_YET if slot == Slot.ABORTED else above)


CONTENTS = st.lists(st.sampled_from([*OUTCOMES[:3], OUTCOMES[0], Slot.ABORTED, Slot.MARKER]), min_size=1, max_size=16)
# What happens to a stream, with a number that means an offset where one is needed.
STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "ingest", "pin", "expire", "compact", "replay"]), st.integers(0, 15)),
    max_size=9,
)


@pytest.mark.slow
@pytest.mark.covers("U6")
@settings(max_examples=120, deadline=None)
@given(CONTENTS, STEPS, st.booleans())
def test_every_offset_of_a_stream_has_the_answer_that_its_history_gives(  # noqa: C901 (a case for each kind of step and fate)
    contents: list[Fate | Slot], steps: list[tuple[str, int]], by_coordinate: bool
) -> None:
    with TemporaryDirectory() as folder:
        world = KnownStream(Path(folder), contents, by_coordinate=by_coordinate)
        pinned: str | None = None
        start = end = began = 0
        for number, (step, offset) in enumerate(steps):
            run = f"run {number}"
            if step == "arrive":
                end = max(end, min(offset, len(contents)))
            elif step == "expire":
                start = max(start, min(offset, end))
            elif step == "compact" and offset < len(contents):
                world.log.gone |= {offset} - set(range(end, 99))
            world.ends((start, end))
            # Where the ingest began: what had expired before that was never in its way.
            began = began if world.opened.ledger.head(INGEST) else start
            if step == "ingest":
                # What was pinned may meanwhile have expired: a run refuses such a window, and this is no test of that.
                pinned = None if world.ingest(run) is not None else pinned
            elif step == "pin" and ingest.plan_ingest(world.opened, run) is not None:
                pinned = run
            elif step == "replay" and world.read.get(offset) and start <= offset:
                world.replay(run, (offset, offset + 1))
        head = world.opened.ledger.head(INGEST)
        position = head.head.offsets().get(at(0), 0) if head else 0
        pending = head.head.pending.window.hull() if head and head.head.pending else RangeSet()
        for offset in range(len(contents) + 2):
            found = world.where(offset)
            here = contents[offset] if offset < len(contents) else None
            none = isinstance(here, Slot) or offset in world.log.gone
            if offset in world.read:
                truth = Fate.NO_MESSAGE if isinstance(here, Slot) else here
                assert truth in found.may_be or offset in world.log.gone
                if by_coordinate and offset not in world.log.gone:
                    exact = {Fate.STORED, Fate.DEAD_LETTER} | ({Fate.SKIPPED} if offset >= start else set())
                    assert found.fate == truth or truth not in exact
                assert found.counting is not None
                assert (found.counting.lane, found.counting.seq) == world.read[offset]
                assert f"window {found.counting.lane}/{found.counting.seq}" in message.sentence(found)
            elif (at(0), offset) in pending:
                assert found.fate == Fate.PENDING
            elif offset < position:
                assert found.fate == (Fate.EXPIRED if offset < began else Fate.LOST)
            elif offset < start:
                assert found.fate == Fate.EXPIRED
            elif offset >= end:
                assert found.fate == Fate.NOT_YET
            else:
                assert found.fate == (Fate.NO_MESSAGE if none else Fate.NOT_READ_YET)
            assert message.as_values(found).sentence


def test_what_is_no_offset_of_the_stream(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.STORED] * 3)
    world.ends((0, 3))
    assert world.where(1).fate == Fate.NOT_READ_YET
    world.ingest()
    assert world.where(1, partition=7).fate == Fate.GONE
    other = Coordinate(TopicPartition("elsewhere", 0), 5)
    found = trace.located(world.opened, other)
    assert found.fate == Fate.NOT_OF_THE_STREAM
    assert "no window of it has read elsewhere/0@5" in message.sentence(found)


def test_below_the_cut_of_a_truncated_log_an_offset_is_the_earlier_one(tmp_path: Path) -> None:
    """And above it that of the accepted incarnation, whose messages are others."""
    world = KnownStream(tmp_path, [Fate.STORED] * 6)
    world.ends((0, 6))
    world.ingest()
    known = (
        TopicIncarnation(topic_id="id", incarnation=1, since=1),
        TopicIncarnation(topic_id="id", incarnation=2, since=2, starts=((0, 4),)),
    )
    change_topics(world.opened.ledger, lambda topics: {**topics, "orders": known})
    assert [str(world.where(offset).at) for offset in (3, 4)] == ["orders/0@3", "orders#2/0@4"]
    assert (world.where(3).fate, message.as_values(world.where(3)).kafka.slot) == (Fate.STORED, "message")
    # Another topic under the same name has none of it.
    world.log.ids["orders"] = "another id"
    assert (world.where(3).fate, world.where(3).kafka) == (Fate.STORED, None)


def test_without_kafka_the_ledger_still_answers(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.STORED] * 6)
    world.ends((0, 4))
    world.ingest()
    world.log.away = True
    assert (world.where(1).fate, world.where(5).fate) == (Fate.STORED, Fate.NOT_READ_YET)
    assert message.as_values(world.where(1)).kafka.sentence == "Unreachable: Kafka at k:1 did not answer"


@pytest.mark.covers("Q16")
def test_a_payload_is_masked_unless_it_may_be_seen(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.DEAD_LETTER, Fate.STORED])
    world.ends((0, 2))
    world.ingest()
    for offset in (0, 1):
        found = world.where(offset)
        hidden, shown = (message.page_of(found, payload=payload) for payload in (False, True))
        assert "secret" not in str(hidden)
        assert hidden.rows[0].fields["value"] == Masked(6)
        assert hidden.message.value == Masked(1)
        assert shown.rows[0].fields["value"].text == "secret"
        assert shown.message.value.text == str(offset)
        # So that the rows of several sinks can be compared.
        ordered = message.page_of(found, payload=False, order=["redrives", "other", "value"])
        assert offset == 0 or list(ordered.rows[0].fields)[:2] == ["redrives", "value"]
        # Why it is a dead letter says nothing of its contents; a field of a result row that is called so may.
        assert isinstance(hidden.rows[0].fields["reason"], Value) == (offset == 0)


def test_what_can_be_read_again_is_offered_as_the_request_that_does_it(tmp_path: Path) -> None:
    """0 was passed over by nobody but expired, 3 and 4 are read, 1 and 2 were lost, and are back; 5 is not read yet."""
    world = KnownStream(tmp_path, [*[Fate.STORED] * 3, Fate.DEAD_LETTER, Slot.MARKER, *[Fate.STORED] * 3])
    world.ends((0, 1))
    world.ingest()
    world.ends((3, 5))
    world.ingest()
    world.ends((2, 6))

    def offered(offset: int) -> tuple[str | None, object]:
        found = again(world.where(offset))
        return found.kind, found.fields or found.why_not

    assert offered(0) == (None, "Kafka no longer holds it")
    assert offered(2) == ("backfill", {"ranges": "orders/0@2-3"})
    assert offered(3) == ("replay", {"records": "orders/0@3"})
    assert offered(4) == (None, "there is no message")
    assert offered(5) == (None, "nothing has been read yet that could be read again")
    assert world.where(2).fate == Fate.LOST
    requests: list[tuple[Any, int]] = [(BackfillRequest, 2), (ReplayRequest, 3)]
    for request, offset in requests:
        fields = {**again(world.where(offset)).fields, "reason": "a test"}
        assert checked(request, fields, fields)
    world.log.gone = {3}
    assert offered(3) == (None, "Kafka no longer holds it")
    world.log.away = True
    assert offered(3) == (None, "Kafka has it no longer, or did not answer")


def test_a_time_names_the_first_message_at_or_after_it(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.STORED] * 6)
    world.ends((0, 6))
    assert trace.coordinate(world.opened, "orders/0@1970-01-01T00:00:03.5Z") == Coordinate(at(0), 4)
    assert trace.coordinate(world.opened, "orders/0@4") == Coordinate(at(0), 4)
    for said, why in {
        "orders/0@1970-01-01T00:00:09Z": "orders/0 has no message at or after 1970-01-01T00:00:09Z",
        "orders/7@1970-01-01T00:00:00Z": "Kafka has no partition orders/7",
        "orders/0@1970-01-01T00:00:00": "has no zone",
        "orders/0@1\norders/0@2": "expected one coordinate",
        "orders/0": "is not a coordinate",
    }.items():
        with pytest.raises(WrongUse, match=why):
            trace.coordinate(world.opened, said)


@pytest.mark.covers("N14")
def test_a_window_into_some_sinks_changes_no_outcome(tmp_path: Path) -> None:
    """Today's code gives a row for what was a dead letter, and none for what was stored. Only the sink follows it."""
    world = KnownStream(tmp_path, [Fate.STORED, Fate.DEAD_LETTER, Fate.STORED, Fate.SKIPPED, Fate.STORED])
    world.ends((0, 5))
    world.ingest()
    before = {offset: world.where(offset) for offset in range(5)}
    world.log.contents[0:3] = [Fate.DEAD_LETTER, Fate.STORED, Fate.STORED]
    lane = world.replay("alone", (0, 3), sinks=("hbase",))
    after = {offset: world.where(offset) for offset in range(5)}
    # The row of 0 is gone, and what its own window counted does not say which message gave which row.
    assert [one.fate for one in after.values()] == [Fate.READ, Fate.DEAD_LETTER, Fate.STORED, Fate.SKIPPED, Fate.STORED]
    assert [len(one.rows["hbase"]) for one in after.values()] == [0, 1, 1, 0, 1]
    assert after[1].rows[trace.DEAD_LETTERS] == before[1].rows[trace.DEAD_LETTERS] != []
    assert all(one.counting is not None and one.counting.lane == INGEST for one in after.values())
    alone, ingest = message.as_values(after[2]).windows
    assert (alone.lane, alone.counts, alone.only_sinks, alone.counts_in) == (
        lane,
        False,
        ["hbase"],
        ["hbase"],
    )
    assert (ingest.lane, ingest.counts, ingest.only_sinks, ingest.counts_in) == (INGEST, True, None, [])
    assert [one.counts_said() for one in (alone, ingest)] == ["counts in hbase alone", "counts"]
    shown = window_of(world.opened, lane, 1)
    assert shown is not None
    assert (shown.only_sinks, [one.name for one in shown.sinks]) == (["hbase"], ["hbase"])
    # The dead letters that count are those of the ingest, and the run's own answer says what has no row.
    assert dead_letters(world.opened, DeadLetterFilter()).counted == 1
    records = committed_by(world.opened, lane, "alone")
    assert totals(answers_of(world.opened, records)) == {answers.STORED: 2, answers.NO_ROW: 1}
    # An ordinary replay over it counts everywhere.
    world.replay("all", (0, 3))
    assert [world.where(offset).fate for offset in range(3)] == [Fate.DEAD_LETTER, Fate.STORED, Fate.STORED]
    assert message.as_values(world.where(2)).windows[1].counts_said() == ""
