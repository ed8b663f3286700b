"""Spark's errors as Tidemark's: an error of a worker or of the JVM gets its name and exit code."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException, PythonException

from tidemark import errors
from tidemark.clients.disks import MAY_NOT, is_full, lacks_rights
from tidemark.errors import (
    NO_ROOM,
    AuthenticationFailed,
    DiskFull,
    NotAuthorized,
    OffsetsOutOfRange,
    ProcessingFailed,
    RowsRecomputed,
    TidemarkError,
    Unreachable,
)
from tidemark.spark.runtime.masking import masked, masked_text
from tidemark.spark.runtime.own_errors import (
    an_expression_threw,
    causes_of,
    classes_in,
    may_be_of_a_message,
    what_ended,
)
from tidemark.spark.runtime.single_computation import COMPUTED_AGAIN

# The last lines of a Python traceback from a worker. The tracebacks of the error's causes stand before them.
_RAISED = re.compile(r"^tidemark\.errors\.(\w+): (.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
# If Spark's Kafka source gives a reason, the end of its message says what happened.
_LOST = re.compile(r"data may have been lost|OffsetOutOfRange")
_REASON = re.compile(r"Reason: (.+?)(?:\n?with consumer group|\n\n|\Z)", re.DOTALL)
# A wait for an answer from Kafka. "Futures timed out" is about Spark's own waits.
_AWAY = re.compile(
    r"^.*(?:TimeoutException(?!: Futures timed out)|DisconnectException|Failed to construct kafka consumer|"
    r"Failed to create new KafkaAdminClient).*$",
    re.MULTILINE,
)
_NOT_LET_IN = re.compile(r"((?:Sasl|Ssl)AuthenticationException: .+)")
_NOT_ALLOWED = re.compile(r"((?:Topic|Group|Cluster|TransactionalId)AuthorizationException: .+)")
_WRITTEN = re.compile(r"Task failed while writing rows to (\S+?)\.? SQLSTATE")
# A disk that takes no writes, by Java's own errors: the words alone could be those of a message.
_WRITES_REFUSED = re.compile(
    r"^(?:Caused by: |[^\n]*\(TID \d+\) \(\S+ executor \S+\): )?"
    rf"(java\.n?io\.[\w.]+: [^\n]*(?:{'|'.join(map(re.escape, MAY_NOT))})[^\n]*)",
    re.MULTILINE,
)
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor")
_LOST_EXECUTOR = "ExecutorLostFailure"
_MEMORY = ("java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError")


def translate(error: BaseException) -> TidemarkError | None:
    """The Tidemark error for an error of Spark; None for an error that is not Spark's.

    Its text has nothing of what a message says.
    """
    if isinstance(error, TidemarkError):
        return error
    if not isinstance(error, Py4JError | PySparkException | Py4JNetworkError):
        return None
    causes = causes_of(error)
    if (ours := _of_ours("\n\n".join(causes))) is not None:
        return ours
    if isinstance(error, Py4JJavaError):
        own = an_expression_threw(error)
        causes = [masked_text(text, own=own) for text in causes]
    elif may_be_of_a_message(error):
        causes = [masked(error)]
    return _of_others(error, causes)


def _of_ours(text: str) -> TidemarkError | None:
    """The error of Tidemark that a worker has raised."""
    raised = [*_RAISED.finditer(text)][-1:]
    kind = getattr(errors, raised[0].group(1), None) if raised else None
    if raised and isinstance(kind, type) and issubclass(kind, TidemarkError):
        return kind(raised[0].group(2).strip())
    return RowsRecomputed(COMPUTED_AGAIN) if COMPUTED_AGAIN in text else None


def _of_others(error: BaseException, causes: list[str]) -> TidemarkError | None:
    text = "\n\n".join(causes)
    if of_kafka := _of_kafka(text):
        return of_kafka
    if is_full(text):
        return _full_disk(text)
    if denied := _WRITES_REFUSED.search(text):
        written = _WRITTEN.search(text)
        return lacks_rights(written.group(1) if written else _host(text), denied.group(1))
    if named := _of_spark(causes):
        return ProcessingFailed(named)
    lines = text.strip().splitlines() or [type(error).__name__]
    # A Python traceback ends with the error; all other texts begin with it.
    said = lines[-1 if isinstance(error, PythonException) else 0]
    first = causes[-1].strip().split("\n")[0]
    # Spark's own first line often ends with the first cause.
    if len(causes) == 1 or first in said:
        return ProcessingFailed(f"Spark failed: {said}")
    return ProcessingFailed(f"Spark failed: {said} Its cause: {first}")


def _of_spark(causes: list[str]) -> str | None:
    """The error where Spark itself has lost a task: for want of memory, or with the program that computed it."""
    ended = next(filter(None, map(what_ended, causes)), None)
    if ended is not None and ended[1] == _LOST_EXECUTOR:
        return (
            f"Spark has lost an executor {_line(ended[2])}. Its log says why. It may have had too little memory "
            "(spark.executor.memory, spark.executor.memoryOverhead)"
        )
    if any(one in _MEMORY for one in classes_in(causes)):
        said = next(text for text in causes if any(one in text for one in _MEMORY))
        named = re.search(r"(?:OutOfMemoryError): ?([^\n]*)", said)
        return (
            f"A Spark task had too little memory: {named[1] if named else said.partition(chr(10))[0]}. Give Spark more "
            "(spark.driver.memory with a local master, otherwise spark.executor.memory), read smaller windows "
            "(`limits`), or find the expression of the stream file that makes so much of a message"
        )
    return None


def _of_kafka(text: str) -> TidemarkError | None:
    """The error of Kafka's Java clients; None for a text of anything else."""
    if _LOST.search(text):
        why = _REASON.search(text)
        return OffsetsOutOfRange(
            f"Kafka no longer has all of the window's records: {_line(why.group(1) if why else text)}"
        )
    if refused := _NOT_LET_IN.search(text):
        return AuthenticationFailed(f"Kafka did not let Spark in: {_line(refused.group(1))}")
    if refused := _NOT_ALLOWED.search(text):
        return NotAuthorized(f"Kafka does not allow Spark to read: {_line(refused.group(1))}")
    if away := _AWAY.search(text):
        return Unreachable(f"Kafka did not answer Spark: {away.group(0).strip()}")
    return None


def _full_disk(text: str) -> DiskFull:
    """The error that names the full disk, as far as Spark does."""
    if written := _WRITTEN.search(text):
        return DiskFull.of(written.group(1))
    return DiskFull(
        f"A disk {_host(text)} is full, most likely that of Spark's scratch files (SPARK_LOCAL_DIRS or spark.local.dir there): "
        f"{NO_ROOM}. Make room there, and run it again"
    )


def _host(text: str) -> str:
    host = _HOST.search(text)
    return f"on host {host.group(1)}" if host else "on one of Spark's hosts"


def _line(text: str) -> str:
    return " ".join(text.split())
