"""A command that waits for a job, which stands for Spark's: it prints a log and a bar, and ends as it is told. For tests.

Arguments: the exit code of the job, and -v for its log. Needs no server.
"""

import sys
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import typer

from tidemark.cli import submitting
from tidemark.cli.output import line
from tidemark.cli.progress import PartitionProgress, ShownJob

JOB = """
import sys
print("26/11/23 12:00:00 WARN Utils: first")
sys.stderr.write("\\r[Stage 3:=====>      (3 + 2) / 12]")
print("26/11/23 12:00:01 WARN Utils: second")
code = int(sys.argv[1])
if code:
    print("tidemark: Fenced: another run holds it")
sys.exit(code)
"""
OPENED = SimpleNamespace(
    connections=lambda name: None,
    check_lakes=lambda: None,
    stream=SimpleNamespace(name="orders", engine=SimpleNamespace(spark="spark_default")),
)
SHOWN = ShownJob(
    "storing hbase",
    "window 3 of orders/ingest",
    (PartitionProgress("orders/0", 500, 120), PartitionProgress("orders/1", 7, 7)),
)


def job(*_: Any) -> list[str]:
    return [sys.executable, "-u", "-c", JOB, sys.argv[1]]


if __name__ == "__main__":
    try:
        mock.patch.object(submitting, "submit_command", job).start()
        submitting.submit(cast("Any", OPENED), "job.py", [], look=lambda: SHOWN, verbose="-v" in sys.argv)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    line("the answer")
