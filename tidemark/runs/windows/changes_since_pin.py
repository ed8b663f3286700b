"""Changes of a window's topics in Kafka since the window was pinned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import SourceChanged
from tidemark.ledger.records import BlockTallies, Window, WindowRange
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.tallies import PartitionTally
from tidemark.runs.live.kafka_now import asked_surely, newer_epochs
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows.earlier_counts import Attempted, check_widened


def check_since_pin(
    opened: OpenStream,
    lane: str,
    window: Window,
    read: RangeSet,
    tallies: Iterable[PartitionTally],
    blocks: BlockTallies | None = None,
) -> None:
    """Step 5: check that Kafka is as it was at the pin, and has returned the messages that were counted before (`counted.py`).

    `read`: the offsets that the window reads; `tallies` and `blocks`: the results. Raises SourceChanged.
    """

    def check() -> None:
        if changes := changes_since_pin(opened.log, window, read):
            raise SourceChanged(
                f"Kafka changed while window {lane}/{window.seq} was processed: {'; '.join(changes)}. Nothing was committed."
            )

    check()
    if check_widened(opened, lane, window, Attempted(read, tuple(tallies), blocks)):
        # It asked Kafka by names: the topic must not have been recreated since the first check.
        check()


def changes_since_pin(kafka: KafkaLog, window: Window, read: RangeSet) -> list[str]:
    """The changes since the window was pinned, in words; empty when all still fits (step 5).

    `read`: the offsets that the window reads (`Book.reads`). Kafka need not have what it only erases.
    """
    judged = _judged(window, read)
    topics = {range_.topic for range_ in judged}
    now = asked_surely(
        lambda: kafka.topics(topics, window.isolation), lambda logs: any(_ends_below(one, logs) for one in judged)
    )
    ends = kafka.epoch_ends(newer_epochs(window, now, judged))
    changes = []
    for topic in sorted(topics):
        topic_id = window.topic_ids[topic]
        if topic not in now:
            changes.append(f"topic {topic} is gone")
        elif now[topic].topic_id != topic_id:
            changes.append(f"topic {topic} was recreated (id {now[topic].topic_id}, pinned {topic_id})")
    for range_ in judged:
        log = now.get(range_.topic)
        if log is None or log.topic_id != window.topic_ids[range_.topic]:
            continue
        partition = log.partitions.get(range_.partition)
        if partition is None:
            changes.append(f"{range_.at} is gone")
        elif range_.start < range_.until and range_.start < partition.start:
            changes.append(f"{range_.at}: the log now begins at {partition.start}, the window at {range_.start}")
        elif partition.written < range_.until:
            changes.append(f"{range_.at}: the log now ends at {partition.written}, the window at {range_.until}")
        elif ends.get((range_.topic, range_.partition), range_.until) < range_.until:
            cut = ends[range_.topic, range_.partition]
            changes.append(
                f"{range_.at}: the log was cut at {cut} and written again, the window ends at {range_.until}"
            )
    return changes


def _ends_below(range_: WindowRange, logs: Mapping[str, TopicLog]) -> bool:
    """Whether a log seems to end within a range that was pinned."""
    log = logs.get(range_.topic)
    now = log.partitions.get(range_.partition) if log is not None else None
    return now is not None and now.written < range_.until


def lost_since_pin(opened: OpenStream, window: Window) -> RangeSet:
    """The offsets that a pinned window reads, and that Kafka has deleted since."""
    read = opened.book.reads(window)
    judged = _judged(window, read)
    logs = opened.log.topics({range_.topic for range_ in judged}, window.isolation)
    return read & RangeSet(
        OffsetRange(range_.at, range_.start, min(range_.until, logs[range_.topic].partitions[range_.partition].start))
        for range_ in judged
        if range_.topic in logs
        and range_.partition in logs[range_.topic].partitions
        and logs[range_.topic].topic_id == window.topic_ids[range_.topic]
        and range_.start < min(range_.until, logs[range_.topic].partitions[range_.partition].start)
    )


def _judged(window: Window, read: RangeSet) -> tuple[WindowRange, ...]:
    """The ranges of a window, around what it reads. An empty range stays: the lane's position in it must not be cut."""
    ranges = []
    for range_ in window.ranges:
        if range_.start == range_.until:
            ranges.append(range_)
        for part in (read & RangeSet([range_.as_range()])).hull():
            ranges.append(structs.replace(range_, start=part.start, until=part.until))
    return tuple(ranges)
