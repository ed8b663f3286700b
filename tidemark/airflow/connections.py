"""Airflow's Connections in Tidemark's form, for tasks and for the jobs that tasks start."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.clients import on_one_machine
from tidemark.clients.connections import Connection, connection_from_airflow, variable
from tidemark.errors import ConnectionMissing

if TYPE_CHECKING:
    from tidemark.runs.live.open_stream import OpenStream

_MISSING = "Airflow has no connection {}: add it under Admin, Connections"


def from_airflow(name: str) -> Connection:
    """The Airflow Connection of this name, or what stands in for it on one machine. Raises ConnectionMissing."""
    return on_one_machine.connection_or_stand_in(name, _stored, _MISSING.format(name))


def _stored(name: str) -> Connection | None:
    """None when Airflow knows that there is none."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError
    from airflow.sdk.log import mask_secret

    try:
        stored = BaseHook.get_connection(name)
    except AirflowNotFoundException:
        return None
    except AirflowRuntimeError as problem:
        raise ConnectionMissing(_MISSING.format(name)) from problem
    connection = connection_from_airflow(name, stored)
    # Airflow masks most secrets by their names, but not a key in PEM. It masks the lines of a text together.
    for secret in connection.secrets():
        mask_secret(secret)
    return connection


def open_here(stream_file: str) -> OpenStream:
    """The stream of a file, with Airflow's Connections: for the bodies of tasks. Raises what `check_lakes` raises."""
    from tidemark.runs.live.open_stream import open_stream

    opened = open_stream(Path(stream_file), from_airflow)
    opened.check_lakes()
    return opened


@contextmanager
def exported(names: Iterable[str]) -> Iterator[None]:
    """Put connections into the environment while the block runs, for a program that the block starts.

    They are never on a command line, in a template field or in a Spark setting: people can see those.
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
