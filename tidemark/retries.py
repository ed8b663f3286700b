"""When a message that failed is tried again, decided as Storm's ExponentialBackoffMsgRetryManager decides it.

Times are milliseconds since 1970 and come in as arguments. It differs from Storm in the limit: 0 means no retry, where Storm
takes it for no limit.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace
from typing import Protocol

from tidemark.coordinates import Coordinate
from tidemark.ranges import TopicPartition


class RetryPolicy(Protocol):
    """How long to wait before a message is tried again. Stream files name one of their own by its entry point."""

    def delay_ms(self, failures: int, elapsed_ms: int) -> int | None:
        """The wait after so many failures in a row, the first of them `elapsed_ms` ago; None: it is not tried again."""
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
    """Raised when the retry of a message is started that has not failed, or whose retry was started already."""


@dataclass(frozen=True)
class Failures:
    """How often a message has failed without success between, when first and last, and when it is due again (None: never)."""

    number: int
    first_at: int
    last_at: int
    due_at: int | None


class Retries:
    """The messages that have failed, and which of them is to be tried next."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures: dict[Coordinate, Failures] = {}
        # Due time, and a number that keeps those apart that are due together; entries that no longer hold are passed over.
        self._queue: list[tuple[int, int, Coordinate]] = []
        self._waiting: dict[Coordinate, int] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """How many messages wait for their retry."""
        return len(self._waiting)

    def failed(self, message: Coordinate, now: int) -> Failures:
        """Note that a message has failed; what it gives says when it is due again, or that it is not tried any more."""
        found = self._next(message, now)
        self._failures[message] = found
        self._waiting.pop(message, None)
        if found.due_at is not None:
            self._waiting[message] = number = next(self._numbers)
            heapq.heappush(self._queue, (found.due_at, number, message))
        return found

    def retry_further(self, message: Coordinate, now: int) -> bool:
        """Whether a message that fails now would be tried again."""
        return self._next(message, now).due_at is not None

    def acked(self, message: Coordinate) -> None:
        """Forget a message: it has been processed, or was given up."""
        self._failures.pop(message, None)
        self._waiting.pop(message, None)

    def retry_started(self, message: Coordinate) -> None:
        """Note that a message is being tried again. Raises NotWaiting, with nothing changed."""
        if message not in self._waiting:
            raise NotWaiting(f"{message} does not wait for a retry")
        del self._waiting[message]

    def should_retry(self, message: Coordinate, now: int) -> bool:
        """Whether a message waits for its retry, and is due."""
        return message in self._waiting and (self._failures[message].due_at or 0) <= now

    def next_to_retry(self, now: int) -> Coordinate | None:
        """The message that has been due for longest; None when none is due."""
        first = self._first()
        return first[2] if first is not None and first[0] <= now else None

    def next_due_at(self) -> int | None:
        """When the next message is due; None when none waits."""
        first = self._first()
        return first[0] if first is not None else None

    def clear_before(self, partition: TopicPartition, log_start: int) -> set[Coordinate]:
        """Forget the messages of a partition that Kafka no longer holds; gives those that were forgotten."""
        gone = {one for one in self._failures if one.partition == partition and one.offset < log_start}
        for one in gone:
            self.acked(one)
        return gone

    def _next(self, message: Coordinate, now: int) -> Failures:
        before = self._failures.get(message)
        found = (
            Failures(1, now, now, None) if before is None else replace(before, number=before.number + 1, last_at=now)
        )
        delay = self._policy.delay_ms(found.number, now - found.first_at)
        return replace(found, due_at=None if delay is None else now + delay)

    def _first(self) -> tuple[int, int, Coordinate] | None:
        while self._queue and self._waiting.get(self._queue[0][2]) != self._queue[0][1]:
            heapq.heappop(self._queue)
        return self._queue[0] if self._queue else None
