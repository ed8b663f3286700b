"""A stream in one line of the page of all streams, from its overview. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tidemark.views.overview import IngestDeadLetters, Overview, StateOfStream


@dataclass(frozen=True)
class StreamLine(IngestDeadLetters, StateOfStream):
    """A stream in a line."""

    partitions: int
    retention_ms: int | None
    retention: str | None


def line_of(shown: Overview) -> StreamLine:
    """A stream in one line, from its overview."""
    retention = {partition.retention for partition in shown.partitions}
    return StreamLine(
        **{field.name: getattr(shown, field.name) for field in fields(StateOfStream)},
        **vars(shown.ingest),
        partitions=len(shown.partitions),
        retention_ms=min(
            (partition.retention_ms for partition in shown.partitions if partition.retention_ms is not None),
            default=None,
        ),
        retention=next((state for state in ("lost", "warning", "unknown", "safe") if state in retention), None),
    )
