"""Whether a span of event time is complete, against all messages of a log: late, out of order, lost, expired, held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import WrongUse
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.views.event_time.completeness import (
    HOUR_MS,
    MISSINGS,
    NOTHING_NOTED,
    RULES,
    CompletenessRule,
    LogBounds,
    Missing,
    OffsetsForTimes,
    Partition,
    PartitionCompleteness,
    TimeSpan,
    WindowPart,
    announced_before,
    concerns,
    hours_due,
    is_complete,
    judge,
    noted,
    passed_over,
    watermark,
)

AT = TopicPartition("orders", 0)


@dataclass(frozen=True)
class World:
    """A log: the timestamp of each offset from 0 (None: a marker), what Kafka still holds, and what became of the offsets.

    `became`: the lengths of runs of offsets from the beginning, each with its fate; all behind them is unread.
    """

    times: tuple[int | None, ...]
    start: int
    held: int
    became: tuple[tuple[int, str], ...]

    def fates(self) -> list[str]:
        found = [fate for length, fate in self.became for _ in range(length)]
        return (found + ["unread"] * len(self.times))[: len(self.times)]

    def first(self, time: int, below: int | None = None, *, above: int = 0) -> int | None:
        """The first offset at or after a time."""
        until = len(self.times) if below is None else below
        return next(
            (offset for offset in range(above, until) if (seen := self.times[offset]) is not None and seen >= time),
            None,
        )

    def read(self, offset: int) -> bool:
        return self.fates()[offset] == "window"

    def partition(self) -> Partition:
        covered, left_out, parts = RangeSet(), {Missing.LOST: RangeSet(), Missing.SKIPPED: RangeSet()}, []
        at = 0
        for number, (length, fate) in enumerate(self.became):
            start, until = at, min(at + length, len(self.times))
            at = until
            if start == until:
                continue
            ranges = RangeSet([OffsetRange(AT, start, until)])
            if fate == "window":
                covered |= ranges
                seen = [(offset, time) for offset in range(start, until) if (time := self.times[offset]) is not None]
                if seen:
                    times = [time for _, time in seen]
                    parts.append(
                        WindowPart(f"ingest/{number}", len(seen), seen[0][0], seen[-1][0], min(times), max(times))
                    )
            elif fate != "unread":
                left_out[Missing(fate)] |= ranges
        log = LogBounds(self.start, len(self.times) - self.held, len(self.times))
        return Partition(AT, 0, covered, left_out, tuple(parts), (), log)

    def passing(self, span: TimeSpan, lateness: int) -> OffsetsForTimes:
        end = len(self.times) - self.held
        return OffsetsForTimes(
            *(self.first(time, end, above=self.start) for time in (0, span.start, span.until + lateness))
        )

    def judged(self, span: TimeSpan, now: int, lateness: int) -> PartitionCompleteness:
        return judge(self.partition(), span, self.passing(span, lateness), now, lateness)


@st.composite
def worlds(draw: st.DrawFn, *, expired: bool = True) -> World:
    """Logs of which Kafka has deleted only what windows have read, unless `expired`; then the times are in order."""
    times = draw(st.lists(st.one_of(st.none(), st.integers(0, 12), st.integers(0, 12)), max_size=14))
    fate = st.sampled_from(["window", "window", "window", "lost", "skipped", "unread"])
    became = draw(st.lists(st.tuples(st.integers(1, 5), fate), max_size=6))
    made = World(tuple(times), 0, draw(st.integers(0, 2)) if draw(st.booleans()) else 0, tuple(became))
    made = replace(made, held=min(made.held, len(times)))
    # What an open transaction holds back is in no window.
    cut = len(times) - made.held
    made = replace(made, became=_first(made.became, cut))
    read = next((offset for offset in range(len(times)) if not made.read(offset)), len(times))
    if expired:
        return replace(made, start=draw(st.integers(0, min(read, cut))))
    ordered = iter(sorted(time for time in times if time is not None))
    return replace(
        made,
        times=tuple(None if time is None else next(ordered) for time in times),
        start=draw(st.integers(0, cut)),
    )


def _first(became: Sequence[tuple[int, str]], limit: int) -> tuple[tuple[int, str], ...]:
    found, at = [], 0
    for length, fate in became:
        length = min(length, limit - at)
        at += length
        if length:
            found.append((length, fate))
    return tuple(found)


spans = st.tuples(st.integers(0, 12), st.integers(1, 4)).map(lambda one: TimeSpan(one[0], sum(one)))
latenesses = st.integers(0, 3)


def in_order(world: World) -> World:
    ordered = iter(sorted(time for time in world.times if time is not None))
    return replace(world, times=tuple(None if time is None else next(ordered) for time in world.times))


@pytest.mark.covers("N11")
@given(world=worlds(), span=spans, now=st.integers(0, 20), lateness=latenesses)
def test_complete_says_that_each_message_before_the_passing_is_in_a_window(
    world: World, span: TimeSpan, now: int, lateness: int
) -> None:
    answer = world.judged(span, now, lateness)
    end = span.until + lateness
    until = world.first(end)
    before = range(len(world.times) if until is None else until)
    inside = [at for at in before if (time := world.times[at]) is not None and span.start <= time < span.until]
    if answer.complete:
        assert now >= end
        assert all(map(world.read, inside))
        assert (answer.rule, answer.missing) == (
            CompletenessRule.IDLE if until is None else CompletenessRule.PASSED,
            (),
        )
    elif now >= end:
        # What is missing may belong to it: Kafka holds something unread from its first message on.
        since = world.first(span.start, len(world.times) - world.held, above=world.start)
        possible = range(len(world.times) - world.held if since is None else since, len(world.times))
        assert answer.rule == CompletenessRule.MISSING
        for kind, part in answer.missing:
            for offset in range(part.start, part.until):
                assert offset in possible
                assert not world.read(offset)
                fate = world.fates()[offset]
                held = offset >= len(world.times) - world.held
                assert kind == (Missing.HELD if held else Missing(fate))
    else:
        assert answer.rule == CompletenessRule.NOT_OVER


@given(world=worlds(), span=spans, lateness=latenesses)
def test_what_is_read_without_a_gap_is_complete_as_soon_as_the_clock_allows(
    world: World, span: TimeSpan, lateness: int
) -> None:
    end = span.until + lateness
    until = world.first(end, len(world.times) - world.held)
    if all(world.read(at) for at in range(len(world.times) if until is None else until)):
        assert world.judged(span, end, lateness).complete
    assert not world.judged(span, end - 1, lateness).complete


@given(world=worlds(expired=False), span=spans, lateness=latenesses)
def test_of_a_log_in_order_deleted_offsets_never_hide_what_is_missing(
    world: World, span: TimeSpan, lateness: int
) -> None:
    if world.judged(span, 100, lateness).complete:
        for offset, time in enumerate(world.times):
            if time is not None and span.start <= time < span.until:
                # Nobody knows the times of deleted offsets; here the order tells.
                assert world.read(offset)


@pytest.mark.covers("N11")
@given(world=worlds(), span=spans, lateness=latenesses)
def test_the_number_of_late_messages_lies_within_its_bounds(world: World, span: TimeSpan, lateness: int) -> None:
    late = world.judged(span, 100, lateness).late
    known = [at for at in range(len(world.times) - world.held) if world.read(at) or at >= world.start]
    passed = next((at for at in known if (time := world.times[at]) is not None and time >= span.until + lateness), None)
    behind = [at for at in range(len(world.times)) if passed is not None and at > passed]
    came = [at for at in behind if (time := world.times[at]) is not None and span.start <= time < span.until]
    read = [at for at in came if world.read(at)]
    assert late.least <= len(read) <= late.most
    assert {AT} >= set(late.ranges.partitions)
    assert all((AT, at) in late.ranges for at in read)
    assert late.unread >= len(came) - len(read)


@given(world=worlds(), lateness=latenesses, now=st.integers(0, 20), known=st.booleans())
def test_below_the_watermark_a_span_lacks_only_what_was_passed_over(
    world: World, lateness: int, now: int, known: bool
) -> None:
    one = world.partition()
    unread = world.times[one.next] if known and one.waiting is not None else None
    found = watermark(one, now, lateness, unread)
    if found is None or found < 1:
        return
    assert found <= now - lateness
    span = TimeSpan(max(0, found - 4), found)
    answer = world.judged(span, now, lateness)
    # The watermark is a place in the order of the offsets too: nothing before it is simply unread.
    assert answer.complete or {kind for kind, _ in answer.missing} <= {Missing.LOST, Missing.SKIPPED}
    for _, part in answer.missing:
        assert not RangeSet([part]) - passed_over(one)


class LooksAtAll(Partition):
    def near(self, start: int, end: int) -> Sequence[WindowPart]:
        return self.parts


@st.composite
def parts(draw: st.DrawFn, most: int = 3_000) -> tuple[WindowPart, ...]:
    """Parts of any order and length in time, which may overlap. Times are whole thirds of an hour."""
    found = []
    for number in range(draw(st.integers(0, 8))):
        first = draw(st.integers(0, 40))
        size = draw(st.integers(1, 6))
        start = draw(st.integers(0, 200))
        length = draw(st.sampled_from([0, 0, 1, 2, 5, 160, most]))
        times = (start * HOUR_MS // 3, (start + length) * HOUR_MS // 3)
        found.append(WindowPart(f"ingest/{number}", size, first, first + size - 1, *times, draw(st.booleans())))
    return tuple(found)


@given(
    parts=parts(),
    start=st.integers(0, 200),
    length=st.sampled_from([1, 2, 3, 30, 4_000]),
    log=st.none() | st.tuples(st.integers(0, 45), st.integers(0, 5)),
    passing=st.tuples(*[st.none() | st.integers(0, 45)] * 3),
    lateness=st.integers(0, 4),
)
def test_the_parts_near_a_span_say_what_all_parts_say(
    parts: tuple[WindowPart, ...],
    start: int,
    length: int,
    log: tuple[int, int] | None,
    passing: tuple[int | None, int | None, int | None],
    lateness: int,
) -> None:
    covered = RangeSet(OffsetRange(AT, part.first, part.last + 1) for part in parts)
    held = None if log is None else LogBounds(log[0], sum(log), sum(log))
    fields = (AT, 0, covered, {}, parts, (), held)
    span = TimeSpan(start * HOUR_MS // 3, (start + length) * HOUR_MS // 3)
    asked = (span, OffsetsForTimes(*passing), 10**12, lateness * HOUR_MS // 3)
    assert judge(Partition(*fields), *asked) == judge(LooksAtAll(*fields), *asked)


EVENT = (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("world", "rule", "now"),
    [
        (World(EVENT, 0, 0, ((6, "window"),)), CompletenessRule.PASSED, 5),
        (World(EVENT[:4], 0, 0, ((4, "window"),)), CompletenessRule.IDLE, 7),
        (World((), 0, 0, ()), CompletenessRule.IDLE, 7),
        (World(EVENT, 0, 0, ((2, "window"),)), CompletenessRule.MISSING, 7),
        (World(EVENT[:4], 0, 1, ((3, "window"),)), CompletenessRule.MISSING, 7),
        (World(EVENT, 0, 0, ((6, "window"),)), CompletenessRule.NOT_OVER, 4),
    ],
)
def test_each_rule(world: World, rule: CompletenessRule, now: int) -> None:
    assert world.judged(TimeSpan(2, 4), now, 1).rule == rule


def test_a_partition_that_was_replaced_is_judged_by_its_windows() -> None:
    whole = World(EVENT, 0, 0, ((6, "window"),)).partition()
    gone = replace(whole, log=None, ended_at=3)
    nothing = OffsetsForTimes()
    assert judge(gone, TimeSpan(2, 4), nothing, 9, 1).rule == CompletenessRule.PASSED
    # Nobody knows what came after its last window.
    assert judge(gone, TimeSpan(2, 6), nothing, 9, 1).rule == CompletenessRule.REPLACED
    assert concerns(gone, TimeSpan(2, 4))
    assert not concerns(gone, TimeSpan(3, 5))
    assert watermark(gone, 9, 0) == 5
    # A hole in its windows counts unless an older message follows.
    holed = replace(gone, covered=gone.covered - RangeSet([OffsetRange(AT, 0, 1)]))
    holed = replace(holed, parts=(WindowPart("ingest/1", 5, 1, 5, 1, 5),))
    assert judge(holed, TimeSpan(2, 4), nothing, 9, 1).rule == CompletenessRule.PASSED
    assert judge(holed, TimeSpan(1, 4), nothing, 9, 1).missing == ((Missing.UNREAD, OffsetRange(AT, 0, 1)),)


def test_what_expired_before_the_span_began_does_not_belong_to_it() -> None:
    """A stream that began with a log whose first messages were gone, and whose later ones are gone too."""
    one = Partition(
        AT,
        10,
        RangeSet([OffsetRange(AT, 10, 20)]),
        {},
        (WindowPart("ingest/1", 10, 10, 19, 50, 90),),
        ((60, 12),),
        LogBounds(20, 20, 20),
    )
    nothing = OffsetsForTimes()
    lost = ((Missing.EXPIRED, OffsetRange(AT, 0, 10)),)
    # Offsets below 12 had come by 60, and what follows them is of 50.
    for start, missing in ((30, lost), (50, lost), (51, ()), (60, ()), (70, ())):
        assert judge(one, TimeSpan(start, 80), nothing, 99, 0).missing == missing
    assert judge(replace(one, arrived=((60, 9),), parts=()), TimeSpan(60, 80), nothing, 99, 0).missing == lost
    assert judge(replace(one, arrived=((60, 10),), parts=()), TimeSpan(60, 80), nothing, 99, 0).missing == ()
    # What follows next decides.
    two = replace(one, parts=(WindowPart("ingest/2", 5, 15, 19, 20, 90), WindowPart("ingest/1", 5, 10, 14, 50, 80)))
    assert judge(two, TimeSpan(40, 80), nothing, 99, 0).missing == lost


def test_a_window_of_scattered_offsets_proves_nothing_between_them() -> None:
    covered = RangeSet([OffsetRange(AT, 0, 1), OffsetRange(AT, 5, 6)])
    one = Partition(AT, 0, covered, {}, (WindowPart("backfill-1/1", 2, 0, 5, 3, 9),), (), None)
    # Which of its two messages passed the span, nobody knows: all before the second may belong to it.
    answer = judge(one, TimeSpan(2, 4), OffsetsForTimes(), 99, 0)
    assert answer.missing == ((Missing.UNREAD, OffsetRange(AT, 1, 5)),)
    log = replace(one, log=LogBounds(0, 6, 6))
    late = judge(log, TimeSpan(2, 4), OffsetsForTimes(0, 0, 0), 99, 0).late
    assert (late.ranges, late.unread) == (covered, 4)
    # What Kafka has deleted is not waited for.
    deleted = replace(one, log=LogBounds(3, 6, 6))
    assert judge(deleted, TimeSpan(2, 4), OffsetsForTimes(3, 3, 3), 99, 0).late.unread == 2


def test_late_messages_are_known_exactly_where_a_window_has_nothing_else() -> None:
    # Window 0 passes the span at its last offset. Windows 1 and 2 came later, the second with other times too.
    times = (1, 2, 9, 3, 2, 3, 0, 2, 2, 8)
    world = World(times, 0, 0, ((3, "window"), (3, "window"), (4, "window")))
    late = world.judged(TimeSpan(2, 4), 99, 1).late
    assert (late.least, late.most, late.windows) == (3, 5, ("ingest/1", "ingest/2"))
    assert world.judged(TimeSpan(3, 4), 99, 1).late.most == 4
    # One of which nothing is late.
    assert world.judged(TimeSpan(10, 12), 99, 1).late.most == 0
    # Windows that read again do not prove that there are so many.
    one = world.partition()
    again = replace(one, parts=tuple(replace(part, once=False) for part in one.parts))
    assert judge(again, TimeSpan(2, 4), world.passing(TimeSpan(2, 4), 1), 99, 1).late.least == 0


def test_the_watermark_goes_on_where_a_policy_passed_over_and_names_what() -> None:
    one = World((1, 2, 3, 4, 5, 6), 0, 0, ((2, "window"), (1, "skipped"), (2, "window"))).partition()
    assert watermark(one, 99, 2) == 3
    assert watermark(one, 99, 2, unread_since=6) == 4
    assert watermark(one, 4, 2, unread_since=6) == 2
    assert passed_over(one) == RangeSet([OffsetRange(AT, 2, 3)])
    hole = replace(one, left_out={})
    assert (watermark(hole, 99, 0), passed_over(hole)) == (2, RangeSet())
    assert watermark(World((1,), 0, 0, ()).partition(), 99, 0) is None
    # What is passed over only later.
    beyond = World((1, 2, 3, 4), 0, 0, ((2, "window"), (1, "unread"), (1, "skipped"))).partition()
    assert (watermark(beyond, 99, 0), passed_over(beyond)) == (2, RangeSet())


def test_hours_are_due_from_the_first_message_to_the_watermark() -> None:
    hour = HOUR_MS
    assert hours_due(hour + 5, 4 * hour, [2 * hour], 9) == [hour, 3 * hour]
    assert hours_due(hour + 5, 4 * hour - 1, [], 9) == [hour, 2 * hour]
    assert hours_due(0, 4 * hour, [], 2) == [2 * hour, 3 * hour]
    assert hours_due(None, 4 * hour, [], 2) == hours_due(0, None, [], 2) == []


def test_an_hour_is_announced_once_unless_its_own_run_tries_again() -> None:
    first = noted(announced_before(NOTHING_NOTED, "run 1"), [5, 3], "run 1", 9)
    assert announced_before(first, "run 2") == {3, 5}
    assert announced_before(first, "run 1") == set()
    second = noted({3, 5}, [7], "run 2", 2)
    assert announced_before(second, "run 2") == {5}
    assert announced_before(second, "run 1") == {5, 7}


def test_a_log_that_ends_below_what_was_read_proves_nothing() -> None:
    one = World(EVENT, 0, 0, ((6, "window"),)).partition()
    cut = replace(one, log=LogBounds(0, 5, 5))
    assert judge(cut, TimeSpan(2, 4), OffsetsForTimes(0, 2, 4), 9, 0).rule == CompletenessRule.REPLACED
    assert (watermark(one, 9, 0), watermark(cut, 9, 0)) == (9, None)


def test_a_span_has_time_in_it_and_each_word_its_meaning() -> None:
    for start, until in ((5, 5), (6, 5), (-1, 5)):
        with pytest.raises(WrongUse, match="its beginning has to lie before its end"):
            TimeSpan(start, until)
    assert (set(RULES), set(MISSINGS)) == (set(CompletenessRule), set(Missing))


def test_nothing_is_complete_where_no_partition_has_a_part() -> None:
    """As for the hours after the stream's last topic was gone: a sensor that waits for them goes on waiting."""
    assert not is_complete([])
