"""From a folder of stream files to its DAGs."""

from __future__ import annotations

import re
from pathlib import Path

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from tidemark.errors import InvalidStreamFile
from tidemark.streams.loading import load, stream_files
from tidemark_dags.audit import audit_dag
from tidemark_dags.backfill import backfill_dag
from tidemark_dags.ingest import ingest_dag
from tidemark_dags.replay import replay_dag


def build_dags(*folders: Path) -> list[DAG]:
    """Four DAGs for each stream file (`*.yaml`) of the folders: NAME__ingest, __backfill, __replay and __audit.

    A file that is not a valid stream file does not take the others with it: it becomes a DAG FILE__invalid, which shows
    what is wrong and fails when it is run.
    """
    dags: list[DAG] = []
    names: dict[str, Path] = {}
    for path in stream_files(*folders):
        try:
            stream = load(path).stream
            if stream.stream in names:
                raise InvalidStreamFile(
                    f"{path}: stream {stream.stream} is described by {names[stream.stream]} already"
                )
        except InvalidStreamFile as problem:
            dags.append(_invalid(path, problem))
            continue
        names[stream.stream] = path
        dags += [make(path, stream) for make in (ingest_dag, backfill_dag, replay_dag, audit_dag)]
    return dags


def _invalid(path: Path, problem: InvalidStreamFile) -> DAG:
    text = str(problem)
    with DAG(
        dag_id=f"{re.sub(r'[^A-Za-z0-9_.-]', '_', path.stem)}__invalid",
        schedule=None,
        catchup=False,
        description="This stream file is invalid",
        doc_md=f"This stream file is invalid; its DAGs are missing until it is corrected.\n\n```\n{text}\n```",
        tags=["tidemark", "invalid stream file"],
    ) as dag:

        @task(retries=0)
        def show_what_is_wrong() -> None:
            raise AirflowFailException(text)

        show_what_is_wrong()
    return dag
