"""Calling a function of one's own for each message of a task: what failed is tried again when due, and holds up nobody."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.coordinates import Coordinate
from tidemark.function_fields import Unfit, checked
from tidemark.functions import Function, Message, PermanentFailure, rows_of
from tidemark.ranges import TopicPartition
from tidemark.retries import Failures, Retries, RetryPolicy

if TYPE_CHECKING:
    from tidemark.streams.schemes import FieldType

# As many messages of a task, and as many bytes of them, may wait for their retry in memory before it reads on.
MOST_WAITING = 2_000
MOST_WAITING_BYTES = 64 << 20
# The longest sleep between two looks at the fence.
_NAP_MS = 1_000
# Of what an exception says, in characters.
MOST_DETAIL = 1_000


@dataclass(frozen=True)
class Failed:
    """Why a message is given up: the class of the last exception, what it said, and how often and when it failed."""

    error: str
    detail: str
    attempts: int
    first_at: int
    last_at: int

    @property
    def reason(self) -> str:
        """The same for all messages that failed alike, so that people can count them and redrive them together."""
        return f"raised {self.error}"


@dataclass(frozen=True)
class Answer:
    """What became of a message: rows (none: it is skipped), or why it is invalid, or how it failed."""

    message: Message
    rows: tuple[tuple[Any, ...], ...] = ()
    invalid: str | None = None
    failed: Failed | None = None


class _Waiting:
    """The messages that wait for their retry, and about how many bytes they hold."""

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
    headers = (len(name) + len(value or b"") for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + sum(headers)


@dataclass(frozen=True)
class Caller:
    """Calls a function. `now` gives milliseconds since 1970, `sleep` takes seconds, `look` is called again and again."""

    function: Function
    fields: Mapping[str, FieldType]
    policy: RetryPolicy
    now: Callable[[], int]
    sleep: Callable[[float], None] = time.sleep
    look: Callable[[], None] = lambda: None

    def answers(self, messages: Iterable[Message]) -> Iterator[Answer]:
        """An answer for each message: in their order, but that one which failed comes behind those that went on meanwhile."""
        retries = Retries(self.policy)
        waiting = _Waiting()
        for message in messages:
            yield from self._due(retries, waiting)
            while len(retries) >= MOST_WAITING or waiting.bytes >= MOST_WAITING_BYTES:
                yield from self._wait(retries, waiting)
            yield from self._try(message, retries, waiting)
        while retries:
            yield from self._wait(retries, waiting)

    def _wait(self, retries: Retries, waiting: _Waiting) -> Iterator[Answer]:
        """Sleep until the next message is due, or for a while, and then try what is due."""
        pause = (retries.next_due_at() or 0) - self.now()
        if pause > 0:
            self.sleep(min(pause, _NAP_MS) / 1000)
        self.look()
        yield from self._due(retries, waiting)

    def _due(self, retries: Retries, waiting: _Waiting) -> Iterator[Answer]:
        # What fails again at once is due again at once: the others are not held up by it for more than one round.
        for _ in range(len(retries)):
            at = retries.next_to_retry(self.now())
            if at is None:
                return
            retries.retry_started(at)
            yield from self._try(waiting.pop(at), retries, waiting)

    def _try(self, message: Message, retries: Retries, waiting: _Waiting) -> Iterator[Answer]:
        self.look()
        at = Coordinate(TopicPartition(message.topic, message.partition, message.incarnation), message.offset)
        try:
            rows = rows_of(self.function(message))
        # A function may call sys.exit, and even that must not end the task again and again.
        except (Exception, SystemExit) as problem:
            failures = retries.failed(at, self.now())
            if failures.due_at is not None and not isinstance(problem, PermanentFailure):
                waiting.add(at, message)
                return
            yield Answer(message, failed=_failed(problem, failures))
        else:
            yield self._answer(message, rows)
        retries.acked(at)

    def _answer(self, message: Message, rows: list[Any]) -> Answer:
        try:
            return Answer(message, rows=tuple(checked(rows, self.fields)))
        except Unfit as problem:
            return Answer(message, invalid=str(problem))


def _failed(problem: BaseException, failures: Failures) -> Failed:
    kind = type(problem)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    # Also what has no text, or fails when it is asked for it.
    said = "".join(traceback.format_exception_only(problem)).strip()
    detail = said[:MOST_DETAIL].encode(errors="backslashreplace").decode()
    return Failed(name, detail, failures.number, failures.first_at, failures.last_at)


def steady_clock() -> Callable[[], int]:
    """Milliseconds since 1970 that never fall back, whatever somebody sets the machine's clock to."""
    base = time.time() - time.monotonic()
    return lambda: int((base + time.monotonic()) * 1000)
