"""A stream's numbers for a metrics system: the positions of its partitions, and the counts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemark.ledger.records import Record
from tidemark.views.overview import Overview
from tidemark.views.state_words import SEVERITY, StreamState
from tidemark.views.states import reasons_of, state_of
from tidemark.views.status import PartitionState
from tidemark.views.stream_line import line_of
from tidemark.views.summary import messages, passed_over
from tidemark.views.unknown_fields import unknown_in

# Their names and meanings: docs/monitoring.md is written from here.
GAUGES = {
    "log_start": "the log start of each partition",
    "position": "the ingest's position in each partition; without one until a window has read the partition",
    "end": "the end of each partition's log",
    "status": "the [status](#status) of each partition, and the worst of the stream: 0 is OK, 1 WARNING, 2 STALLED, "
    "3 REWOUND, 4 STOPPED",
    "state": "the [state](airflow-pages.md#streams) of the stream, as far as a run knows it: "
    + ", ".join(f"{number} {'is ' if number == 0 else ''}{word}" for number, word in enumerate(StreamState)),
    "retention_ms": "the least time until Kafka deletes the next unread offset, of each partition where it is known, and of "
    "the stream",
    "latency_ms": "how old the oldest message of the newest window was at its commit",
    "latency_alarm": "1 while the [latency alarm](#the-latency-alarm) is raised, otherwise 0; only with a limit",
    "watermark_age_ms": "how old the stream's [watermark](complete.md#the-watermark) is; not sent while it is unknown",
    "lag": "how many offsets the ingest lags: of each partition that has a position, and of the whole stream",
}
COUNTERS = {
    "windows": "windows that were committed",
    "read": "messages that they have read",
    "stored": "messages that are rows in the results",
    "skipped": "messages without a row, by a function, a transform or `explode`",
    "dead_letters": "invalid and failed messages",
    "unknown_fields": "messages with keys that the stream file does not name; which ones, [the window "
    "says](schemes.md#new-keys)",
    "offsets_lost": "offsets that Kafka no longer had, and that a policy of the stream file let pass",
    "offsets_skipped": "offsets that a policy of the stream file has skipped",
}


@dataclass(frozen=True)
class Metric:
    """A number of a stream, or of one of its partitions (`topic` and `partition` are None for the whole stream)."""

    name: str
    value: int
    topic: str | None = None
    partition: int | None = None


_OF_PARTITIONS = ("log_start", "position", "end", "lag", "retention_ms")
_NUMBERS = {word.value: number for number, word in enumerate(PartitionState)}


def gauges(shown: Overview) -> Iterator[Metric]:
    """The numbers of an overview, of its partitions and of the whole stream, where they are known."""
    lag, left = 0, []
    for partition in shown.partitions:
        place = partition.topic, partition.partition
        for name in _OF_PARTITIONS:
            if (value := getattr(partition, name)) is not None:
                yield Metric(name, value, *place)
        if partition.status is not None:
            yield Metric("status", _NUMBERS[partition.status], *place)
        lag += partition.lag or 0
        left += [partition.retention_ms] if partition.retention_ms is not None else []
    yield Metric("lag", lag)
    if left:
        yield Metric("retention_ms", min(left))
    if shown.status is not None:
        yield Metric("status", _NUMBERS[shown.status.word])
    yield Metric("state", SEVERITY.index(state_of(reasons_of(line_of(shown)))))
    if shown.latency.last_ms is not None:
        yield Metric("latency_ms", shown.latency.last_ms)
    if shown.latency.alarm is not None:
        yield Metric("latency_alarm", int(shown.latency.alarm))


def watermark_age(now: int, watermark: int | None) -> Iterator[Metric]:
    """How old the watermark of a stream is in ms. It may lie ahead of the newest message, never of the clock."""
    if watermark is not None:
        yield Metric("watermark_age_ms", now - watermark)


def counts(records: Iterable[Record]) -> Iterator[Metric]:
    """The counts of windows: messages read, stored and so on; offsets lost and skipped; windows."""
    totals: Counter[str] = Counter()
    for record in records:
        totals["windows"] += 1
        totals.update(vars(messages(record)))
        unknown = unknown_in([record])
        totals["unknown_fields"] += unknown.messages if unknown is not None else 0
        totals.update({f"offsets_{kind}": number for kind, number in vars(passed_over(record)).items()})
    for name, number in totals.items():
        yield Metric(name, number)
