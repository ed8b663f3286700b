"""The coverage picture of a stream: a bar for each partition."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import WrongUse
from tidemark.ledger.incarnations import Topics, newest, recreated
from tidemark.ledger.records import INGEST, GapKind, Head
from tidemark.offsets.ranges import Interval, RangeSet, TopicPartition
from tidemark.runs.live.kafka_now import topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.coverage.picture import GAPS, Block, Name, OffsetsOfPartition, bar, bounds, stretches
from tidemark.views.coverage.window_index import WindowIndex
from tidemark.views.values import From, Number

MAX_BARS = 50
MAX_PIXELS = 4000
MAX_PARTITIONS = 1_000_000


@dataclass(frozen=True)
class BarQuery:
    """Which bars: `count` partitions from number `first` on, or one partition, of which a part may be chosen. In pixels.

    `gaps`: only among partitions with a hole, or with lost, skipped or expired offsets.
    """

    width: int
    first: int = 0
    count: int = MAX_BARS
    partition: str | None = None
    start: int | None = None
    until: int | None = None
    gaps: bool = False


@dataclass(frozen=True)
class BlockShown:
    """Offsets with one state, from a pixel on; `lane` and `window` name its only window.

    `stretches` are those of its state, which lie within `[from, until)`.
    """

    pixel: int
    state: str
    start: From
    until: Number
    stretches: int
    lane: str | None
    window: int | None
    windows: int


@dataclass(frozen=True)
class Bar:
    partition: str
    topic: str
    number: int
    position: Number | None
    log_start: Number
    log_end: Number
    first: Number
    last: Number
    start: From
    until: Number
    pixels: int
    blocks: list[BlockShown]


@dataclass(frozen=True)
class Coverage:
    """`partitions` of the stream's (`of`) have bars, of which these are some, from the `first` on."""

    partitions: int
    of: int
    first: int
    bars: list[Bar]


def coverage_bars(opened: OpenStream, index: WindowIndex, asked: BarQuery) -> Coverage:
    """The bars that are asked for, by the windows that the index has.

    Raises WrongUse for a partition that the stream does not have, Unreachable, and the ledger's errors.
    """
    logs = opened.log.topics(topics_now(opened), opened.stream.source.isolation)
    seen = seen_of(opened, index, logs, asked)
    return Coverage(
        partitions=seen.partitions,
        of=seen.of,
        first=asked.first,
        bars=[_bar(index, one, asked) for one in seen.chosen],
    )


@dataclass(frozen=True)
class PartitionOfBar:
    """A partition as ledger and Kafka show it now, with the ingest's position."""

    at: TopicPartition
    log: OffsetsOfPartition
    position: int | None


@dataclass(frozen=True)
class PartitionsOfBars:
    """`partitions` of the stream's (`of`) are asked about, of which some are chosen."""

    partitions: int
    of: int
    chosen: list[PartitionOfBar]


def seen_of(opened: OpenStream, index: WindowIndex, logs: Mapping[str, TopicLog], asked: BarQuery) -> PartitionsOfBars:
    """The partitions that are asked for, as Kafka has just shown their logs."""
    register = index.register
    heads = {} if register is None else {name: one.head for name, one in opened.ledger.heads_of(register.lanes).items()}
    topics = {} if register is None else register.topics
    others = recreated(topics, {topic: one.topic_id for topic, one in logs.items()})
    by_partition = {
        _now(topics, others, topic, number): log
        for topic, one in logs.items()
        for number, log in one.partitions.items()
    }
    of_gaps = asked.gaps and asked.partition is None
    partitions = sorted(
        at for at, log in by_partition.items() if not of_gaps or _has_gaps(index, _log(index, log, at), at)
    )
    chosen = _chosen(partitions, asked)
    pending = _pending(opened, heads, set(chosen))
    positions = heads[INGEST].offsets() if INGEST in heads else {}

    def whole(at: TopicPartition) -> OffsetsOfPartition:
        return replace(_log(index, by_partition[at], at), segments=index.segments(at), pending=pending.get(at, []))

    return PartitionsOfBars(
        len(partitions), len(by_partition), [PartitionOfBar(at, whole(at), positions.get(at)) for at in chosen]
    )


def _now(topics: Topics, others: Container[str], topic: str, number: int) -> TopicPartition:
    """A partition of the topic's newest incarnation. Of another topic of that name, of the one that it would be."""
    if topic not in topics:
        return TopicPartition(topic, number)
    return TopicPartition(topic, number, newest(topics, topic).incarnation + (topic in others))


def _chosen(partitions: list[TopicPartition], asked: BarQuery) -> list[TopicPartition]:
    if asked.partition is None:
        return partitions[asked.first : asked.first + min(asked.count, MAX_BARS)]
    # Whoever does not know of incarnations means the newest one.
    one = [at for at in partitions if asked.partition in (str(at), f"{at.topic}/{at.partition}")]
    if not one:
        raise WrongUse(f"partition: the stream has no partition {asked.partition} now")
    return one


def _has_gaps(index: WindowIndex, log: OffsetsOfPartition, at: TopicPartition) -> bool:
    """Whether the ingest is past offsets that no window has read. Takes little time, however many windows there are."""
    known = replace(log, segments=index.runs(at))
    start, until = bounds(known)
    # One pixel has the most remarkable state of all.
    return any(one.state in GAPS for one in bar(stretches(known, index.kinds, start, until), start, until, 1))


def _log(index: WindowIndex, log: PartitionLog, at: TopicPartition) -> OffsetsOfPartition:
    """A partition without its windows."""
    asked_for = index.asked_for(at)
    lost, skipped = (_gaps(index, at, kind) for kind in (GapKind.LOST, GapKind.SKIPPED))
    return OffsetsOfPartition(log.start, log.end, (), lost, skipped, asked_for=(asked_for.start, asked_for.until))


def _pending(
    opened: OpenStream, heads: Mapping[str, Head], chosen: set[TopicPartition]
) -> dict[TopicPartition, list[tuple[int, int, tuple[str, int]]]]:
    """The offsets of the chosen partitions that the lanes' pending windows cover."""
    pending: dict[TopicPartition, list[tuple[int, int, tuple[str, int]]]] = {}
    for lane, head in heads.items():
        if head.pending is None:
            continue
        covers = opened.ledger.covers(head.pending.window)
        name = lane, head.pending.window.seq
        for at in chosen.intersection(covers.partitions):
            pending.setdefault(at, []).extend((start, until, name) for start, until in covers.of(at))
    return pending


def _bar(index: WindowIndex, seen: PartitionOfBar, asked: BarQuery) -> Bar:
    at, known = seen.at, seen.log
    first, last = bounds(known)
    start = first if asked.start is None else max(first, asked.start)
    until = last if asked.until is None else min(last, asked.until)
    blocks = bar(stretches(known, index.kinds, start, until), start, until, asked.width) if start < until else []
    return Bar(
        partition=str(at),
        topic=at.topic,
        number=at.partition,
        position=seen.position,
        log_start=known.start,
        log_end=known.end,
        first=first,
        last=last,
        start=start,
        until=max(start, until),
        pixels=blocks[-1].last if blocks else 0,
        blocks=[_block(index, one) for one in blocks],
    )


def _gaps(index: WindowIndex, at: TopicPartition, kind: GapKind) -> tuple[Interval, ...]:
    return RangeSet(gap.as_range() for gap in index.gaps.get(at, ()) if gap.kind == kind).of(at)


def _block(index: WindowIndex, one: Block) -> BlockShown:
    lane, seq = _name(index, one.window)
    return BlockShown(one.first, one.state.value, one.start, one.until, one.stretches, lane, seq, one.windows)


def _name(index: WindowIndex, window: Name | None) -> tuple[str, int] | tuple[None, None]:
    if window is None:
        return None, None
    if isinstance(window, int):
        name = index.names[window]
        return name.lane, name.seq
    return window
