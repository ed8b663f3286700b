"""Which offsets come next. Pure: takes what Kafka and the ledger say as values, and gives a window or an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemark.clients.kafka.topics import PartitionLog
from tidemark.errors import PartitionsChanged, WrongUse
from tidemark.ledger.records import (
    Erasure,
    Gap,
    GapKind,
    Guarantee,
    Head,
    LaneKind,
    Position,
    SelectionRef,
    Window,
    WindowRange,
    positions,
)
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.checking import check_cut, check_held_back, check_inside, check_topics
from tidemark.planning.inputs import KafkaState, Request
from tidemark.planning.message_sizes import UNKNOWN_BYTES


def next_window(
    head: Head, known: KafkaState, request: Request, goal: Mapping[TopicPartition, int] | None = None
) -> Window | None:
    """The next window of an ingest: from the positions to the ends, or to `goal` where `goal` is lower.

    None when there is nothing new. A new partition begins at its log start. Raises a SourceChanged when a position lies
    outside its log, unless a policy says otherwise. Offsets that the window jumps over are a gap of the window.
    """
    at_positions = head.offsets()
    check_topics(known, request.topics, {at.topic for at in at_positions})
    logs = known.partitions()
    for at in at_positions:
        newest = known.incarnations.get(at.topic)
        if newest == at.incarnation and at not in logs:
            raise PartitionsChanged(f"{at} no longer exists, and the lane's position in it is {at_positions[at]}")
    ranges = {}
    gaps: list[Gap] = []
    for at, log in known.to_read().items():
        position = at_positions.get(at, known.starts.get(at, log.start))
        jumped = jumps(at, position, log, request, begins=goal is None)
        start = jumped[-1].until if jumped else position
        check_inside(OffsetRange(at, start, max(start, log.end)), log, start)
        check_cut(known, OffsetRange(at, position, position))
        until = log.end if goal is None else min(log.end, goal.get(at, start))
        ranges[at] = (start, max(start, until))
        gaps += jumped
    if all(start == until for start, until in ranges.values()) and not gaps:
        return None
    ends = positions({at: until for at, (_, until) in ranges.items()})
    capped = share(ranges, limit_of(ranges, request))
    return _window(head, known, request, capped, goal=ends, gaps=tuple(gaps))


def jumps(at: TopicPartition, position: int, log: PartitionLog, request: Request, *, begins: bool) -> list[Gap]:
    """The offsets that a partition's position jumps over before it is read on, ascending; none unless a policy says so.

    `begins`: whether this is a run's first window. Only there does `max_behind` apply.
    """
    problems = []

    def jump(kind: GapKind, policy: str, start: int, until: int) -> None:
        if start < until:
            problems.append(_gap(kind, policy, at, start, until))

    on_out_of_range = request.policy(at.topic).on_out_of_range
    if position < log.start and on_out_of_range != "fail":
        policy = f"on_out_of_range: {on_out_of_range}"
        jump(GapKind.LOST, policy, position, log.start)
        position = log.start
        if on_out_of_range == "latest":
            jump(GapKind.SKIPPED, policy, position, log.end)
            position = log.end
    if begins and request.max_behind is not None and log.start <= position:
        jump(GapKind.SKIPPED, f"max_behind: {request.max_behind}", position, log.end - request.max_behind)
    return problems


def skipping(head: Head, known: KafkaState, request: Request, to: Mapping[TopicPartition, int]) -> Window:
    """A window that reads nothing, whose gaps lead from the positions to `to`.

    Raises WrongUse when a position would fall, when an offset lies above its log's end, or when nothing would be skipped.
    """
    at_positions = head.offsets()
    check_topics(known, request.topics, {at.topic for at in at_positions})
    ranges, gaps = {}, []
    for at, log in known.to_read().items():
        position = at_positions.get(at, known.starts.get(at, log.start))
        check_cut(known, OffsetRange(at, position, position))
        target = to.get(at, position)
        if target < position:
            raise WrongUse(
                f"{at}: the position is {position}, and it never falls back to {target}; a replay reads it again"
            )
        if target > max(log.end, position):
            raise WrongUse(f"{at} ends at {log.end} now, {target} lies above it")
        for kind, start, until in (
            (GapKind.LOST, position, min(target, log.start)),
            (GapKind.SKIPPED, max(position, log.start), target),
        ):
            if start < until:
                gaps.append(_gap(kind, f"ledger skip: {request.reason}", at, start, until))
        ranges[at] = (target, target)
    if not gaps:
        raise WrongUse("nothing would be skipped: every position is there already")
    request = replace(request, guarantee=Guarantee.AT_LEAST_ONCE)
    return _window(head, known, request, ranges, gaps=tuple(gaps))


def next_selected(
    head: Head, known: KafkaState, request: Request, selection: RangeSet, ref: SelectionRef
) -> Window | None:
    """The next window of a backfill or replay: the rest of its selection, from each partition's position on."""
    left = unread_part(head, selection)
    if not left:
        return None
    topics = {at.topic for at in left.partitions}
    check_topics(known, tuple(sorted(topics)), topics)
    logs = known.partitions()
    lengths = {at: (0, sum(until - start for start, until in left.of(at))) for at in left.partitions}
    chosen = RangeSet(
        range_
        for at, (_, count) in share(lengths, limit_of(lengths, request)).items()
        for range_ in left.only([at]).first(count)
    )
    # A million ranges lie where the first and the last of each partition lie.
    ends = (OffsetRange(at, *pair) for at in left.partitions for pair in (left.of(at)[0], left.of(at)[-1]))
    for end in ends:
        if end.partition not in logs:
            raise PartitionsChanged(f"{end} cannot be read: the partition, or this incarnation of the topic, is gone")
        begins = known.starts.get(end.partition, 0)
        if end.start < begins:
            older = OffsetRange(end.partition, end.start, min(begins, end.until))
            raise PartitionsChanged(
                f"{older} cannot be read: the log was cut at {begins}, and what lies below belongs to the topic's earlier "
                "incarnation. Nothing was changed. Ask for offsets above the cut."
            )
        check_inside(end, logs[end.partition], end.until)
        check_held_back(end, logs[end.partition])
        check_cut(known, end)
    return _window(head, known, request, _hull(chosen), selection=ref)


def erasing(head: Head, request: Request, erasure: Erasure, offsets: RangeSet) -> Window | None:
    """The window of an erasure, which reads nothing: all of its `offsets` that are left. Kafka need not have them."""
    left = unread_part(head, offsets)
    if not left:
        return None
    return _window(head, KafkaState({}, {}), request, _hull(left), selection=erasure.selection, erases=erasure)


def _hull(offsets: RangeSet) -> dict[TopicPartition, tuple[int, int]]:
    return {range_.partition: (range_.start, range_.until) for range_ in offsets.hull()}


def unread_part(head: Head, selection: RangeSet) -> RangeSet:
    """The part of a lane's selection that none of its windows has read."""
    return selection - RangeSet(OffsetRange(at, 0, offset) for at, offset in head.offsets().items())


def limit_of(ranges: Mapping[TopicPartition, tuple[int, int]], request: Request) -> int | None:
    """The most records that a window of these ranges may take: the tighter of `max_records` and `max_bytes`.

    `share` then takes the same part of each partition's lag, so that the window has about `max_bytes` in all.
    """
    limits = [] if request.max_records is None else [request.max_records]
    if request.max_bytes is not None:
        known = request.bytes_per_offset or {}
        lags = {at: until - start for at, (start, until) in ranges.items()}
        size = sum(lag * known.get(at, UNKNOWN_BYTES) for at, lag in lags.items())
        if size > request.max_bytes:
            # At least one, so that `share` gives one record to each partition that lags.
            limits.append(max(1, int(request.max_bytes / size * sum(lags.values()))))
    return min(limits, default=None)


def share(ranges: Mapping[TopicPartition, tuple[int, int]], limit: int | None) -> dict[TopicPartition, tuple[int, int]]:
    """Cap ranges to `limit` records in all. A partition gets its part in proportion to its lag, but at least one record.

    As Spark's `maxOffsetsPerTrigger`: lags 101, 11 and 1 with a limit of 10 give 8, 1 and 1.
    """
    lag = sum(until - start for start, until in ranges.values())
    if limit is None or lag <= limit:
        return dict(ranges)
    capped = {}
    for at, (start, until) in ranges.items():
        part = limit * (until - start) // lag
        capped[at] = (start, min(until, start + max(part, 1)))
    return capped


def offsets_within(known: KafkaState, wanted: RangeSet) -> RangeSet:
    """The part of a request that Kafka still holds."""
    logs = known.partitions()
    return wanted & RangeSet(OffsetRange(at, known.begins(at, log), log.end) for at, log in logs.items())


def _gap(kind: GapKind, policy: str, at: TopicPartition, start: int, until: int) -> Gap:
    return Gap(
        kind=kind,
        policy=policy,
        topic=at.topic,
        incarnation=at.incarnation,
        partition=at.partition,
        start=start,
        until=until,
    )


def _window(
    head: Head,
    known: KafkaState,
    request: Request,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    goal: tuple[Position, ...] = (),
    gaps: tuple[Gap, ...] = (),
    selection: SelectionRef | None = None,
    erases: Erasure | None = None,
) -> Window:
    if head.pending is not None:
        raise WrongUse(f"{head.stream}/{head.lane} has a pending window; it is used as it is")
    logs = known.partitions()
    pinned = tuple(
        WindowRange(
            topic=at.topic,
            incarnation=at.incarnation,
            partition=at.partition,
            start=start,
            until=until,
            # An erasure also names partitions that Kafka has no longer.
            log_start=logs[at].start if at in logs else start,
            log_end=logs[at].end if at in logs else until,
            leader_epoch=logs[at].leader_epoch if at in logs else None,
        )
        for at, (start, until) in sorted(ranges.items())
    )
    return Window(
        seq=head.seq + 1,
        ranges=pinned,
        gaps=gaps,
        selection=selection,
        topic_ids={at.topic: known.logs[at.topic].topic_id for at in ranges if at in logs},
        isolation=request.isolation,
        pinned_at=request.now,
        run=request.run,
        reason=request.reason,
        goal=goal,
        guarantee=request.guarantee if head.kind == LaneKind.INGEST else Guarantee.AT_LEAST_ONCE,
        sinks=request.sinks,
        erases=erases,
    )
