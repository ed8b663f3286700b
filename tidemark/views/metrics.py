"""A stream's numbers for a metrics system: where its partitions are, and what a run has done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidemark.ledger.records import Record
from tidemark.views.summary import messages, passed_over

_OF_A_PARTITION = ("log_start", "position", "end", "lag")


@dataclass(frozen=True)
class Metric:
    """A number of a stream, or of one of its partitions (`topic` and `partition` are None for the whole stream)."""

    name: str
    value: int
    topic: str | None = None
    partition: int | None = None


def gauges(partitions: Iterable[dict[str, Any]]) -> Iterator[Metric]:
    """Log start, position, end and lag of the partitions of an overview, and the lag of all; offsets, where there are any."""
    lag = 0
    for one in partitions:
        for name in _OF_A_PARTITION:
            if one[name] is not None:
                yield Metric(name, int(one[name]), one["topic"], one["partition"])
        lag += int(one["lag"] or 0)
    yield Metric("lag", lag)


def counts(records: Iterable[Record]) -> Iterator[Metric]:
    """What windows have done: messages read, stored and so on; offsets lost and skipped; windows."""
    found: Counter[str] = Counter()
    for record in records:
        found["windows"] += 1
        found.update(messages(record))
        found.update({f"offsets_{kind}": number for kind, number in passed_over(record).items()})
    for name, number in found.items():
        yield Metric(name, number)
