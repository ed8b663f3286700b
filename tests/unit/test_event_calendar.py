"""The hours of a stream as a calendar, against the answers hour by hour: words, what is missing, what came late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.streams_in_memory import TEXT, offsets
from tests.support.timed_streams import Place, Timed, TimedKafka, minutes, timed_stream
from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import WrongUse
from tidemark.ledger.records import TopicIncarnation
from tidemark.views.event_time.calendar import (
    Hour,
    HourLine,
    calendar_of,
    hour_asked,
    hour_whole,
    hours_asked,
)
from tidemark.views.event_time.completeness import HOUR_MS, Missing, TimeSpan
from tidemark.views.event_time.progress import MAX_HOURS, EventTimeNow, LateTotal, progress

HOUR = 60


def whole(seen: EventTimeNow, hour: TimeSpan) -> Hour:
    return hour_whole(seen, hour, seen.first_message())


def lines_of(seen: EventTimeNow, hours: list[TimeSpan]) -> list[HourLine]:
    return calendar_of(seen, hours, None, seen.first_message()).hours


def words(made: Timed, since: int, hours: int) -> list[str]:
    seen = progress(made.opened)
    spans = [TimeSpan(minutes(since + HOUR * one), minutes(since + HOUR * (one + 1))) for one in range(hours)]
    return [one.word for one in lines_of(seen, spans)]


@pytest.mark.covers("U10")
def test_an_hour_in_a_word(tmp_path: Path) -> None:
    made = timed_stream(tmp_path)
    made.now = minutes(4 * HOUR)
    made.kafka.send(0, minutes(70), minutes(130), minutes(230))
    made.kafka.send(1, minutes(80))
    made.ingest()
    made.kafka.send(0, minutes(190), minutes(200))
    before, complete = "before the first message", "complete"
    assert words(made, 0, 4) == [before, complete, complete, "not over"]
    # The clock goes on. The next run reads what was sent meanwhile.
    made.now = minutes(5 * HOUR + 10)
    assert words(made, 0, 5) == [before, complete, complete, "not read yet", complete]
    made.ingest("run 2")
    assert words(made, 0, 5) == [before, *[complete] * 4]
    assert whole(progress(made.opened), TimeSpan(minutes(0), minutes(60))).word == before
    # A topic that was made again is another one. Nobody knows what the first one had left.
    made.kafka.send(1, minutes(320))
    made.now = minutes(6 * HOUR)
    seen = progress(made.opened)
    cut = replace(seen, partitions=tuple(replace(one, log=None, ended_at=made.now) for one in seen.partitions))
    assert whole(cut, TimeSpan(minutes(240), minutes(300))).word == "replaced"


@pytest.mark.covers("U10")
def test_what_the_stream_has_gone_past_is_missing_and_a_backfill_reads_it(tmp_path: Path) -> None:
    made = timed_stream(tmp_path)
    made.now = minutes(3 * HOUR)
    made.kafka.send(0, *(minutes(one) for one in (1, 10, 20, 30, 70, 80)))
    made.ingest()
    made.kafka.send(0, minutes(90))
    seen = progress(made.opened)
    # Offsets 1 and 2 are a hole, 3 was skipped, and Kafka has deleted what is below 2.
    (one,) = seen.partitions
    holed = replace(
        one,
        covered=one.covered - offsets((0, 1, 4)),
        left_out={**one.left_out, Missing.SKIPPED: offsets((0, 3, 4))},
        log=replace(one.log, start=2) if one.log else None,
        begins=0,
    )
    holes = replace(seen, partitions=(holed,), _passing={})
    hour = TimeSpan(minutes(0), minutes(60))
    found = whole(holes, hour)
    assert (found.word, found.complete) == ("missing", False)
    (shown,) = found.partitions
    assert [(part.kind, part.start, part.until, part.again) for part in shown.missing] == [
        ("skipped", 3, 4, "orders/0@3-4"),
        ("expired", 1, 2, None),
        ("unread", 2, 3, "orders/0@2-3"),
    ]
    assert found.backfill == ["orders/0@3-4", "orders/0@2-3"]
    assert {part.partition for part in shown.missing} == {"orders/0"}
    # A topic was made anew meanwhile: then the range alone would mean the new one's offsets.
    anew = [TopicIncarnation(topic_id=one, incarnation=number, since=number) for number, one in [(1, "old"), (2, "id")]]
    (shown,) = whole(replace(holes, topics={"orders": tuple(anew)}), hour).partitions
    assert {part.partition for part in shown.missing} == {"orders#1/0"}
    (line,) = lines_of(holes, [hour])
    assert (line.word, line.missing) == ("missing", 3)
    # A hole alone is not the next run's: the stream has gone past it.
    hole = replace(one, covered=one.covered - offsets((0, 1, 2)))
    alone = whole(replace(seen, partitions=(hole,), _passing={}), hour)
    assert (alone.word, alone.backfill) == ("missing", ["orders/0@1-2"])
    # What lies behind all that was read is left to the next run.
    later = whole(seen, TimeSpan(minutes(60), minutes(120)))
    (waiting,) = later.partitions[0].missing
    assert (later.word, waiting.start, waiting.again, later.backfill) == ("not read yet", 6, None, [])


@pytest.mark.covers("U10")
def test_late_messages_are_marked_between_their_bounds(tmp_path: Path) -> None:
    made = timed_stream(tmp_path)
    made.now = minutes(3 * HOUR)
    made.kafka.send(0, minutes(1), minutes(70))
    made.ingest()
    made.kafka.send(0, minutes(30), minutes(75), minutes(76))
    made.ingest("run 2")
    made.kafka.send(0, minutes(80))
    found = whole(progress(made.opened), TimeSpan(minutes(0), minutes(60)))
    assert (found.word, found.late, found.unread_after) == ("complete", LateTotal(1, 2), 1)
    assert found.partitions[0].late.windows == ["ingest/2"]


class Counting(TimedKafka):
    asked = 0

    def first_at_or_after(
        self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str
    ) -> dict[Place, int | None]:
        self.asked += 1
        return super().first_at_or_after(logs, timestamp_ms, isolation)


@given(
    times=st.lists(st.lists(st.integers(0, 12 * HOUR), max_size=8), min_size=1, max_size=2),
    read=st.integers(0, 4),
    since=st.integers(0, 6),
    now=st.integers(0, 14 * HOUR),
)
def test_the_calendar_says_what_each_hour_says_by_itself(
    tmp_path_factory: pytest.TempPathFactory, times: list[list[int]], read: int, since: int, now: int
) -> None:
    made = timed_stream(tmp_path_factory.mktemp("stream"))
    made.now = minutes(now)
    for partition, found in enumerate(times):
        made.kafka.send(partition, *map(minutes, found[:read]))
    made.ingest()
    for partition, found in enumerate(times):
        made.kafka.send(partition, *map(minutes, found[read:]))
    seen = progress(made.opened)
    first = seen.first_message()
    hours = [TimeSpan(minutes(HOUR * one), minutes(HOUR * (one + 1))) for one in range(since, since + 8)]
    lines = lines_of(seen, hours)
    for line, hour in zip(lines, hours, strict=True):
        answers = progress(made.opened).answers(hour)
        if line.word == "before the first message":
            assert first is not None
            assert hour.until <= first
            continue
        assert (line.since, line.until) == (hour.start, hour.until)
        assert (line.word in ("complete", "no message yet")) == all(answer.complete for answer in answers)
        if line.word == "no message yet":
            assert first is None
        assert (line.word == "not over") == (made.now < hour.until + seen.lateness_ms)
        assert line.missing == sum(len(part) for one in answers for _, part in one.missing)
        assert line.late.most == sum(one.late.most for one in answers)


def test_kafka_is_asked_no_more_than_its_logs_change(tmp_path: Path) -> None:
    """A week without messages costs a few questions; each time is asked once."""
    kafka = Counting(logs={})
    made = Timed(tmp_path, kafka=kafka, text=TEXT)
    made.now = minutes(400 * HOUR)
    made.kafka.send(0, minutes(1), minutes(200 * HOUR))
    made.ingest()
    seen = progress(made.opened)
    week = [TimeSpan(minutes(HOUR * one), minutes(HOUR * (one + 1))) for one in range(20, 20 + MAX_HOURS)]
    lines_of(seen, week)
    assert kafka.asked <= 4
    # All that is read is in one window. Its two messages are at either end of the log.
    all_hours = [TimeSpan(minutes(HOUR * one), minutes(HOUR * (one + 1))) for one in range(220)]
    asked = kafka.asked
    lines = lines_of(seen, all_hours)
    assert {one.word for one in lines} == {"complete"}
    assert kafka.asked - asked <= 40
    asked = kafka.asked
    lines_of(seen, all_hours)
    assert kafka.asked == asked


def test_hours_are_asked_by_their_beginning() -> None:
    now = 100_000 * HOUR_MS + 5
    last = hours_asked("", 3, now)
    assert [one.start // HOUR_MS for one in last] == [99_998, 99_999, 100_000]
    assert hours_asked("1970-01-01T02Z", 2, now) == [
        TimeSpan(2 * HOUR_MS, 3 * HOUR_MS),
        TimeSpan(3 * HOUR_MS, 4 * HOUR_MS),
    ]
    # Nothing before 1970, and nothing that has not begun.
    assert len(hours_asked("", 168, 2 * HOUR_MS)) == 3
    assert hours_asked("2200-01-01T00Z", 9, now) == []
    assert hour_asked("hour", "1970-01-01T05:30:00+05:30") == TimeSpan(0, HOUR_MS)
    for text, why in {
        "1970-01-01T00:30Z": "hour: 1970-01-01T00:30Z: no hour begins then",
        "yesterday": "hour: 'yesterday' is not a time",
        "1970-01-01T05": "has no zone",
        "1960-01-01T00Z": "hour: the span has no time in it",
    }.items():
        with pytest.raises(WrongUse, match=why):
            hour_asked("hour", text)


def test_a_stream_without_any_message(tmp_path: Path) -> None:
    made = timed_stream(tmp_path)
    made.kafka.send(0)
    made.now = minutes(3 * HOUR)
    assert progress(made.opened).first_message() is None
    assert words(made, 0, 3) == ["no message yet", "no message yet", "not over"]
    made.ingest()
    # What Kafka has by now is not read yet.
    made.kafka.send(0, minutes(70))
    made.now = minutes(4 * HOUR)
    assert words(made, 0, 2)[1] == "not read yet"
