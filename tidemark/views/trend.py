"""Lag and throughput over the last windows of the ingest, for small plots. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.ledger.records import Record
from tidemark.views.summary import messages
from tidemark.views.values import Number

# Windows in a plot.
LAST = 100


@dataclass(frozen=True)
class TrendOfWindow:
    """The lag that a window left, the messages that it read, and the seconds it took.

    The lag is up to the end that the window saw when it was pinned. `seconds` is None while there is no receipt.
    """

    window: int
    at: int
    lag: Number
    read: int
    dead_letters: int
    seconds: float | None


@dataclass(frozen=True)
class Trend:
    windows: list[TrendOfWindow]


def trend(records: Iterable[Record]) -> Trend:
    """The windows in the order of the commits."""
    return Trend(
        [
            TrendOfWindow(
                window=record.seq,
                at=record.committed_at,
                lag=sum(max(0, range_.log_end - range_.until) for range_ in record.window.ranges),
                read=messages(record).read,
                dead_letters=messages(record).dead_letters,
                seconds=(record.receipt.finished_at - record.receipt.started_at) / 1000 if record.receipt else None,
            )
            for record in sorted(records, key=lambda record: record.seq)
        ]
    )
