"""A stream in one line of the page of all streams, from its overview. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The same as in the overview.
_SAME = ("stream", "description", "status", "missing_topics", "retention_alarms", "retention_headroom", "audit")


def line_of(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Lag in records and since when, the next deletion, dead letters of the last windows, the last commit and audit.

    The lag is None while no partition has a position. Offsets and counts of offsets are texts.
    """
    lags = [int(one["lag"]) for one in shown["partitions"] if one["lag"] is not None]
    committed = [one for one in shown["windows"] if one["state"] == "committed"]
    ingest = next((one for one in committed if one["lane"] == "ingest"), None)
    return {
        **{name: shown[name] for name in _SAME},
        "partitions": len(shown["partitions"]),
        "lag": str(sum(lags)) if lags else None,
        "unread_since": shown["unread_since"],
        "retention_ms": min(
            (one["retention_ms"] for one in shown["partitions"] if one["retention_ms"] is not None), default=None
        ),
        "retention": _worst_retention(shown),
        "dead_letters": sum(one["dead_letters"] or 0 for one in committed),
        "windows": len(committed),
        "last_commit": ingest and {"window": ingest["seq"], "at": ingest["at"], "run": ingest["run"]},
    }


def _worst_retention(shown: Mapping[str, Any]) -> str | None:
    found = {one["retention"] for one in shown["partitions"]}
    return next((state for state in ("lost", "warning", "unknown", "safe") if state in found), None)
