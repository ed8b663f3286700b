"""Errors of the JVM, as py4j gives them to Python."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

STAGE_FAILED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 8.0 failed 1 times, most recent "
    "failure: Lost task 0.0 in stage 8.0 (TID 8) (localhost executor driver): {}\n\nDriver stacktrace:"
)


class Thrown:
    """Stands in for an exception in the JVM, of which py4j asks the text and the cause there."""

    _target_id = "o42"

    def __init__(self, text: str, *causes: str) -> None:
        self.text = text
        self.causes = causes

    def getCause(self) -> Thrown | None:  # noqa: N802 (as in Java)
        return Thrown(*self.causes) if self.causes else None

    def __str__(self) -> str:
        return self.text


def in_the_jvm(text: str, *causes: str) -> Py4JJavaError:
    return Py4JJavaError("An error occurred while calling o42.save.\n", Thrown(text, *causes))
