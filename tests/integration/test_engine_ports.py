"""A warm engine's ports: it compiles what reads Kafka, and so needs the jars of Spark's source."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.support.listening_jobs import JOB, OPEN, assert_nobody_gets_anything, listening
from tidemark.clients.connections import Connection
from tidemark.submit.address import FOLDER
from tidemark.submit.command import engine_command, warm_engine
from tidemark.submit.status import ask


@pytest.mark.usefixtures("spark")
@pytest.mark.covers("Q40")
def test_an_engine_lets_nobody_in() -> None:
    connection = Connection("spark_default", "local[2]", extra={"engine": {"conf": OPEN}})
    engine = warm_engine(connection)
    assert engine is not None
    with tempfile.TemporaryDirectory(prefix="engines-") as folder:
        os.environ[FOLDER] = folder
        try:
            command = engine_command(connection, engine, {})
            with listening([*command, str(JOB)], **{FOLDER: folder}) as ports:
                assert_nobody_gets_anything(ports)
            ask(Path(command[4]), "stop", now=True)
        finally:
            del os.environ[FOLDER]
