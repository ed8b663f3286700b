"""NAME__backfill: offsets that no window has read yet, in a lane of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG

from tidemark.ledger.records import LaneKind
from tidemark.streams.model import Stream
from tidemark_dags.requests import BackfillRequest, backfill_params
from tidemark_dags.selected import selected_dag

if TYPE_CHECKING:
    from tidemark.ranges import RangeSet
    from tidemark.streams.opened import OpenStream

DESCRIPTION = "Read offsets that no window has read yet: ranges, or everything before the first window"


def backfill_dag(path: Path, stream: Stream) -> DAG:
    return selected_dag(path, stream, LaneKind.BACKFILL, BackfillRequest, backfill_params(), _select, DESCRIPTION)


def _select(opened: OpenStream, request: BackfillRequest) -> RangeSet:
    from tidemark import runs
    from tidemark.coordinates import parse_ranges
    from tidemark.ranges import RangeSet

    if request.everything_before:
        return runs.before_the_first_window(opened)
    return runs.with_incarnations(opened, RangeSet(parse_ranges(request.ranges)))
