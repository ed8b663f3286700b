"""NAME__replay: offsets that were read before, again; the ingest goes on meanwhile, and its position does not move."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from tidemark.planning.requests import ReplayRequest
from tidemark.streams.model import Stream
from tidemark_dags.requests import replay_params
from tidemark_dags.selected import selected_dag

DESCRIPTION = (
    "Read records again, after a bug fix or an audit: pasted records, ranges, a time, dead letters, or findings"
)


def replay_dag(path: Path, stream: Stream) -> DAG:
    return selected_dag(path, stream, ReplayRequest, replay_params(), DESCRIPTION)
