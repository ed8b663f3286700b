"""NAME__backfill: offsets that no window has read yet, in a lane of their own."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from tidemark.airflow.backfill_replay import selected_dag
from tidemark.airflow.requests import params
from tidemark.runs.requests.forms import BackfillRequest
from tidemark.streams.model import Stream

DESCRIPTION = "Read offsets that no window has read yet: ranges, records, a time, or everything before the first window"


def backfill_dag(path: Path, stream: Stream) -> DAG:
    return selected_dag(
        path,
        stream,
        BackfillRequest,
        params(BackfillRequest, stream.limits.approve_above, [one.name for one in stream.sinks]),
        DESCRIPTION,
    )
