"""When a failed message is retried. The rules are those of Storm's ExponentialBackoffMsgRetryManager.

Times are milliseconds since 1970, and come in as arguments. One rule differs: a limit of 0 means no retry, while Storm
takes 0 as no limit.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace
from typing import Protocol

from tidemark.offsets.coordinates import Coordinate


class RetryPolicy(Protocol):
    """How long to wait before a message is retried. A stream file names a policy of the user's by its entry point."""

    def delay_ms(self, failures: int, elapsed_ms: int) -> int | None:
        """The wait after this many failures in a row, the first of them `elapsed_ms` ago. None for no more retries."""
        ...


@dataclass(frozen=True)
class ExponentialBackoff:
    """Waits that grow by a factor up to a maximum, for at most `limit` retries (-1: any number) and `max_seconds`."""

    initial_delay_ms: int = 100
    multiplier: float = 2.0
    max_delay_ms: int = 60_000
    limit: int = 3
    max_seconds: float | None = None

    def delay_ms(self, failures: int, elapsed_ms: int) -> int | None:
        if 0 <= self.limit < failures:
            return None
        delay = self._delay_ms(failures)
        if self.max_seconds is not None and elapsed_ms + delay > self.max_seconds * 1000:
            return None
        return delay

    def _delay_ms(self, failures: int) -> int:
        try:
            return int(min(self.initial_delay_ms * self.multiplier ** (failures - 1), self.max_delay_ms))
        except OverflowError:
            return min(self.initial_delay_ms, 1) * self.max_delay_ms


class NotWaiting(Exception):
    """Raised when a retry is started for a message that has not failed, or whose retry has started already."""


@dataclass(frozen=True)
class Failures:
    """The failures of a message in a row: number, first and last time, and when it is due again (None for never)."""

    number: int
    first_at: int
    last_at: int
    due_at: int | None


class Retries:
    """The messages that have failed, and which message to retry next."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures: dict[Coordinate, Failures] = {}
        # Due time, then a number that orders equal due times. `_first` drops entries that no longer hold.
        self._queue: list[tuple[int, int, Coordinate]] = []
        self._waiting: dict[Coordinate, int] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """How many messages wait for their retry."""
        return len(self._waiting)

    def failed(self, message: Coordinate, now: int) -> Failures:
        """Note that a message has failed. The result says when the message is due again, if ever."""
        delay = self._next(message, now)
        self._failures[message] = delay
        self._waiting.pop(message, None)
        if delay.due_at is not None:
            self._waiting[message] = number = next(self._numbers)
            heapq.heappush(self._queue, (delay.due_at, number, message))
        return delay

    def acked(self, message: Coordinate) -> None:
        """Forget a message that has been processed or given up."""
        self._failures.pop(message, None)
        self._waiting.pop(message, None)

    def retry_started(self, message: Coordinate) -> None:
        """Note that a message's retry begins. Raises NotWaiting, with nothing changed."""
        if message not in self._waiting:
            raise NotWaiting(f"{message} does not wait for a retry")
        del self._waiting[message]

    def next_to_retry(self, now: int) -> Coordinate | None:
        """The message that has been due for longest; None when none is due."""
        first = self._first()
        return first[2] if first is not None and first[0] <= now else None

    def next_due_at(self) -> int | None:
        """When the next message is due; None when none waits."""
        first = self._first()
        return first[0] if first is not None else None

    def _next(self, message: Coordinate, now: int) -> Failures:
        before = self._failures.get(message)
        failures = (
            Failures(1, now, now, None) if before is None else replace(before, number=before.number + 1, last_at=now)
        )
        delay = self._policy.delay_ms(failures.number, now - failures.first_at)
        return replace(failures, due_at=None if delay is None else now + delay)

    def _first(self) -> tuple[int, int, Coordinate] | None:
        while self._queue and self._waiting.get(self._queue[0][2]) != self._queue[0][1]:
            heapq.heappop(self._queue)
        return self._queue[0] if self._queue else None
