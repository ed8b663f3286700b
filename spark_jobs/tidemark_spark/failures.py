"""Spark's errors as Tidemark's: what failed in a worker or in the JVM gets the name and exit code that it deserves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException, PythonException

from tidemark import errors
from tidemark.errors import OffsetsOutOfRange, ProcessingFailed, TidemarkError, Unreachable

# The last lines of a Python traceback, as it comes back from a worker; of an error that was raised from others, theirs stand
# before it.
_RAISED = re.compile(r"^tidemark\.errors\.(\w+): (.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
# Spark's Kafka source says what happened at the end of its message, where it gives a reason.
_LOST = re.compile(r"data may have been lost|OffsetOutOfRange")
_REASON = re.compile(r"Reason: (.+?)(?:\n?with consumer group|\n\n|\Z)", re.DOTALL)
# A wait for an answer of Kafka; "Futures timed out" is what Spark says of its own.
_AWAY = re.compile(
    r"^.*(?:TimeoutException(?!: Futures timed out)|DisconnectException|Failed to construct kafka consumer|"
    r"Failed to create new KafkaAdminClient).*$",
    re.MULTILINE,
)
# What Linux says, in Java's words and in Python's.
_FULL = "No space left on device"
_WRITTEN = re.compile(r"Task failed while writing rows to (\S+?)\.? SQLSTATE")
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor")
# No error has as many causes, unless it is one of its own.
_MOST_CAUSES = 20


def translate(error: BaseException) -> TidemarkError | None:
    """The Tidemark error that an error of Spark stands for; None for an error that is not Spark's."""
    if isinstance(error, TidemarkError):
        return error
    if not isinstance(error, Py4JError | PySparkException | Py4JNetworkError):
        return None
    causes = list(_causes(error))
    text = "\n\n".join(causes)
    raised = [*_RAISED.finditer(text)][-1:]
    kind = getattr(errors, raised[0].group(1), None) if raised else None
    if raised and isinstance(kind, type) and issubclass(kind, TidemarkError):
        return kind(raised[0].group(2).strip())
    if _LOST.search(text):
        why = _REASON.search(text)
        return OffsetsOutOfRange(
            f"Kafka no longer has all of the window's records: {_line(why.group(1) if why else text)}"
        )
    away = _AWAY.search(text)
    if away:
        return Unreachable(f"Kafka did not answer Spark: {away.group(0).strip()}")
    if _FULL in text:
        return ProcessingFailed(f"{_full_disk(text)}: {_FULL}. Make room there, and run it again")
    lines = text.strip().splitlines() or [type(error).__name__]
    # A Python traceback ends with what happened; everything else begins with it.
    said = lines[-1 if isinstance(error, PythonException) else 0]
    first = causes[-1].strip().split("\n")[0]
    # Spark's own first line often ends with the first cause.
    if len(causes) == 1 or first in said:
        return ProcessingFailed(f"Spark failed: {said}")
    return ProcessingFailed(f"Spark failed: {said} Its cause: {first}")


def _full_disk(text: str) -> str:
    """Which disk it is, as far as Spark says it."""
    written, host = _WRITTEN.search(text), _HOST.search(text)
    if written:
        return f"The disk of {written.group(1)} is full"
    where = f"on host {host.group(1)}" if host else "on one of Spark's hosts"
    return (
        f"A disk {where} is full, most likely that of Spark's scratch files (SPARK_LOCAL_DIRS or spark.local.dir there)"
    )


def _line(text: str) -> str:
    return " ".join(text.split())


def _causes(error: BaseException) -> Iterator[str]:
    """What an error says, and then each of its causes, the first one last: a failed write says why only there."""
    if not isinstance(error, Py4JJavaError):
        yield str(error)
        return
    java: Any = error.java_exception
    for _ in range(_MOST_CAUSES):
        yield str(java)
        java = java.getCause()
        if java is None:
            return
