"""Which offsets come next. Pure: what Kafka and the ledger say comes in as values, a window or an error goes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark.errors import (
    LogTruncated,
    OffsetsOutOfRange,
    PartitionsChanged,
    TopicGone,
    TopicRecreated,
    TopicUnknown,
    WrongUse,
)
from tidemark.kafka.topics import PartitionLog, TopicLog
from tidemark.ledger.incarnations import Change
from tidemark.ledger.records import (
    Gap,
    GapKind,
    Guarantee,
    Head,
    LaneKind,
    Position,
    SelectionRef,
    TopicChange,
    Window,
    WindowRange,
    positions,
)
from tidemark.planning.message_sizes import UNKNOWN_BYTES
from tidemark.ranges import FIRST_INCARNATION, OffsetRange, RangeSet, TopicPartition


@dataclass(frozen=True)
class Policies:
    """What to do when Kafka no longer has what the ledger knows: stop (`fail`), or what a stream file says in its place."""

    # Go on at the `earliest` or `latest` offset that is there.
    on_out_of_range: str = "fail"
    # `accept` a recreated topic, or a log that was cut and written anew, as a new incarnation.
    on_recreated: str = "fail"
    on_truncated: str = "fail"
    # `leave` a deleted topic: read the others.
    on_deleted: str = "fail"


@dataclass(frozen=True)
class Request:
    """Who asks for a window, and under which conditions. `now` is milliseconds since 1970."""

    topics: tuple[str, ...]
    isolation: str
    run: str
    now: int
    reason: str | None = None
    max_records: int | None = None
    policies: Policies = Policies()
    by_topic: Mapping[str, Policies] = field(default_factory=dict)
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    # Bytes, as far as `bytes_per_offset` tells; partitions that it does not name count as UNKNOWN_BYTES an offset.
    max_bytes: int | None = None
    bytes_per_offset: Mapping[TopicPartition, float] | None = None
    # A partition that is further behind than this is read from so far behind its end; None for however far.
    max_behind: int | None = None

    def policy(self, topic: str) -> Policies:
        return self.by_topic.get(topic, self.policies)


@dataclass(frozen=True)
class Known:
    """What Kafka says of the topics now, and which incarnation the ledger knows each topic id as.

    `chosen`: only these partitions of each topic are read; None for all. `left`: topics that are gone and not waited for.
    `starts`: where partitions of an accepted incarnation begin. `epoch_ends`: of partitions with a newer leader, where the
    log ends that was read under the older one.
    """

    logs: Mapping[str, TopicLog]
    incarnations: Mapping[str, int]
    chosen: Mapping[str, tuple[int, ...]] | None = None
    left: frozenset[str] = frozenset()
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    def partitions(self) -> dict[TopicPartition, PartitionLog]:
        """The partitions of the topics that the ledger knows by their ids."""
        return {
            TopicPartition(topic, partition, self.incarnations[topic]): log
            for topic, found in self.logs.items()
            if topic in self.incarnations
            for partition, log in found.partitions.items()
        }

    def to_read(self) -> dict[TopicPartition, PartitionLog]:
        """Those of them that the stream reads, in their order."""
        chosen = self.chosen
        return {
            at: log
            for at, log in sorted(self.partitions().items())
            if chosen is None or at.partition in chosen[at.topic]
        }

    def cut(self, at: TopicPartition, position: int) -> int | None:
        """Where a log was cut below a position, None when it was not."""
        log = self.partitions().get(at)
        cut = min(log.end if log else position, self.epoch_ends.get(at, position))
        return cut if cut < position else None


def check_topics(known: Known, topics: tuple[str, ...], read: set[str]) -> None:
    """Raise TopicUnknown, TopicGone or TopicRecreated unless every topic is there and the one that the ledger knows.

    `read` are the topics of which something has been read before.
    """
    for topic in [topic for topic in topics if topic not in known.logs and topic not in known.left]:
        if topic in read:
            raise TopicGone(
                f"topic {topic} no longer exists, and the lane has positions in it. Nothing was changed. "
                "To go on without it, set `on_deleted: leave` in the stream file."
            )
        raise TopicUnknown(f"topic {topic} does not exist; create it, or correct `source` in the stream file")
    for topic in [topic for topic in topics if topic in known.logs]:
        if topic not in known.incarnations:
            raise TopicRecreated(
                f"topic {topic} has id {known.logs[topic].topic_id}, which the ledger does not know: it was deleted and "
                "created again, and its offsets are not the ones that were read. Nothing was changed. "
                "To read it as a new topic, set `on_recreated: accept` in the stream file."
            )
        there = known.logs[topic].partitions
        for partition in known.chosen[topic] if known.chosen else ():
            if partition not in there:
                raise WrongUse(f"source.partitions: {topic}/{partition} does not exist; there are {_numbers(there)}")


def _numbers(partitions: Mapping[int, object]) -> str:
    return f"0 to {max(partitions)}" if len(partitions) > 1 else "only 0"


def changes(head: Head, known: Known, request: Request) -> list[Change]:
    """What has changed under the lane's positions, as far as a policy accepts it; each topic once.

    What no policy accepts is refused when the window is planned.
    """
    newest: dict[str, int] = {}
    for at in head.offsets():
        newest[at.topic] = max(at.incarnation, newest.get(at.topic, 0))
    found = []
    for topic in request.topics:
        policy, log = request.policy(topic), known.logs.get(topic)
        if log is None:
            if topic in newest and topic not in known.left and policy.on_deleted == "leave":
                found.append(Change(TopicChange.DELETED, topic, "", newest[topic], "on_deleted: leave"))
        elif topic not in known.incarnations:
            if policy.on_recreated == "accept":
                after = newest.get(topic, FIRST_INCARNATION)
                found.append(Change(TopicChange.RECREATED, topic, log.topic_id, after, "on_recreated: accept"))
        elif policy.on_truncated == "accept":
            offsets = {
                at: offset for at, offset in head.offsets().items() if at in known.partitions() and at.topic == topic
            }
            cuts = {at: cut for at, offset in offsets.items() if (cut := known.cut(at, offset)) is not None}
            if cuts:
                starts = tuple((at.partition, cuts.get(at, offset)) for at, offset in sorted(offsets.items()))
                after = known.incarnations[topic]
                found.append(Change(TopicChange.TRUNCATED, topic, log.topic_id, after, "on_truncated: accept", starts))
    return found


def start_positions(
    known: Known, topics: tuple[str, ...], start: str, given: Mapping[tuple[str, int], int] | None = None
) -> tuple[Position, ...]:
    """Where a new lane begins: at the log starts (`earliest`) or at the ends (`latest`).

    `given` has precedence: an offset for a (topic, partition). Raises WrongUse for one that Kafka does not have,
    OffsetsOutOfRange for an offset below its log, WrongUse for one above its end.
    """
    check_topics(known, topics, set())
    logs = known.to_read()
    found = {at: log.start if start == "earliest" else log.end for at, log in logs.items()}
    by_name = {(at.topic, at.partition): at for at in logs}
    for name, offset in (given or {}).items():
        if name not in by_name:
            raise WrongUse(f"start.offsets: {name[0]}/{name[1]} does not exist")
        at = by_name[name]
        if offset < logs[at].start:
            raise OffsetsOutOfRange(
                f"start.offsets: {at} begins at {logs[at].start} now, {offset} is below it. Name an offset that is still there."
            )
        if offset > logs[at].end:
            raise WrongUse(f"start.offsets: {at} ends at {logs[at].end} now, {offset} lies above it")
        found[at] = offset
    return positions(found)


def shifted(known: Known, given: Mapping[tuple[str, int], int], shift: int) -> dict[tuple[str, int], int]:
    """Offsets of (topic, partition) moved by `shift`, forwards or backwards, and cut to where Kafka's logs begin and end."""
    logs = {(at.topic, at.partition): log for at, log in known.partitions().items()}
    return {
        place: min(max(offset + shift, logs[place].start), logs[place].end) if place in logs else offset
        for place, offset in given.items()
    }


def offsets_at_time(
    known: Known, found: Mapping[tuple[str, int], int | None], time: str, if_none: str
) -> dict[tuple[str, int], int]:
    """The offsets at which a time begins: `found` is the first message at or after it, None where there is none.

    There, `if_none` decides: `fail` raises WrongUse naming the partitions, `end` takes the end of the log. The ends were taken
    before the times were looked up, so nothing lies above them.
    """
    ends = {(at.topic, at.partition): log.end for at, log in known.to_read().items()}
    missing = sorted(f"{topic}/{partition}" for topic, partition in ends if found.get((topic, partition)) is None)
    if missing and if_none == "fail":
        raise WrongUse(
            f"no message at or after {time} in {', '.join(missing)}: take an earlier time, "
            "or say `if_none: end` to begin at the end"
        )
    return {name: end if (offset := found.get(name)) is None else min(offset, end) for name, end in ends.items()}


def next_window(
    head: Head, known: Known, request: Request, goal: Mapping[TopicPartition, int] | None = None
) -> Window | None:
    """The next window of an ingest: from the positions to the ends, or to `goal` where that is lower.

    None when there is nothing new. A partition that is new begins at its log start. Raises a SourceChanged when a
    position lies outside its log, unless a policy says otherwise; what is jumped over is a gap of the window.
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
        _check_cut(known, OffsetRange(at, position, position))
        until = log.end if goal is None else min(log.end, goal.get(at, start))
        ranges[at] = (start, max(start, until))
        gaps += jumped
    if all(start == until for start, until in ranges.values()) and not gaps:
        return None
    ends = positions({at: until for at, (_, until) in ranges.items()})
    capped = share(ranges, limit_of(ranges, request))
    return _window(head, known, request, capped, goal=ends, gaps=tuple(gaps))


def jumps(at: TopicPartition, position: int, log: PartitionLog, request: Request, *, begins: bool) -> list[Gap]:
    """What a partition's position jumps over before it is read on, ascending; nothing unless a policy says so.

    `begins`: whether this is a run's first window. Within a run nobody falls behind further.
    """
    found = []

    def jump(kind: GapKind, policy: str, start: int, until: int) -> None:
        if start < until:
            found.append(_gap(kind, policy, at, start, until))

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
    return found


def skipping(head: Head, known: Known, request: Request, to: Mapping[TopicPartition, int]) -> Window:
    """A window without anything to read, whose gaps lead from the positions to `to`.

    Raises WrongUse when a position would fall, when an offset lies above its log's end, or when nothing would be skipped.
    """
    check_topics(known, request.topics, {at.topic for at in head.offsets()})
    ranges, gaps = {}, []
    for at, log in known.to_read().items():
        position = head.offsets().get(at, known.starts.get(at, log.start))
        _check_cut(known, OffsetRange(at, position, position))
        target = to.get(at, position)
        if target < position:
            raise WrongUse(
                f"{at}: the position is {position}, and it never falls back to {target}; a replay reads it again"
            )
        if target > log.end:
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


def next_selected(head: Head, known: Known, request: Request, selection: RangeSet, ref: SelectionRef) -> Window | None:
    """The next window of a backfill or replay: what is left of its selection, from each partition's position on."""
    left = selection - RangeSet(OffsetRange(at, 0, offset) for at, offset in head.offsets().items())
    if not left:
        return None
    check_topics(known, tuple(sorted({at.topic for at in left.partitions})), {at.topic for at in left.partitions})
    logs = known.partitions()
    for one in left:
        if one.partition not in logs:
            raise PartitionsChanged(f"{one} cannot be read: the partition, or this incarnation of the topic, is gone")
        check_inside(one, logs[one.partition], one.until)
        _check_cut(known, one)
    lengths = {at: (0, sum(until - start for start, until in left.of(at))) for at in left.partitions}
    chosen = RangeSet(
        one
        for at, (_, count) in share(lengths, limit_of(lengths, request)).items()
        for one in left.only([at]).first(count)
    )
    hull = {one.partition: (one.start, one.until) for one in chosen.hull()}
    return _window(head, known, request, hull, selection=ref)


def check_inside(wanted: OffsetRange, log: PartitionLog, position: int | None) -> None:
    """Raise OffsetsOutOfRange or LogTruncated, naming the offsets, unless the log holds what is wanted."""
    if wanted.start < log.start:
        lost = OffsetRange(wanted.partition, wanted.start, min(log.start, max(wanted.until, wanted.start)))
        raise OffsetsOutOfRange(
            f"{lost} is no longer in Kafka: the log now begins at {log.start}. Retention or DeleteRecords removed it. "
            "Nothing was changed. To go on behind it, set `on_out_of_range` in the stream file."
        )
    if position is not None and position > log.end:
        raise LogTruncated(
            f"{wanted.partition} ends at {log.end}, below {position}, which the ledger knows of: the log was truncated or "
            f"an older state restored. {_TO_ACCEPT_A_CUT}"
        )


def limit_of(ranges: Mapping[TopicPartition, tuple[int, int]], request: Request) -> int | None:
    """The most records that a window of these ranges may take: the tighter of `max_records` and `max_bytes`.

    Shared by `share`, so many records take the same part of each partition's lag, and so about `max_bytes` in all.
    """
    limits = [] if request.max_records is None else [request.max_records]
    if request.max_bytes is not None:
        known = request.bytes_per_offset or {}
        lags = {at: until - start for at, (start, until) in ranges.items()}
        size = sum(lag * known.get(at, UNKNOWN_BYTES) for at, lag in lags.items())
        if size > request.max_bytes:
            # At least one, so that `share` gives each partition that lags its one.
            limits.append(max(1, int(request.max_bytes / size * sum(lags.values()))))
    return min(limits, default=None)


def _check_cut(known: Known, wanted: OffsetRange) -> None:
    """Raise LogTruncated when a log was cut below what was read of it and has grown again: its offsets look valid."""
    end = known.epoch_ends.get(wanted.partition, wanted.until)
    if end < wanted.until:
        raise LogTruncated(
            f"{OffsetRange(wanted.partition, end, wanted.until)} is not what was read: the log was cut at {end}, and written "
            f"anew under another leader. {_TO_ACCEPT_A_CUT}"
        )


_TO_ACCEPT_A_CUT = "Nothing was changed. To read on from the cut, set `on_truncated: accept` in the stream file."


def share(ranges: Mapping[TopicPartition, tuple[int, int]], limit: int | None) -> dict[TopicPartition, tuple[int, int]]:
    """Cap ranges to `limit` records in all, each partition in proportion to its lag, at least one where it lags.

    As Spark's `maxOffsetsPerTrigger`: lags 101, 11 and 1 with a limit of 10 give 8, 1 and 1.
    """
    lag = sum(until - start for start, until in ranges.values())
    if limit is None or lag <= limit:
        return dict(ranges)
    capped = {}
    for at, (start, until) in ranges.items():
        part, rest = divmod(limit * (until - start), lag)
        capped[at] = (start, min(until, start + (part or (1 if rest else 0))))
    return capped


def offsets_within(known: Known, wanted: RangeSet) -> RangeSet:
    """The part of a request that Kafka still holds."""
    logs = known.partitions()
    return wanted & RangeSet(OffsetRange(at, log.start, log.end) for at, log in logs.items())


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
    known: Known,
    request: Request,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    goal: tuple[Position, ...] = (),
    gaps: tuple[Gap, ...] = (),
    selection: SelectionRef | None = None,
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
            log_start=logs[at].start,
            log_end=logs[at].end,
            leader_epoch=logs[at].leader_epoch,
        )
        for at, (start, until) in sorted(ranges.items())
    )
    return Window(
        seq=head.seq + 1,
        ranges=pinned,
        gaps=gaps,
        selection=selection,
        topic_ids={at.topic: known.logs[at.topic].topic_id for at in ranges},
        isolation=request.isolation,
        pinned_at=request.now,
        run=request.run,
        reason=request.reason,
        goal=goal,
        guarantee=request.guarantee if head.kind == LaneKind.INGEST else Guarantee.AT_LEAST_ONCE,
    )
