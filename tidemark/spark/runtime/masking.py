"""What may be said of an error of Spark in logs, notes, pages and errors: nothing that a message may have said.

Whoever sees the log of a task need not be allowed to see messages, and no erasure removes anything from it. So only classes,
conditions and places in code are shown. The text of an error is shown where its class says that it is of a server, a disk or
Spark's own work. A dead letter keeps the text: it holds the message anyway.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException, PythonException

from tidemark.spark.runtime.compiling import compiled, new_instance
from tidemark.spark.runtime.own_errors import CALLED_BY_ALL, EXPRESSIONS, NEVER, OF_SERVERS, an_expression_threw

# Errors whose text is Java's or Spark's own up to the next error that it names.
_GO_ON = (
    "java.util.concurrent.CompletionException",
    "java.util.concurrent.ExecutionException",
    # In the words of the system, as "No space left on device".
    *(f"java.io.IOException: {os.strerror(number)}" for number in errno.errorcode),
)
# Those whose text Spark has written, of a task that has ended.
_OF_TASKS = tuple(one for one in NEVER if not one.startswith("java."))
# Classes of errors whose text no message gives, as far as their class says it.
_SHOWN = (*NEVER, *OF_SERVERS, *_GO_ON)
# Of a scheduler or a worker, unless a condition follows. Java knows it too.
_OF_SPARK, _OF_CONDITION = "org.apache.spark.SparkException: ", "org.apache.spark.SparkException: ["
# Conditions whose text names a file, or memory.
_OF_FILES = ("TASK_WRITE_FAILED", "FAILED_READ_FILE", "PATH_NOT_FOUND", "UNABLE_TO_ACQUIRE_MEMORY")
# A class of errors, with the condition that Spark gives, or a condition alone. The same words for Python and Java.
_ERROR = (
    r"(?:[A-Za-z_][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable|Death|Failure)[\w$]*(?:: ?(?:\[[A-Z][A-Z0-9_.]+\])?)?"
    r"|\[[A-Z][A-Z0-9_.]{3,}\]|Traceback \(most recent call last\):"
)
_FINDS = re.compile(_ERROR)
_LEFT_OUT = "(the rest may hold what a message says, and is left out)"
# The end of a traceback of Python, and where it was raised.
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+), in ([\w<>]+)', re.MULTILINE)
# Errors of Python whose text is of a server or of the system.
_OF_SERVERS = (
    "thriftpy2.",
    "kafka.errors.",
    "kazoo.",
    "OSError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "BrokenPipeError",
    "PermissionError",
    "FileNotFoundError",
    "TimeoutError",
    "tidemark.errors.",
)
_JAVA = Path(__file__).with_name("MaskedLog.java")


def masked(error: BaseException) -> str:
    """What may be said of an error, in one line."""
    if isinstance(error, Py4JJavaError):
        return _line(masked_text(str(error.java_exception), own=an_expression_threw(error)))
    if isinstance(error, PythonException):
        return masked_python(str(error))
    if isinstance(error, AnalysisException) or not isinstance(error, PySparkException):
        return _line(str(error))
    return error.getCondition() or type(error).__name__


def masked_text(text: str, *, own: bool = False) -> str:
    """A text of Spark's, up to where it may have the words of a message. `own`: an expression threw its error."""
    shown = _GO_ON if own else _SHOWN
    for found in _FINDS.finditer(text):
        word, rest = found[0], text[found.start() :]
        if rest.startswith("Traceback"):
            return f"{text[: found.start()]}{masked_python(rest)}"
        if rest.startswith(_OF_SPARK) and not rest.startswith(_OF_CONDITION):
            continue
        if rest.startswith(shown) or any(f"[{one}" in word for one in _OF_FILES):
            continue
        if rest.startswith("org.apache.spark.api.python.PythonException"):
            continue
        end = text[found.end() :]
        return f"{text[: found.end()].rstrip(': ')}{f' {_LEFT_OUT}' if end.strip() else ''}"
    return text


def masked_python(text: str) -> str:
    """The class of an error from its traceback, and the place in code that raised it."""
    lines = text.strip().splitlines() or [""]
    last = next((one for one in reversed(lines) if _RAISED.match(one) and not one.startswith("SQLSTATE")), "")
    raised = _RAISED.match(last)
    name = raised[1] if raised else "an exception"
    if name.startswith(_OF_SERVERS):
        return last
    *_, place = [None, *_FRAME.finditer(text)]
    return f"{name} in {place[3]} ({place[1]}:{place[2]})" if place else name


def _line(text: str) -> str:
    return text.strip().partition("\n")[0]


class MaskedErrors(logging.Filter):
    """Masks errors of Spark in whatever is logged, with their tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                masked(one) if isinstance(one, Py4JError | PySparkException) else one for one in record.args
            )
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text, record.exc_info = formatted(record.exc_info[1]).rstrip("\n"), None
        return True


def formatted(error: BaseException) -> str:
    """A traceback, with the errors of Spark in it masked."""
    shown = traceback.TracebackException.from_exception(error)
    _mask(shown, error)
    return "".join(shown.format())


def _mask(shown: Any, error: BaseException) -> None:
    if isinstance(error, Py4JError | PySparkException):
        shown._str = masked(error)  # noqa: SLF001
    for name in ("__cause__", "__context__"):
        below, of = getattr(shown, name), getattr(error, name)
        if below is not None and of is not None:
            _mask(below, of)


@lru_cache(maxsize=4)
def masked_log(context: SparkContext) -> Any:
    """What masks the log of a JVM in which it is run: that of the driver, and those of the executors that read messages."""
    shown = ("\n".join(_SHOWN), "\n".join((*_OF_TASKS, *_GO_ON)))
    return new_instance(compiled(context, _JAVA), _ERROR, *shown, EXPRESSIONS, "\n".join(CALLED_BY_ALL), _LEFT_OUT)
