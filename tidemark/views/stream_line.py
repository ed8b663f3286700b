"""A stream in one line of the page of all streams, from its overview. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tidemark.views.overview import OfIngest, Overview, StateOfStream
from tidemark.views.values import Number


@dataclass(frozen=True)
class Line(OfIngest, StateOfStream):
    """A stream in a line: the lag is None while no partition has a position."""

    partitions: int
    lag: Number | None
    retention_ms: int | None
    retention: str | None


def line_of(shown: Overview) -> Line:
    """A stream in one line, from its overview."""
    lags = [one.lag for one in shown.partitions if one.lag is not None]
    retention = {one.retention for one in shown.partitions}
    return Line(
        **{field.name: getattr(shown, field.name) for field in fields(StateOfStream)},
        **vars(shown.ingest),
        partitions=len(shown.partitions),
        lag=sum(lags) if lags else None,
        retention_ms=min((one.retention_ms for one in shown.partitions if one.retention_ms is not None), default=None),
        retention=next((state for state in ("lost", "warning", "unknown", "safe") if state in retention), None),
    )
