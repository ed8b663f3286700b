"""From a folder of stream files to its DAGs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import count
from pathlib import Path

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from tidemark.errors import InvalidStreamFile
from tidemark.streams.loading import load, stream_files
from tidemark.streams.model import Stream
from tidemark_dags.audit import audit_dag
from tidemark_dags.backfill import backfill_dag
from tidemark_dags.erase import erase_dag
from tidemark_dags.ingest import ingest_dag
from tidemark_dags.replay import replay_dag

# The most characters of a stream's name: a DAG's name may have 250.
MOST_OF_A_NAME = 200


def build_dags(*folders: Path) -> list[DAG]:
    """Five DAGs for each stream file (`*.yaml`) of the folders: NAME__ingest, __backfill, __replay, __audit and __erase.

    A file that cannot be used does not affect the other files. It becomes a DAG FILE__invalid, which shows what is wrong
    and fails when it is run.
    """
    dags: list[DAG] = []
    names: dict[str, Path] = {}
    for path in stream_files(*folders):
        try:
            stream = load(path).stream
            if stream.name in names:
                raise InvalidStreamFile(f"{path}: stream {stream.name} is described by {names[stream.name]} already")
            dags += _of_stream(path, stream)
        except InvalidStreamFile as problem:
            dags.append(_invalid(path, str(problem), dags))
        except Exception as problem:  # Airflow would show no DAG of any stream
            said = f"{path}: its DAGs cannot be built: {type(problem).__name__}: {problem}"
            dags.append(_invalid(path, said, dags))
        else:
            names[stream.name] = path
    return dags


def _of_stream(path: Path, stream: Stream) -> list[DAG]:
    """A stream's DAGs, checked as Airflow will check them."""
    str(path).encode()
    dags = [make(path, stream) for make in (ingest_dag, backfill_dag, replay_dag, audit_dag, erase_dag)]
    for dag in dags:
        dag.validate()  # type: ignore[no-untyped-call]
    return dags


def _invalid(path: Path, problem: str, others: Iterable[DAG]) -> DAG:
    # Names of files and keys may have characters that no database stores.
    text = problem.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    with DAG(
        dag_id=_free_id(path, {dag.dag_id for dag in others}),
        schedule=None,
        catchup=False,
        description="This stream file is invalid",
        doc_md=f"This stream file is invalid; its DAGs are missing until it is corrected.\n\n```\n{text}\n```",
        tags=["tidemark", "invalid stream file"],
        auto_register=False,
    ) as dag:

        @task(retries=0)
        def show_what_is_wrong() -> None:
            raise AirflowFailException(text)

        show_what_is_wrong()
    return dag


def _free_id(path: Path, taken: Collection[str]) -> str:
    """A DAG's name from a file's name. Two files may differ only in characters that a DAG's name cannot have."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:MOST_OF_A_NAME]
    return next(found for number in count(1) if (found := f"{name}__invalid{f'_{number}' * (number > 1)}") not in taken)
