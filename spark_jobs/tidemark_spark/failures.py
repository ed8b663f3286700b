"""Spark's errors as Tidemark's: what failed in a worker or in the JVM gets the name and exit code that it deserves."""

from __future__ import annotations

import re

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
_AWAY = re.compile(
    r"^.*(?:TimeoutException|DisconnectException|Failed to construct kafka consumer|Failed to create new KafkaAdminClient).*$",
    re.MULTILINE,
)


def translate(error: BaseException) -> TidemarkError | None:
    """The Tidemark error that an error of Spark stands for; None for an error that is not Spark's."""
    if isinstance(error, TidemarkError):
        return error
    if not isinstance(error, Py4JError | PySparkException | Py4JNetworkError):
        return None
    text = _text(error)
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
    lines = text.strip().splitlines() or [type(error).__name__]
    # A Python traceback ends with what happened; everything else begins with it.
    return ProcessingFailed(f"Spark failed: {lines[-1 if isinstance(error, PythonException) else 0]}")


def _line(text: str) -> str:
    return " ".join(text.split())


def _text(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception)
    return str(error)
