"""Errors of the JVM, as py4j gives them to Python."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

STAGE_FAILED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 8.0 failed 1 times, most recent "
    "failure: Lost task 0.0 in stage 8.0 (TID 8) (localhost executor driver): {}\n\nDriver stacktrace:"
)


class Place:
    """Stands in for a place in a stack trace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def getClassName(self) -> str:  # noqa: N802 (as in Java)
        return self.name


class Thrown:
    """Stands in for an exception in the JVM, of which py4j asks the text, the cause and the places there."""

    _target_id = "o42"

    def __init__(self, text: str, *causes: str) -> None:
        self.text = text
        self.causes = causes
        self.places: tuple[str, ...] = ()

    def getCause(self) -> Thrown | None:  # noqa: N802 (as in Java)
        if not self.causes:
            return None
        cause = Thrown(*self.causes)
        cause.places = self.places
        return cause

    def getStackTrace(self) -> list[Place]:  # noqa: N802 (as in Java)
        # Those of the first cause.
        return [] if self.causes else [Place(one) for one in self.places]

    def __str__(self) -> str:
        return self.text


def in_the_jvm(text: str, *causes: str, places: tuple[str, ...] = ()) -> Py4JJavaError:
    """`places`: the classes in the stack trace of the first cause, the innermost first."""
    thrown = Thrown(text, *causes)
    thrown.places = places
    return Py4JJavaError("An error occurred while calling o42.save.\n", thrown)
