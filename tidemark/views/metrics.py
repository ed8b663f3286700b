"""A stream's numbers for a metrics system: the positions of its partitions, and the counts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidemark.ledger.records import Record
from tidemark.views.summary import messages, passed_over

# Their names and meanings: docs/monitoring.md is written from here.
GAUGES = {
    "log_start": "the log start of each partition",
    "position": "the ingest's position in each partition; without one until a window has read the partition",
    "end": "the end of each partition's log",
    "lag": "how many offsets the ingest lags: of each partition that has a position, and of the whole stream",
}
COUNTERS = {
    "windows": "windows that were committed",
    "read": "messages that they have read",
    "stored": "messages that are rows in the results",
    "skipped": "messages without a row, by a function, a transform or `explode`",
    "dead_letters": "invalid and failed messages",
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


def gauges(partitions: Iterable[dict[str, Any]]) -> Iterator[Metric]:
    """Log start, position, end and lag of an overview's partitions, where they are known, and the lag of all together."""
    lag = 0
    for one in partitions:
        for name in GAUGES:
            if one[name] is not None:
                yield Metric(name, int(one[name]), one["topic"], one["partition"])
        lag += int(one["lag"] or 0)
    yield Metric("lag", lag)


def counts(records: Iterable[Record]) -> Iterator[Metric]:
    """The counts of windows: messages read, stored and so on; offsets lost and skipped; windows."""
    found: Counter[str] = Counter()
    for record in records:
        found["windows"] += 1
        found.update(messages(record))
        found.update({f"offsets_{kind}": number for kind, number in passed_over(record).items()})
    for name, number in found.items():
        yield Metric(name, number)
