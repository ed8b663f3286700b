"""Offsets and estimates as the commands show them."""

from __future__ import annotations

from typing import Any

from tidemark.cli.output import error
from tidemark.ledger.incarnations import Topics, written_partition
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.windows import estimates


def counted(topics: Topics, ranges: RangeSet) -> dict[str, Any]:
    """Offsets for JSON: their number and their ranges, as a request takes them."""
    shown = [
        {
            "partition": written_partition(topics, RangeSet([range_])),
            "from": str(range_.start),
            "until": str(range_.until),
        }
        for range_ in ranges
    ]
    return {"offsets": ranges.count(), "ranges": shown}


def show_estimate(estimate: dict[str, Any] | None) -> None:
    error(estimates.describe_estimate(estimate))
