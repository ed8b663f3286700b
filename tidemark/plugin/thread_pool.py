"""Threads in which people take turns: the slow questions of one person hold up no other's."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
# Who asks for all viewers: may keep every thread busy.
EVERYBODY = ""


class FairThreadPool:
    """This many threads, of which one person keeps at most `of_one` busy. Who waits is served person by person, in rotation."""

    def __init__(self, threads: int, of_one: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._of_one = of_one
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._busy: Counter[str] = Counter()
        self._lock = threading.Lock()

    def submit(self, by: str, question: Callable[[], T]) -> Future[T]:
        """Answer a question of a person when it is this person's turn. The future may be cancelled until then."""
        flight: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(by, deque()).append((flight, question))
        self._threads.submit(self._work)
        return flight

    def _work(self) -> None:
        while (turn := self._next()) is not None:
            by, flight, question = turn
            try:
                if flight.set_running_or_notify_cancel():
                    _answer(flight, question)
            finally:
                # Whoever had to wait for this one is served by this thread: none else comes back for them.
                with self._lock:
                    self._busy[by] -= 1

    def _next(self) -> tuple[str, Future[Any], Callable[[], Any]] | None:
        with self._lock:
            for by, asked in self._waiting.items():
                if by != EVERYBODY and self._busy[by] >= self._of_one:
                    continue
                flight, question = asked.popleft()
                if asked:
                    self._waiting.move_to_end(by)
                else:
                    del self._waiting[by]
                self._busy += Counter([by])
                return by, flight, question
        return None


def _answer(flight: Future[Any], question: Callable[[], Any]) -> None:
    try:
        answer = question()
    except BaseException as problem:  # whoever waits for the answer is told, as by an executor
        flight.set_exception(problem)
    else:
        flight.set_result(answer)
