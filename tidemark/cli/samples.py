"""Running the job that tries a stream on messages in files, on this machine."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from tidemark.cli import programs
from tidemark.cli.output import error
from tidemark.clients.on_one_machine import connector
from tidemark.errors import EXIT_DONE, PYSPARK, PackageMissing, install
from tidemark.schemes.kinds import AvroScheme
from tidemark.streams.model import Stream
from tidemark.submit.command import check_machine, job_environment, job_script

# Two tasks at a time: samples are few.
_MASTER = "local[2]"


def tried(stream: Stream, file: Path, messages: Path) -> dict[str, Any]:
    """What a stream makes of some messages, as `tidemark.spark.jobs.samples.became` says it.

    Ends the program with the job's exit code if that is not 0, after the job has said why. Raises PackageMissing, and
    WrongUse where there is no Java.
    """
    check_machine(())
    if find_spec("pyspark") is None:
        raise PackageMissing(f"trying a stream needs Spark: {install(*PYSPARK)}")
    with tempfile.TemporaryDirectory(prefix="tidemark-try-") as folder:
        out = Path(folder) / "answer.json"
        arguments = ["--stream-file", str(file), "--messages", str(messages), "--out", str(out)]
        log: list[str] = []
        code = programs.run(
            [sys.executable, str(job_script()), "samples", *arguments], _environment(stream), log.append
        )
        if code != EXIT_DONE:
            ours = [said for said in log if said.startswith("tidemark: ")]
            for said in ours or log:
                error(said)
            raise typer.Exit(code if code > 0 else 128 - code)
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def _environment(stream: Stream) -> dict[str, str]:
    """The environment of a Python that starts a Spark of its own."""
    settings = {"spark.ui.enabled": "false", **stream.engine.conf}
    if isinstance(stream.scheme, AvroScheme) and "SPARK_CONF_DIR" not in os.environ:
        # Spark's settings would say where its Avro package is.
        settings = {"spark.jars.packages": connector(version("pyspark"), avro=True), **settings}
    words = ["--master", _MASTER, *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))]
    return {**job_environment(), "PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"])}
