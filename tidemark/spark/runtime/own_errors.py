"""Whose an error of Spark is: a message's own, or of a server, a disk, memory, or Spark itself.

An error is a message's own if an expression of Spark's threw it, whatever its class: the innermost of Spark's own places in
its stack trace is an expression, or code that Spark has generated from some. Other errors may be a message's unless their
class says that they are not. What ends a task, and a want of memory, is never a message's. `Trial.java`, which tries
messages in a task, judges by the lists of this module.

Nothing here looks at the text of an error for what it is about: a message could forge it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, PythonException

from tidemark.spark.runtime.single_computation import COMPUTED_AGAIN

# How classes of errors begin that no message causes, whatever threw them.
NEVER = (
    "ExecutorLostFailure",
    "FetchFailed",
    "TaskKilled",
    "TaskCommitDenied",
    "java.lang.InternalError",
    "java.lang.InterruptedException",
    "java.lang.OutOfMemoryError",
    "java.lang.ThreadDeath",
    "java.lang.UnknownError",
    "org.apache.spark.TaskKilledException",
    "org.apache.spark.memory.",
    "org.apache.spark.shuffle.",
)
# Those that no message causes, unless an expression threw them.
OF_SERVERS = (
    "java.io.FileNotFoundException",
    "java.lang.ClassNotFoundException",
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.Socket",
    "java.net.UnknownHostException",
    "java.nio.file.",
    "java.util.concurrent.TimeoutException",
    "org.apache.hadoop.",
    "org.apache.kafka.",
    "org.apache.spark.SparkFileAlreadyExistsException",
    "org.apache.spark.sql.kafka010.",
)
# Generated code has a class of this package, too.
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
SPARKS = "org.apache.spark."
# Places of Spark's that expressions and all others call.
CALLED_BY_ALL = (
    "org.apache.spark.Spark",
    "org.apache.spark.sql.catalyst.",
    "org.apache.spark.sql.errors.",
    "org.apache.spark.sql.types.",
    "org.apache.spark.types.",
    "org.apache.spark.unsafe.",
    "org.apache.spark.util.",
)
# What ended a task, as the error of its job says it. Only Spark's own words stand before, so no message can write this.
_STAGE_FAILED = "org.apache.spark.SparkException: Job aborted due to stage failure"
_ENDED = re.compile(r"\(TID \d+\) \(\S+ executor \S+\): ([\w.$]+)([^\n]*)")
# Java's words for an array or a text that is longer than any may be, whatever memory there is. Older versions have none.
_BEYOND_ARRAYS = re.compile(r"java\.lang\.OutOfMemoryError(?:: (?:Requested array size|Required )[^\n]*)?\s*(?:\n|\Z)")
# How the SQL states begin of what lacks memory or disks, or was cancelled.
_OF_RESOURCES = ("53", "57", "58")
# Ends a loop when an error is among its own causes: no other has as many.
_MAX_CAUSES = 20


def may_be_of_a_message(error: BaseException) -> bool:
    """Whether an error of Spark's may come from evaluating the rows of some message. Only trying them tells."""
    if not isinstance(error, PySparkException | Py4JJavaError) or isinstance(error, AnalysisException):
        return False
    if any(COMPUTED_AGAIN in text for text in causes_of(error)):
        return False
    thrown = _thrown(error)
    if isinstance(error, PySparkException):
        lacking = (error.getSqlState() or "").startswith(_OF_RESOURCES)
        return isinstance(error, PythonException) or not lacking or an_expression_threw(error)
    for number, one in enumerate(thrown):
        classes = [*classes_in([str(one)])]
        if number + 1 < len(thrown):
            # What has ended a task comes next, with its stack trace.
            classes = classes[:1]
        if any(name.startswith(NEVER) for name in classes):
            return False
        if any(name.startswith(OF_SERVERS) for name in classes) and not _of_an_expression(one):
            return False
    return True


def an_expression_threw(error: BaseException) -> bool:
    """Whether one of Spark's expressions threw an error, or a cause of it."""
    return any(map(_of_an_expression, _thrown(error)))


def _of_an_expression(thrown: Any) -> bool:
    for place in thrown.getStackTrace():
        name = str(place.getClassName())
        if name.startswith(EXPRESSIONS):
            return True
        if name.startswith(SPARKS) and not name.startswith(CALLED_BY_ALL):
            return False
    return False


def classes_in(causes: Iterable[str]) -> Iterator[str]:
    """The classes of an error and of its causes; also of what has ended a task. Without what no memory is enough for."""
    for text in causes:
        if not _BEYOND_ARRAYS.match(text):
            yield text.partition(":")[0].strip()
        if (ended := what_ended(text)) and not _BEYOND_ARRAYS.match(f"{ended[1]}{ended[2]}"):
            yield ended[1]


def what_ended(text: str) -> re.Match[str] | None:
    """The class and the text of what has ended a task, in the text of a job's error."""
    return _ENDED.search(text) if text.startswith(_STAGE_FAILED) else None


def first_cause(error: BaseException) -> str:
    """The text of what began it: an error's first cause, or what has ended the task."""
    *_, last = causes_of(error)
    ended = what_ended(last)
    return "".join(ended.groups()) if ended else last


def causes_of(error: BaseException) -> list[str]:
    """An error's text, then those of its causes, the first cause last. Only there does a failed write say why."""
    return [str(one) for one in _thrown(error)] if isinstance(error, Py4JJavaError) else [str(error)]


def _thrown(error: BaseException) -> list[Any]:
    """An error of Java, and its causes."""
    one: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    found: list[Any] = []
    while one is not None and len(found) < _MAX_CAUSES:
        found.append(one)
        one = one.getCause()
    return found
