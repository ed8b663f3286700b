"""NAME__replay: reads offsets again. The ingest goes on meanwhile, and its position does not move."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from tidemark.airflow.backfill_replay import selected_dag
from tidemark.airflow.requests import params
from tidemark.runs.requests.forms import ReplayRequest
from tidemark.streams.model import Stream

DESCRIPTION = (
    "Read records again, after a bug fix or an audit: pasted records, ranges, a time, dead letters, or findings"
)


def replay_dag(path: Path, stream: Stream) -> DAG:
    return selected_dag(
        path,
        stream,
        ReplayRequest,
        params(ReplayRequest, stream.limits.approve_above, [one.name for one in stream.sinks]),
        DESCRIPTION,
    )
