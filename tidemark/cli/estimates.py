"""Offsets and estimates as the commands show them."""

from __future__ import annotations

from typing import Any

from tidemark.cli.output import error
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.windows import estimates


def counted(ranges: RangeSet) -> dict[str, Any]:
    """Offsets for JSON: their number and their ranges."""
    shown = [{"partition": str(one.partition), "from": str(one.start), "until": str(one.until)} for one in ranges]
    return {"offsets": ranges.count(), "ranges": shown}


def show_estimate(found: dict[str, Any] | None) -> None:
    error(estimates.said(found))
