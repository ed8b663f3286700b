"""One window as people look at it: every offset of it is accounted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.known_streams import OUTCOMES, KnownStream, tables
from tests.support.streams_in_memory import at, offsets
from tidemark.audit.levels import Level
from tidemark.cli.estimates import counted
from tidemark.clients.kafka.slots import Slot
from tidemark.errors import WrongUse
from tidemark.ledger.holes import UnreadOffsets
from tidemark.ledger.records import INGEST, Heartbeat, LaneKind, TopicIncarnation
from tidemark.ledger.register import change_topics
from tidemark.offsets.coordinates import Coordinate
from tidemark.runs.auditing import audit_without_spark, find_report
from tidemark.runs.requests.forms import EraseRequest, ReplayRequest
from tidemark.runs.requests.outcomes import answers_of
from tidemark.runs.windows import ingest, lanes
from tidemark.views.erasure_preview import to_erase
from tidemark.views.events import events
from tidemark.views.lane_progress import progress_of
from tidemark.views.messages.fates import Fate
from tidemark.views.messages.message import as_values
from tidemark.views.messages.trace import located
from tidemark.views.overview import overview
from tidemark.views.plan import planned
from tidemark.views.summary import committed_by, said_of, windows
from tidemark.views.window import MessagesOfWindow, parse_window, window_of
from tidemark.views.windows_of_lane import windows_of_lane

__all__ = ["tables"]


@pytest.mark.covers("U7")
def test_every_offset_of_a_window_is_accounted_for(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [*OUTCOMES[:3], Slot.MARKER, Slot.ABORTED, Fate.STORED, Fate.STORED])
    world.ends((0, 7))
    while world.ingest() is not None:
        world.now += 1_000
    found = window_of(world.opened, "ingest", 1)
    assert found is not None
    assert (found.window, found.state, found.offsets, found.gaps) == ("ingest/1", "committed", 5, [])
    (part,) = found.partitions
    assert (part.partition, part.start, part.until, part.offsets) == ("orders/0", 0, 5, 5)
    counts = {
        name: getattr(part.tally, name) for name in ("read", "stored", "skipped", "invalid", "failed", "no_message")
    }
    assert counts == {"read": 3, "stored": 1, "skipped": 1, "invalid": 1, "failed": 0, "no_message": 2}
    assert found.messages == MessagesOfWindow(read=3, stored=1, skipped=1, dead_letters=1, no_message=2)
    assert [one.name for one in found.sinks] == ["hbase", "dead_letters"]
    assert found.attempt.run == "run 1"
    assert [one.step for one in found.times] == [
        "pinned",
        "taken by the attempt",
        "begun",
        "read, stored and verified",
        "committed",
    ]
    # The last window, which stands in the head.
    last = window_of(world.opened, "ingest", 2)
    assert last is not None
    assert (last.offsets, last.committed_at) == (2, 1_001_000)
    assert window_of(world.opened, "ingest", 3) is None
    assert window_of(world.opened, "nowhere", 1) is None


@pytest.mark.covers("U7")
def test_a_gap_is_explained(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.STORED] * 9)
    world.ends((0, 3))
    world.ingest()
    world.ends((5, 7))
    world.ingest()
    found = window_of(world.opened, "ingest", 2)
    assert found is not None
    (gap,) = found.gaps
    assert (gap.partition, gap.start, gap.until, gap.offsets, gap.kind) == (
        "orders/0",
        3,
        5,
        2,
        "lost",
    )
    assert "Kafka no longer had them" in gap.sentence


@pytest.mark.covers("U7", "U13", "U23", "Q26")
def test_the_ranges_of_each_page_name_the_incarnation_that_was_read(tmp_path: Path) -> None:
    """A topic was made anew: who copies a range of an old window erases or replays what that window has read."""
    world = KnownStream(tmp_path, [Fate.STORED] * 9)
    world.ends((0, 3))
    world.ingest()
    run, opened = "orders__replay/manual__1", world.opened
    lane = claim_lane(opened, LaneKind.REPLAY, run, offsets((0, 0, 3)), "bug 17")
    lanes.plan_lane(opened, lane, run)
    world.process(lane, run)
    world.ends((5, 7))
    world.ingest()

    def shown() -> set[str]:
        window, listed = window_of(opened, INGEST, 2), windows_of_lane(opened, INGEST)
        assert window is not None
        assert listed is not None
        (progress,) = progress_of(opened, run).lanes
        shown_windows = [*listed.windows, *overview(opened).windows]
        plan = planned(opened, ReplayRequest(ranges="orders#1/0@5-7,orders#1/0@60-61", reason="bug 17", dry_run=True))
        erasure = to_erase(opened, EraseRequest(records="orders#1/0@5", reason="right", dry_run=True))
        parts: list[Any] = [
            *window.partitions,
            *window.gaps,
            *(range_ for one in shown_windows for range_ in one.ranges),
            *(range_ for one in progress.committed for range_ in one.ranges),
            *progress.partitions,
            *(one for part in plan.partitions for one in part.ranges),
            *(one for part in plan.replaces for one in part.ranges),
            *plan.partitions,
            *plan.left_out.answers,
            *erasure.partitions,
            *(one for part in erasure.partitions for one in part.ranges),
        ]
        answers = [one.as_fields(opened.ledger.topics()) for one in answers_of(opened, committed_by(opened, lane, run))]
        assert answers
        said = counted(opened.ledger.topics(), offsets((0, 5, 7)))["ranges"]
        holes = overview(opened, UnreadOffsets(holes=offsets((0, 3, 5)))).holes
        assert holes is not None
        message = as_values(located(opened, Coordinate(at(0), 3)))
        (gap,) = message.gaps
        records, topics = committed_by(opened, lane, run), opened.ledger.topics()
        (line,) = said_of(topics, records)
        texts = [
            *holes,
            gap.range,
            message.sentence.rpartition("jumped over ")[2],
            *(one for window in windows(topics, records) for one in window.ranges),
            line.split()[3],
            events(opened.ledger)[0].where,
            *report_ranges(),
            refused(),
        ]
        places = [*(one.partition("@")[0] for one in texts), *(one["partition"] for one in (*answers, *said))]
        return {*(one.partition for one in parts), *places}

    def report_ranges() -> list[str]:
        # A run may have the name of a message, and keeps it.
        name = "orders/0@5"
        audit_without_spark(opened, name, Level.LEDGER)
        found = [audit_without_spark(opened, name, Level.LEDGER), find_report(opened, name)]
        assert found[0] == found[1]
        assert [report.run for report in found if report] == [name, name]
        return [one for report in found if report for part in report.coverage for one in (*part.holes, *part.lost)]

    def refused() -> str:
        with pytest.raises(WrongUse) as problem:
            claim_lane(opened, LaneKind.REPLAY, "another run", offsets((0, 3, 5)), "bug 17")
        return str(problem.value)

    assert shown() == {"orders/0"}
    anew = [TopicIncarnation(topic_id=one, incarnation=number, since=number) for number, one in [(1, "old"), (2, "id")]]
    change_topics(opened.ledger, lambda topics: {"orders": tuple(anew)})
    assert shown() == {"orders#1/0"}


def test_a_pending_window_shows_who_works_on_it(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.STORED] * 9)
    world.ends((0, 4))
    pending = ingest.plan_ingest(world.opened, "run 7")
    assert pending is not None
    found = window_of(world.opened, INGEST, 1)
    assert found is not None
    assert (found.state, found.run, found.attempt, found.messages) == ("pending", "run 7", None, None)
    assert found.partitions[0].tally is None
    world.process(INGEST, "run 7")
    world.opened.ledger.beat(INGEST, Heartbeat(generation=1, run="another", at=5, step="storing"))
    assert ingest.plan_ingest(world.opened, "run 8") is None


def test_a_replay_has_its_reason_and_who_asked_and_counts_its_own_offsets(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.STORED, Fate.DEAD_LETTER] * 3)
    world.ends((0, 6))
    while world.ingest() is not None:
        pass
    lane = world.replay("dag/run", (0, 1), (3, 5))
    found = window_of(world.opened, lane, 1)
    assert found is not None
    assert (found.offsets, found.selected, found.partitions[0].offsets) == (3, 3, 3)
    assert (found.reason, found.asked_by, found.approved_by) == ("a test", "ann", "bob")
    assert found.messages == MessagesOfWindow(read=3, stored=2, skipped=0, dead_letters=1, no_message=0)


@pytest.mark.parametrize(("said", "named"), [("ingest/17", ("ingest", 17)), ("replay-a/b/3", ("replay-a/b", 3))])
def test_a_window_is_named_by_lane_and_number(said: str, named: tuple[str, int]) -> None:
    assert parse_window(said) == named


@pytest.mark.parametrize("said", ["ingest", "ingest/", "/3", "ingest/x", "ingest/-1", "ingest/²", "ingest/" + "9" * 20])
def test_what_names_no_window_is_refused(said: str) -> None:
    with pytest.raises(WrongUse, match="expected LANE/NUMBER, for example ingest/17"):
        parse_window(said)
