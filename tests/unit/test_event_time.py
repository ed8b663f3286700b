"""How far a stream is in event time, from its ledger and from Kafka: lanes, added partitions, recreated topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.protocol_world import hold
from tests.support.streams_in_memory import TEXT, at, offsets
from tests.support.timed_streams import Timed, TimedKafka, TimedWork, minutes
from tests.support.timed_streams import timed_stream as stream
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.errors import TopicUnknown
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.reading import Reading
from tidemark.runs import erasing
from tidemark.runs.windows import ingest
from tidemark.views.event_time.completeness import Missing, PartitionCompleteness, TimeSpan
from tidemark.views.event_time.progress import (
    CompleteHour,
    LateInWindows,
    LateTotal,
    MissingPart,
    answer_shown,
    hour_shown,
    late_total,
    progress,
    progress_shown,
)

HOUR = TimeSpan(minutes(0), minutes(60))


def answers(made: Timed, span: TimeSpan = HOUR) -> dict[TopicPartition, PartitionCompleteness]:
    return {one.at: one for one in progress(made.opened).answers(span)}


def rules(made: Timed, span: TimeSpan = HOUR) -> list[str]:
    return [answer.rule.value for answer in answers(made, span).values()]


def test_an_hour_completes_partition_by_partition(tmp_path: Path) -> None:
    made = stream(tmp_path)
    made.kafka.send(0, minutes(1), minutes(70))
    made.kafka.send(1, minutes(2))
    assert rules(made) == ["not over", "not over"]
    assert progress(made.opened).watermark() == minutes(1 - 5)
    made.now = minutes(65)
    assert rules(made) == ["missing", "missing"]
    made.ingest()
    assert rules(made) == ["passed", "idle"]
    seen = progress(made.opened)
    assert seen.watermark() == minutes(60)
    ((hour, found),) = seen.became_complete(seen.watermark(), [])
    assert hour == HOUR
    assert hour_shown(hour, found) == CompleteHour(
        "1981-05-29T16Z", "1981-05-29T16:00:00Z", "1981-05-29T17:00:00Z", LateTotal(0, 0)
    )
    assert seen.became_complete(seen.watermark(), [hour.start]) == []
    # A partition that was added, and that nobody has read, holds the stream back; an empty one does not.
    made.kafka.send(2)
    made.kafka.send(3, minutes(40))
    assert rules(made) == ["passed", "idle", "idle", "missing"]
    assert progress(made.opened).watermark() == minutes(40 - 5)
    made.ingest("run 2")
    assert rules(made) == ["passed", "idle", "idle", "idle"]


def test_late_messages_are_counted_between_bounds_and_exactly(tmp_path: Path) -> None:
    made = stream(tmp_path, text="event_time:\n  allowed_lateness_minutes: 10\n")
    made.now = minutes(100)
    # The hour is passed by 70, not by 69.
    made.kafka.send(0, minutes(69), minutes(3), minutes(70), minutes(71), minutes(4))
    made.ingest()
    made.kafka.send(0, minutes(72), minutes(5), minutes(80))
    made.ingest("run 2")
    made.kafka.send(0, minutes(6))
    (answer,) = answers(made).values()
    assert answer.complete
    shown = answer_shown(answer)
    assert shown.late == LateInWindows(1, 4, ["ingest/1", "ingest/2"])
    assert shown.unread_after == 1
    seen = progress(made.opened)
    reading = Reading()
    assert late_total(seen.counted(HOUR, [answer], reading)) == LateTotal(2, 2)
    ((place, total, done),) = reading.so_far()
    assert (place, total, done) == (at(0), answer.late.ranges.count(), total)
    # Kafka has deleted one of them since.
    made.kafka.delete(0, 5)
    (answer,) = answers(made).values()
    assert progress(made.opened).counted(HOUR, [answer], reading) == [answer]
    assert reading.so_far() == []
    assert answer.late.least <= 2 <= answer.late.most
    # A replay reads again, and adds nothing late.
    made.selected(LaneKind.REPLAY, offsets((0, 5, 8)))
    assert answers(made)[at(0)].late == answer.late


def test_a_backfill_completes_an_hour_before_the_stream_began(tmp_path: Path) -> None:
    text = TEXT.replace("start: earliest", "start: {offsets: {orders/0: 2}}")
    made = Timed(tmp_path, kafka=TimedKafka(logs={}), text=text)
    made.now = minutes(90)
    made.kafka.send(0, minutes(1), minutes(2), minutes(3), minutes(70))
    made.ingest()
    assert answer_shown(answers(made)[at(0)]).missing == [MissingPart("unread", "orders/0@0-2")]
    # Its watermark is that of what it reads, and the hour is not announced.
    seen = progress(made.opened)
    assert (seen.watermark(), seen.became_complete(seen.watermark(), [])) == (minutes(85), [])
    made.selected(LaneKind.BACKFILL, offsets((0, 0, 2)))
    assert rules(made) == ["passed"]
    assert [hour for hour, _ in progress(made.opened).became_complete(seen.watermark(), [])] == [HOUR]


def erase(made: Timed, *found: tuple[int, int, int]) -> None:
    run = f"erasure {found}"
    lane = erasing.open_erasure(made.opened, run, erasing.choose(made.opened, offsets(*found)), "request 4711")
    erasing.erase(made.opened, lane, run)


@pytest.mark.covers("N27")
def test_an_erasure_leaves_no_hole_and_moves_nothing(tmp_path: Path) -> None:
    text = TEXT.replace("start: earliest", "start: {offsets: {orders/0: 2}}")
    made = Timed(tmp_path, kafka=TimedKafka(logs={}), text=text)
    made.now = minutes(90)
    made.kafka.send(0, *(minutes(one) for one in (1, 2, 3, 61, 70, 4)))
    made.ingest()
    before = answers(made)[at(0)]
    assert [str(one) for _, one in before.missing] == ["orders/0@0-2"]
    # What was read and is erased stays passed, and the number of late messages is the same.
    made.now = minutes(95)
    erase(made, (0, 3, 4), (0, 5, 6))
    assert answers(made)[at(0)] == before
    assert progress(made.opened).watermark() == minutes(95 - 5)
    # What no window has read is not waited for once it is erased.
    erase(made, (0, 0, 1))
    assert [str(one) for _, one in answers(made)[at(0)].missing] == ["orders/0@1-2"]
    erase(made, (0, 1, 2))
    assert rules(made) == ["passed"]
    assert progress(made.opened).passed_over() == RangeSet()


@pytest.mark.covers("N27")
def test_an_erasure_is_no_sign_that_a_partition_is_still_read(tmp_path: Path) -> None:
    made = stream(tmp_path)
    made.now = minutes(90)
    made.kafka.send(0, minutes(1), minutes(70))
    made.kafka.send(1, minutes(2), minutes(80))
    made.ingest()
    fewer = Timed(
        tmp_path,
        made.kafka,
        made.text.replace("topics: [orders]", "partitions: {orders: [0]}"),
        made.store,
    )
    fewer.now = minutes(200)
    # The second hour ended after the stream had left partition 1 alone, whatever is erased there since.
    later = TimeSpan(minutes(120), minutes(180))
    assert list(answers(fewer, later)) == [at(0)]
    erase(fewer, (1, 0, 1))
    assert list(answers(fewer, later)) == [at(0)]
    assert list(answers(fewer)) == [at(0), at(1)]


def test_what_a_policy_passed_over_is_named_and_holds_nothing_back(tmp_path: Path) -> None:
    made = stream(tmp_path, "\n  on_out_of_range: earliest", "limits:\n  max_behind: 2\n")
    made.now = minutes(200)
    made.kafka.send(0, minutes(1))
    made.ingest()
    made.kafka.send(0, minutes(2), minutes(70), minutes(71), minutes(130), minutes(140), minutes(190))
    made.kafka.delete(0, 3)
    made.ingest("run 2")
    second = TimeSpan(minutes(60), minutes(120))
    missing = {
        span.start: answers(made, span)[at(0)].missing for span in (HOUR, second, TimeSpan(minutes(120), minutes(180)))
    }
    kinds = {start: [(kind, (one.start, one.until)) for kind, one in found] for start, found in missing.items()}
    # Kafka knows the hours of 3 and 4. Of 1 and 2 it knows that 3 follows them.
    assert kinds == {
        HOUR.start: [(Missing.LOST, (1, 3))],
        second.start: [(Missing.LOST, (1, 3)), (Missing.SKIPPED, (3, 4))],
        minutes(120): [(Missing.SKIPPED, (4, 5))],
    }
    seen = progress(made.opened)
    assert progress_shown(seen, seen.watermark()) == {
        "watermark": "1981-05-29T19:15:00Z",
        "passed_over": ["orders/0@1-5"],
    }


def test_a_recreated_topic_is_judged_by_both_its_incarnations(tmp_path: Path) -> None:
    made = stream(tmp_path, "\n  on_recreated: accept")
    made.kafka.ids["orders"] = "first"
    made.kafka.send(0, minutes(1), minutes(66), minutes(70))
    made.now = minutes(100)
    made.ingest()
    made.kafka.ids["orders"] = "second"
    made.kafka.times[0] = []
    made.kafka.send(0, minutes(110))
    # Before the change is accepted, the topic is another one.
    assert rules(made) == ["passed"]
    assert progress(made.opened).watermark() is None
    made.now = minutes(200)
    made.ingest("run 2")
    assert rules(made) == ["passed", "passed"]
    # What the first one had after its last window is not known.
    assert rules(made, TimeSpan(minutes(60), minutes(120))) == ["replaced", "idle"]
    assert rules(made, TimeSpan(minutes(200), minutes(201))) == ["not over"]


def test_what_was_committed_before_it_was_read_counts_when_it_was_read(tmp_path: Path) -> None:
    made = stream(tmp_path, text="guarantee: at_most_once\n")
    made.now = minutes(90)
    made.kafka.send(0, minutes(1), minutes(70))

    class Dies(TimedWork):
        def store(self, *_: object) -> None:
            raise KeyboardInterrupt

    ingest.plan_ingest(made.opened, "run 1")
    with pytest.raises(KeyboardInterrupt):
        protocol.process(made.opened.ledger, made.sweeps, Dies(made.kafka), hold, "ingest", 1, Run("run 1", "v1", "d"))
    answer = answers(made)[at(0)]
    assert [kind for kind, _ in answer.missing] == [Missing.UNFINISHED]
    seen = progress(made.opened)
    assert (seen.watermark(), str(next(iter(seen.passed_over())))) == (minutes(85), "orders/0@0-2")


def test_a_topic_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    made = stream(tmp_path)
    with pytest.raises(TopicUnknown, match="topic orders does not exist"):
        progress(made.opened)
