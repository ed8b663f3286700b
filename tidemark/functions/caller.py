"""Calling a user's function for each message of a task. A failed message is retried when due, and delays no other."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidemark.functions import Function, Message, PermanentFailure, list_rows
from tidemark.functions.retries import Failures, Retries, RetryPolicy
from tidemark.functions.types import TypeMismatch, checked
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.types.fields import FieldType

# How many messages of a task, and how many bytes of them, may wait in memory for their retry. With more, the task waits.
MAX_WAITING = 2_000
MAX_WAITING_BYTES = 64 << 20
# How many messages, and how many bytes of them, one call takes; a single message may be larger.
MAX_AT_ONCE = 5_000
MAX_BYTES_AT_ONCE = 1 << 20
# The longest sleep between two looks at the fence.
_NAP_MS = 1_000
# How much of an exception's text is kept, in characters.
MAX_DETAIL = 1_000


@dataclass(frozen=True)
class Failed:
    """Why a message became a dead letter: the last exception's class and text, and how often and when the message failed."""

    error: str
    detail: str
    attempts: int
    first_at: int
    last_at: int

    @property
    def reason(self) -> str:
        """One text for all messages that failed alike, so that people can count them and redrive them together."""
        return f"raised {self.error}"


@dataclass(frozen=True)
class CallResult:
    """The outcome of a message: its rows (none: the message is skipped), or why it is invalid, or how it failed."""

    message: Message
    rows: tuple[tuple[Any, ...], ...] = ()
    invalid: str | None = None
    failed: Failed | None = None


class _Waiting:
    """The messages that wait for their retry, and about how many bytes those messages hold."""

    def __init__(self) -> None:
        self.bytes = 0
        self._messages: dict[Coordinate, Message] = {}

    def add(self, at: Coordinate, message: Message) -> None:
        self._messages[at] = message
        self.bytes += _size(message)

    def pop(self, at: Coordinate) -> Message:
        message = self._messages.pop(at)
        self.bytes -= _size(message)
        return message


def _size(message: Message) -> int:
    size = len(message.key or b"") + len(message.value or b"")
    for name, value in message.headers:
        size += len(name) + len(value or b"")
    return size


class CallFailure(NamedTuple):
    """How a call failed: the exception's class and text, and whether a retry cannot help (`for_good`)."""

    error: str
    detail: str
    for_good: bool = False


class Result(NamedTuple):
    """The result of a call: rows (none: the message is skipped), or why they do not fit the stream, or how the call failed."""

    rows: tuple[tuple[Any, ...], ...] = ()
    invalid: str | None = None
    raised: CallFailure | None = None


def result_of(function: Function, fields: Mapping[str, FieldType], message: Message) -> Result:
    """Call a user's function, whatever it does."""
    try:
        return Result(rows=tuple(checked(list_rows(function(message)), fields)))
    except TypeMismatch as problem:
        return Result(invalid=str(problem))
    # Exceptions that are meant to end a program too: they would end the task again and again.
    except BaseException as problem:
        return Result(raised=raised(problem))


@dataclass(frozen=True)
class Caller:
    """Calls a function. `now` gives milliseconds since 1970, `sleep` takes seconds. `look` is called again and again.

    `call` takes at most `at_once` messages, and gives the results of the first ones: at least one.
    """

    call: Callable[[Sequence[Message]], Sequence[Result]]
    policy: RetryPolicy
    now: Callable[[], int]
    sleep: Callable[[float], None] = time.sleep
    look: Callable[[], None] = lambda: None
    at_once: int = MAX_AT_ONCE

    def answers(self, messages: Iterable[Message]) -> Iterator[CallResult]:
        """An answer for each message, in order. Messages that failed come later, after the others that went on meanwhile."""
        retries = Retries(self.policy)
        waiting = _Waiting()
        source = iter(messages)
        ahead: Sequence[Message]
        while ahead := self._some(source):
            while ahead:
                yield from self._due(retries, waiting)
                while len(retries) >= MAX_WAITING or waiting.bytes >= MAX_WAITING_BYTES:
                    yield from self._wait(retries, waiting)
                ahead = yield from self._try(ahead, retries, waiting)
        while retries:
            yield from self._wait(retries, waiting)

    def _some(self, source: Iterator[Message]) -> list[Message]:
        """The next messages, as many as one call takes."""
        due: list[Message] = []
        size = 0
        for message in source:
            due.append(message)
            size += _size(message)
            if len(due) == self.at_once or size >= MAX_BYTES_AT_ONCE:
                break
        return due

    def _wait(self, retries: Retries, waiting: _Waiting) -> Iterator[CallResult]:
        """Sleep until the next message is due, but not longer than a nap. Then try the messages that are due."""
        pause = (retries.next_due_at() or 0) - self.now()
        if pause > 0:
            self.sleep(min(pause, _NAP_MS) / 1000)
        self.look()
        yield from self._due(retries, waiting)

    def _due(self, retries: Retries, waiting: _Waiting) -> Iterator[CallResult]:
        # A message without a delay is due again as soon as it fails. Only one round, so that it delays the others no longer.
        for _ in range(len(retries)):
            at = retries.next_to_retry(self.now())
            if at is None:
                return
            retries.retry_started(at)
            message = waiting.pop(at)
            (result,) = self._results([message])
            yield from self._noted(message, result, retries, waiting)

    def _try(
        self, messages: Sequence[Message], retries: Retries, waiting: _Waiting
    ) -> Generator[CallResult, None, Sequence[Message]]:
        """Yield the answers of the first messages, and return the rest."""
        results = self._results(messages)
        for message, result in zip(messages, results, strict=False):
            if result.raised is None:
                yield CallResult(message, result.rows, result.invalid)
            else:
                yield from self._noted(message, result, retries, waiting)
        return messages[len(results) :]

    def _results(self, messages: Sequence[Message]) -> Sequence[Result]:
        self.look()
        return self.call(messages)

    def _noted(self, message: Message, result: Result, retries: Retries, waiting: _Waiting) -> Iterator[CallResult]:
        at = Coordinate(TopicPartition(message.topic, message.partition, message.incarnation), message.offset)
        if result.raised is None:
            yield CallResult(message, result.rows, result.invalid)
        else:
            failures = retries.failed(at, self.now())
            if failures.due_at is not None and not result.raised.for_good:
                waiting.add(at, message)
                return
            yield CallResult(message, failed=_failed(result.raised, failures))
        retries.acked(at)


def _failed(why: CallFailure, failures: Failures) -> Failed:
    return Failed(why.error, why.detail, failures.number, failures.first_at, failures.last_at)


def raised(problem: BaseException) -> CallFailure:
    """The part of an exception that is kept: a name that is the same in every process, and some of its text."""
    kind = type(problem)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    # `format_exception_only` also takes exceptions whose `__str__` raises.
    said = "".join(traceback.format_exception_only(problem)).strip()
    detail = said[:MAX_DETAIL].encode(errors="backslashreplace").decode()
    return CallFailure(name, detail, isinstance(problem, PermanentFailure))


def steady_clock() -> Callable[[], int]:
    """Milliseconds since 1970 that never fall back, even when the machine's clock is set back."""
    base = time.time() - time.monotonic()
    return lambda: int((base + time.monotonic()) * 1000)
