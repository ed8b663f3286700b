"""A stream in one line of the page of all streams, from its overview. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The same as in the overview.
_SAME = (
    "stream",
    "description",
    "status",
    "missing_topics",
    "retention_alarms",
    "retention_headroom",
    "audit",
    "holes",
    "more_holes",
)


def line_of(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Lag in records and since when, the next deletion, the ingest's last commit and dead letters, the last audit.

    The lag is None while no partition has a position. Offsets and counts of offsets are texts. `dead_letters` is what the
    last `windows` windows of the ingest have written, whatever replays have made of these since.
    """
    lags = [int(one["lag"]) for one in shown["partitions"] if one["lag"] is not None]
    return {
        **{name: shown[name] for name in _SAME},
        "partitions": len(shown["partitions"]),
        "lag": str(sum(lags)) if lags else None,
        "unread_since": shown["unread_since"],
        "retention_ms": min(
            (one["retention_ms"] for one in shown["partitions"] if one["retention_ms"] is not None), default=None
        ),
        "retention": _worst_retention(shown),
        **shown["ingest"],
    }


def _worst_retention(shown: Mapping[str, Any]) -> str | None:
    found = {one["retention"] for one in shown["partitions"]}
    return next((state for state in ("lost", "warning", "unknown", "safe") if state in found), None)
