"""When retention will delete a stream's next unread offsets. Asks Kafka only about partitions that lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.retention import Forecast, PartitionSnapshot, SeenPartition, forecast
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import TopicPartition

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class PartitionForecast:
    """A partition as it is now, the forecast for its next unread offset, and that message's timestamp if it is known."""

    now: PartitionSnapshot
    forecast: Forecast
    unread_since: int | None = None


def forecasts(
    log: KafkaLog, moments: Mapping[TopicPartition, PartitionSnapshot], records: Iterable[Record], warn_hours: int
) -> dict[TopicPartition, PartitionForecast]:
    """A forecast for each partition, from its state now and from the last committed windows of its lane.

    The ends of `moments` are high watermarks: retention deletes what an open transaction holds back like the rest.
    """
    before = _oldest(records)
    lagging = {at: now for at, now in moments.items() if now.start <= now.position < now.end}
    topics = {at.topic for at in lagging}
    settings = log.retention(topics) if topics else {}
    sized = {at.topic for at in lagging if (kept := settings.get(at.topic)) is not None and kept.size_bytes is not None}
    ends = {(at.topic, at.partition): (now.position, now.end) for at, now in lagging.items()}
    timestamps = log.timestamps(ends) if ends else {}
    sizes = log.sizes(sized) if sized else {}
    by_partition = {}
    for at, now in moments.items():
        place = (at.topic, at.partition)
        seen = SeenPartition(now, before.get(at), settings.get(at.topic), timestamps.get(place), sizes.get(place))
        by_partition[at] = PartitionForecast(now, forecast(seen, warn_hours * _HOUR_MS), seen.timestamp)
    return by_partition


def _oldest(records: Iterable[Record]) -> dict[TopicPartition, PartitionSnapshot]:
    """Each partition's state when the oldest of these windows with that partition was pinned."""
    newest_first = sorted((record.window for record in records), key=lambda window: -window.pinned_at)
    return {
        range_.at: PartitionSnapshot(window.pinned_at, range_.log_start, range_.log_end, range_.start)
        for window in newest_first
        for range_ in window.ranges
    }
