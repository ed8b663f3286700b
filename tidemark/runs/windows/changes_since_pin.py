"""Changes of a window's topics in Kafka since the window was pinned."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import SourceChanged
from tidemark.ledger.records import Window, WindowRange
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.live.kafka_now import asked_surely, newer_epochs
from tidemark.runs.live.open_stream import OpenStream


def check_since_pin(opened: OpenStream, lane: str, window: Window) -> None:
    """Step 5: check that Kafka is as it was at the pin. Raises SourceChanged."""
    if changes := changes_since_pin(opened.log, window):
        raise SourceChanged(f"Kafka changed while window {lane}/{window.seq} was processed: {'; '.join(changes)}")


def changes_since_pin(kafka: KafkaLog, window: Window) -> list[str]:
    """The changes since the window was pinned, in words; empty when all still fits (step 5)."""
    topics = {range_.topic for range_ in window.ranges}
    now = asked_surely(
        lambda: kafka.topics(topics, window.isolation),
        lambda logs: any(_ends_below(one, logs) for one in window.ranges),
    )
    ends = kafka.epoch_ends(newer_epochs(window, now))
    changes = []
    for topic in sorted(topics):
        topic_id = window.topic_ids[topic]
        if topic not in now:
            changes.append(f"topic {topic} is gone")
        elif now[topic].topic_id != topic_id:
            changes.append(f"topic {topic} was recreated (id {now[topic].topic_id}, pinned {topic_id})")
    for range_ in window.ranges:
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
    logs = opened.log.topics({range_.topic for range_ in window.ranges}, window.isolation)
    return opened.ledger.covers(window) & RangeSet(
        OffsetRange(range_.at, range_.start, min(range_.until, logs[range_.topic].partitions[range_.partition].start))
        for range_ in window.ranges
        if range_.topic in logs
        and range_.partition in logs[range_.topic].partitions
        and logs[range_.topic].topic_id == window.topic_ids[range_.topic]
        and range_.start < min(range_.until, logs[range_.topic].partitions[range_.partition].start)
    )
