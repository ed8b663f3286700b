"""NAME__replay: offsets that were read before, again; the ingest goes on meanwhile, and its position does not move."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG

from tidemark.ledger.records import LaneKind
from tidemark.streams.model import Stream
from tidemark_dags.requests import ReplayRequest, replay_params
from tidemark_dags.selected import selected_dag

if TYPE_CHECKING:
    from tidemark.ranges import RangeSet
    from tidemark.streams.opened import OpenStream

DESCRIPTION = "Read records again, after a bug fix or an audit: pasted records, ranges, dead letters, or findings"


def replay_dag(path: Path, stream: Stream) -> DAG:
    return selected_dag(path, stream, LaneKind.REPLAY, ReplayRequest, replay_params(), _select, DESCRIPTION)


def _select(opened: OpenStream, request: ReplayRequest) -> RangeSet:
    from tidemark import runs
    from tidemark.coordinates import parse_coordinates, parse_ranges
    from tidemark.ranges import RangeSet

    if request.selection:
        return runs.stored_selection(opened, request.selection)
    if request.dead_letters:
        return runs.dead_letters_by_reason(opened, None if request.dead_letters == "*" else request.dead_letters)
    if request.ranges:
        return runs.with_incarnations(opened, RangeSet(parse_ranges(request.ranges)))
    records = parse_coordinates(request.records)
    return runs.with_incarnations(opened, RangeSet(one.as_range() for one in records))
