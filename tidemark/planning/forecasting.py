"""What retention will do to the next unread offsets of a stream: asks Kafka only about partitions that lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.kafka.log import KafkaLog
from tidemark.kafka.retention import Forecast, Moment, Seen, forecast
from tidemark.ledger.records import Record
from tidemark.ranges import TopicPartition

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Forecasted:
    """A partition as it is now, and what will become of its next unread offset."""

    now: Moment
    forecast: Forecast


def forecasts(
    log: KafkaLog, moments: Mapping[TopicPartition, Moment], records: Iterable[Record], warn_hours: int
) -> dict[TopicPartition, Forecasted]:
    """A forecast for each partition, from how it is now and from the last committed windows of its lane.

    The ends of `moments` are high watermarks: what an open transaction holds back is deleted like the rest.
    """
    records = list(records)
    lagging = {at: now for at, now in moments.items() if now.start <= now.position < now.end}
    topics = {at.topic for at in lagging}
    settings = log.retention(topics) if topics else {}
    timed = {at for at in lagging if (kept := settings.get(at.topic)) is not None and kept.time_ms is not None}
    sized = {at.topic for at in lagging if (kept := settings.get(at.topic)) is not None and kept.size_bytes is not None}
    ends = {(at.topic, at.partition): (lagging[at].position, lagging[at].end) for at in timed}
    timestamps = log.timestamps(ends) if ends else {}
    sizes = log.sizes(sized) if sized else {}
    found = {}
    for at, now in moments.items():
        place = (at.topic, at.partition)
        seen = Seen(now, _first(records, at), settings.get(at.topic), timestamps.get(place), sizes.get(place))
        found[at] = Forecasted(now, forecast(seen, warn_hours * _HOUR_MS))
    return found


def _first(records: Iterable[Record], at: TopicPartition) -> Moment | None:
    """A partition when the oldest of these windows was pinned."""
    pinned = [
        Moment(record.window.pinned_at, one.log_start, one.log_end, one.start)
        for record in records
        for one in record.window.ranges
        if one.at == at
    ]
    return min(pinned, key=lambda moment: moment.at, default=None)
