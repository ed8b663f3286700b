"""From a folder of stream files to its DAGs."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Collection, Iterable, Mapping
from itertools import count
from pathlib import Path
from pkgutil import resolve_name

from airflow.sdk import DAG, get_parsing_context, task
from airflow.sdk.exceptions import AirflowFailException

from tidemark.airflow.parsing_limits import warn_near_limits
from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.streams.loading import load, name_in, stream_files
from tidemark.streams.model import Stream

# The most characters of a stream's name: a DAG's name may have 250.
MAX_OF_A_NAME = 200
# Names of files may have bytes that are no text.
_ANY = ("utf-8", "surrogateescape")
# What makes each kind of DAG. Each task is a process that builds one DAG, so only that one's module is imported there.
_KINDS = {
    "ingest": "tidemark.airflow.ingest:ingest_dag",
    "backfill": "tidemark.airflow.backfill_replay:backfill_dag",
    "replay": "tidemark.airflow.backfill_replay:replay_dag",
    "audit": "tidemark.airflow.audit:audit_dag",
    "erase": "tidemark.airflow.erase:erase_dag",
}


def build_dags(*folders: Path, shard: tuple[int, int] | None = None) -> list[DAG]:
    """Five DAGs for each stream file (`*.yaml`) of the folders: NAME__ingest, __backfill, __replay, __audit and __erase.

    A file or folder that cannot be used does not affect the others. It becomes a DAG FILE__invalid, which shows what is wrong
    and fails when it is run.

    `shard`: (number, of how many), from (1, 1). Only the streams of this shard: each stream is in one, by its name, whatever
    the folders. Raises WrongUse for a number that is not among the shards.

    Where Airflow asks for one DAG, as each task does, only that one is built.
    """
    began = time.monotonic()
    paths, missing = _files_of(folders)
    if shard is not None:
        paths = _of_shard(paths, *shard)
    if (asked := get_parsing_context().dag_id) is not None and (dag := _asked_for(paths, asked)) is not None:
        return [dag]
    dags = _of_missing(missing, shard)
    names: dict[str, Path] = {}
    for path in paths:
        try:
            stream = load(path).stream
            if stream.name in names:
                raise InvalidStreamFile(f"{path}: stream {stream.name} is described by {names[stream.name]} already")
            dags += _of_stream(path, stream)
        except InvalidStreamFile as problem:
            dags.append(_invalid(path, str(problem), dags, shard))
        except Exception as problem:  # Airflow would show no DAG of any stream
            said = f"{path}: its DAGs cannot be built: {type(problem).__name__}: {problem}"
            dags.append(_invalid(path, said, dags, shard))
        else:
            names[stream.name] = path
    warn_near_limits(len(paths), time.monotonic() - began)
    return dags


def _files_of(folders: Iterable[Path]) -> tuple[list[Path], dict[Path, str]]:
    """The stream files of some folders, and what is wrong with the folders that cannot be read."""
    paths, missing = list[Path](), dict[Path, str]()
    for folder in folders:
        try:
            paths += stream_files(folder)
        except WrongUse as problem:
            missing[folder] = str(problem)
    return paths, missing


def _of_missing(missing: Mapping[Path, str], shard: tuple[int, int] | None) -> list[DAG]:
    dags: list[DAG] = []
    for folder, problem in missing.items():
        dags.append(_invalid(folder, problem, dags, shard))
    return dags


def _of_shard(paths: Iterable[Path], number: int, of: int) -> list[Path]:
    if not 1 <= number <= of:
        raise WrongUse(f"shard ({number}, {of}): expected a number from 1 to {of}, and of how many shards")
    # Two files with one name are in one shard, which says so. A file that names nobody is known by its own name.
    return [path for path in paths if zlib.crc32((name_in(path) or path.name).encode(*_ANY)) % of == number - 1]


def _asked_for(paths: Iterable[Path], dag_id: str) -> DAG | None:
    """The one DAG with this name; None where that takes all files, as for FILE__invalid."""
    name, _, kind = dag_id.rpartition("__")
    for path in paths:
        if name_in(path) != name:
            continue
        try:
            stream = load(path).stream
            if stream.name == name:
                return next((dag for dag in _of_stream(path, stream, kind)), None)
        except Exception:  # noqa: S112 - as for all DAGs, the next file may have the name
            continue
    return None


def _of_stream(path: Path, stream: Stream, only: str = "") -> list[DAG]:
    """A stream's DAGs, or `only` one kind of them, checked as Airflow will check them."""
    str(path).encode()
    dags: list[DAG] = [resolve_name(make)(path, stream) for kind, make in _KINDS.items() if only in ("", kind)]
    for dag in dags:
        dag.validate()  # type: ignore[no-untyped-call]
    return dags


def _invalid(path: Path, problem: str, others: Iterable[DAG], shard: tuple[int, int] | None) -> DAG:
    # Names of files and keys may have characters that no database stores.
    text = problem.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    with DAG(
        dag_id=_free_id(path, {dag.dag_id for dag in others}, "" if shard is None else f"_{shard[0]}_of_{shard[1]}"),
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


def _free_id(path: Path, taken: Collection[str], shard: str) -> str:
    """A DAG's name from a file's name. Two files may differ only in characters that a DAG's name cannot have."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:MAX_OF_A_NAME] + "__invalid" + shard
    return next(free for number in count(1) if (free := f"{name}{f'_{number}' * (number > 1)}") not in taken)
