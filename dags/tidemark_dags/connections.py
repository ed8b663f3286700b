"""Airflow's Connections as Tidemark takes them, in tasks and for the jobs that tasks start."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.connections import Connection, of_airflow, variable
from tidemark.errors import ConnectionMissing

if TYPE_CHECKING:
    from tidemark.streams.opened import OpenStream


def from_airflow(name: str) -> Connection:
    """The Airflow Connection of this name. Raises ConnectionMissing."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

    try:
        found = BaseHook.get_connection(name)
    except (AirflowNotFoundException, AirflowRuntimeError) as problem:
        raise ConnectionMissing(f"Airflow has no connection {name}: add it under Admin, Connections") from problem
    return of_airflow(name, found)


def open_here(stream_file: str) -> OpenStream:
    """The stream of a file, with Airflow's Connections: for the bodies of tasks."""
    from tidemark.streams.opened import open_stream

    return open_stream(Path(stream_file), from_airflow)


@contextmanager
def exported(names: Iterable[str]) -> Iterator[None]:
    """Connections in the environment while the block runs, for a program that it starts.

    Not on a command line, not in a template field, not in a Spark setting: those are shown to people.
    """
    wanted = {variable(name): from_airflow(name).to_json() for name in names}
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
