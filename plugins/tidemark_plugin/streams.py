"""The streams that the page shows: those of the stream files that the DAGs are made from."""

from __future__ import annotations

from pathlib import Path

from tidemark.connections import Connection, of_airflow
from tidemark.errors import ConnectionMissing, InvalidStreamFile
from tidemark.streams.loading import StreamFile, load, stream_files, stream_folders
from tidemark.streams.opened import OpenStream, open_stream


def known_streams() -> tuple[dict[str, StreamFile], list[str]]:
    """The streams by name, and what is wrong with the files that cannot be read."""
    from airflow.configuration import conf

    dags = Path(conf.get_mandatory_value("core", "dags_folder"))
    found, problems = {}, []
    for path in stream_files(*stream_folders(beside=dags)):
        try:
            file = load(path)
        except InvalidStreamFile as problem:
            problems.append(str(problem))
        else:
            found[file.stream.stream] = file
    return found, problems


def opened(file: StreamFile) -> OpenStream:
    return open_stream(file.path, from_airflow)


def from_airflow(name: str) -> Connection:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

    try:
        return of_airflow(name, BaseHook.get_connection(name))
    except (AirflowNotFoundException, AirflowRuntimeError) as problem:
        raise ConnectionMissing(f"Airflow has no connection {name}") from problem
