"""How late the ingest's messages became results, and the alarm when they keep being late. Pure.

As Gobblin's KafkaIngestionHealthCheck: an alarm takes several epochs in a row, and the first one below the limit clears it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.ledger.records import Record
from tidemark.offsets.counting import number_of
from tidemark.offsets.times import in_words

_MINUTE_MS = 60_000


@dataclass(frozen=True)
class Latency:
    """The last latency in ms, the limit, and the alarm with its sentence; None for what there is not."""

    last_ms: int | None
    limit_ms: int | None
    alarm: bool | None
    sentence: str | None


def latencies(records: Iterable[Record]) -> list[int]:
    """The age of the oldest message of each window at its commit (ms), in the order of the commits.

    Windows without a message that has a timestamp are left out.
    """
    latencies = []
    for record in sorted(records, key=lambda record: record.seq):
        oldest = [tally.first_timestamp for tally in record.tallies if tally.first_timestamp is not None]
        if oldest:
            latencies.append(max(0, record.committed_at - min(oldest)))
    return latencies


def raised(latencies: Sequence[int], limit: int, windows: int) -> bool:
    """Whether each of the last `windows` latencies is above the limit. With fewer latencies, there is no alarm yet."""
    last = latencies[-windows:]
    return len(last) == windows and min(last) > limit


def latency_shown(latencies: Sequence[int], limit_minutes: int | None, windows: int) -> Latency:
    """The latency of a stream, of its last windows and the limit of its file."""
    limit = None if limit_minutes is None else limit_minutes * _MINUTE_MS
    alarm = None if limit is None else raised(latencies, limit, windows)
    sentence = None
    if alarm and limit is not None:
        last = ", ".join(in_words(latency) for latency in latencies[-windows:])
        sentence = (
            f"the last {number_of(windows, 'window', 'was', 'were')} late: {last}; the limit is {in_words(limit)}"
        )
    return Latency(latencies[-1] if latencies else None, limit, alarm, sentence)
