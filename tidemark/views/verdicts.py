"""The verdicts on a stream's partitions, from what the ledger and Kafka say of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from tidemark.clients.kafka.topics import TopicLog
from tidemark.ledger.records import Head, Record, WindowRange, next_offsets
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.live.retention import PartitionForecast
from tidemark.streams.model import Stream
from tidemark.views.status import Commit, Verdict, judge, rewound

Place = tuple[str, int]


def verdicts(
    ingest: Head | None,
    opened_at: int,
    lately: Iterable[Record],
    logs: Mapping[str, TopicLog],
    forecasted: Mapping[TopicPartition, PartitionForecast],
    stream: Stream,
    now: int,
    recreated: Container[str] = (),
) -> dict[Place, Verdict]:
    """The verdict on each partition with a position of the ingest, by (topic, partition). `lately`: its last windows.

    An ingest that runs when it is due has no need to be faster than that: a partition is STOPPED only when nothing was
    committed, and something was unread all the time, since the run before the last one was due. `opened_at` is when the
    ingest was opened: it counts as a commit for partitions that none of the windows has read. `recreated`: topics whose
    positions are of another topic of that name.
    """
    if ingest is None:
        return {}
    windows = _by_partition(lately)
    recent = stream.schedule.two_runs_ago(now)
    unread = {(at.topic, at.partition): outlook.unread_since for at, outlook in forecasted.items()}
    verdicts_ = {}
    for topic, positions in next_offsets(ingest.positions).items():
        for partition, position in positions.items():
            log = logs.get(topic)
            if log is None or partition not in log.partitions:
                continue
            place, end = (topic, partition), log.partitions[partition].end
            if (moved := rewound(log.partitions[partition], position, recreated=topic in recreated)) is not None:
                verdicts_[place] = moved
                continue
            read = windows.get(place, ())
            ends = [end, *(range_.log_end for record, range_ in read if record.window.pinned_at >= recent)]
            if (unread.get(place) or 0) >= recent:
                # Until the first unread message came, the log ended at the position.
                ends.append(position)
            verdicts_[place] = judge(
                _commits(read) or [Commit(opened_at, position, None)],
                max(0, end - position),
                now,
                ends=ends,
                allowed_lag=stream.alarm.allowed_lag,
                patience_ms=now - recent,
            )
    return verdicts_


def _by_partition(records: Iterable[Record]) -> dict[Place, list[tuple[Record, WindowRange]]]:
    """The windows of each partition with its range, in the order of the commits."""
    by_partition: dict[Place, list[tuple[Record, WindowRange]]] = {}
    for record in sorted(records, key=lambda record: record.seq):
        for range_ in record.window.ranges:
            by_partition.setdefault((range_.topic, range_.partition), []).append((record, range_))
    return by_partition


def _commits(read: Iterable[tuple[Record, WindowRange]]) -> list[Commit]:
    """The commits of a partition's windows. The lag is up to the end that a window saw when it was pinned."""
    return [Commit(record.committed_at, range_.until, max(0, range_.log_end - range_.until)) for record, range_ in read]
