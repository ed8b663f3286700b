"""Asking the servers of streams. A server that is away makes no request wait for long.

Airflow's API serves the heartbeats of its tasks. So the page holds neither the API's event loop nor a thread of its pool.
The page asks a stream in threads of its own, once at a time for all viewers. Streams with the same servers share some
threads, so a server that is away keeps no other threads busy. A viewer waits with a limit, and gets an answer at once while
a server is known to be away.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidemark.errors import StaleLedger, TidemarkError, Unreachable, WrongUse
from tidemark.streams.loading import StreamFile
from tidemark_plugin.settings import Settings

log = logging.getLogger(__name__)
Found = TypeVar("Found")
# A question about a stream whose answer is kept for all viewers.
Question = Callable[[StreamFile], dict[str, Any]]

OK, WRONG, STALE, SERVER_AWAY, TOO_LATE, INTERNAL = 200, 400, 409, 503, 504, 500
# Long questions that nobody has had the answer of yet, of all streams; and how long an answer waits for who has asked.
_MOST_LONG = 32
_LONG_SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """The answer of a stream's servers, or why there is none: an HTTP status with the fields of its JSON."""

    status: int
    fields: Mapping[str, Any]
    until: float = 0.0


@dataclass
class _Asked:
    """The newest answer for one stream file, and whether its servers are being asked."""

    digest: str
    answer: Answer | None = None
    flight: Future[Answer] | None = None
    began: float = 0.0


@dataclass
class Asking:
    """`ask` is the first question about a stream. Questions wait for servers, and raise TidemarkError.

    `reach` is the first question of those that need the ledger alone: they are answered while Kafka is away.
    """

    ask: Question
    settings: Settings
    reach: Question | None = None
    _streams: dict[tuple[str, Question], _Asked] = field(default_factory=dict)
    _threads: dict[tuple[str, ...], ThreadPoolExecutor] = field(default_factory=dict)
    _long: OrderedDict[tuple[str, str, str], tuple[float, Future[Any]]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def answer(
        self, file: StreamFile, ask: Question | None = None, *others: str, ledger_only: bool = False
    ) -> Answer:
        """The newest answer, or an answer that says there is none yet. Comes within `page_wait_seconds`.

        `ask` is another question than the first one. It is the same function at each call. With `ledger_only` it asks the
        ledger, and not Kafka. `others` names further servers that it asks, as people read them.
        """
        ledger_only = ledger_only or (ask is not None and ask == self.reach)
        ask = ask or self.ask
        servers = self._servers(file, ledger_only=ledger_only)
        with self._lock:
            asked = self._streams.get((file.stream.name, ask))
            if asked is None or asked.digest != file.digest:
                asked = self._streams[file.stream.name, ask] = _Asked(file.digest)
            now = time.monotonic()
            if asked.answer is not None and now < asked.answer.until:
                return asked.answer
            if asked.flight is None:
                asked.began = now
                asked.flight = self._threads_of(servers).submit(self._asked, file, ask, asked)
            flight, left = asked.flight, asked.began + self.settings.page_wait_seconds - now
        if left > 0:
            # `wait` cancels nothing: a time-out, or a closed browser, does not end what others wait for.
            await asyncio.wait({asyncio.wrap_future(flight)}, timeout=left)
        if flight.done():
            return flight.result()
        return self._too_late(servers, others)

    async def once(
        self, file: StreamFile, question: Callable[[], Found], *others: str, ledger_only: bool = False
    ) -> Answer | Found:
        """The answer to a question about a stream that is not kept for others, or an answer that says why there is none.

        The question waits for the same servers as `answer`, in the same threads; with `ledger_only` for the ledger alone. It
        is only asked when they answer. `others` names further servers that it asks, as people read them.
        """
        first = self._first(ledger_only=ledger_only)
        answer = await self.answer(file, first)
        if answer.status != OK:
            return answer
        servers = self._servers(file, ledger_only=ledger_only)
        with self._lock:
            flight = self._threads_of(servers).submit(_told, question, file)
        await asyncio.wait({asyncio.wrap_future(flight)}, timeout=self.settings.page_wait_seconds)
        if flight.done():
            return flight.result()
        flight.cancel()
        return self._too_late(servers, others)

    async def long(
        self, file: StreamFile, key: str, question: Callable[[], Found], *others: str, ledger_only: bool = False
    ) -> Answer | Found:
        """As `once`, for a question that may take longer than a viewer waits: whoever asks again by `key` waits for the same.

        Long questions have a thread of their own for each set of servers, so that they hold up no other question. `others`
        names further servers that it waits for, as people read them.
        """
        first = self._first(ledger_only=ledger_only)
        answer = await self.answer(file, first)
        if answer.status != OK:
            return answer
        servers = self._servers(file, ledger_only=ledger_only)
        place, now = (file.stream.name, file.digest, key), time.monotonic()
        with self._lock:
            asked, flight = self._long.pop(place, (0.0, None))
            if flight is None or (flight.done() and now - asked > _LONG_SECONDS):
                flight = self._threads_of((*servers, "long", *others), threads=1).submit(_told, question, file)
            self._long[place] = (now, flight)
            while len(self._long) > _MOST_LONG:
                self._long.popitem(last=False)[1][1].cancel()
        await asyncio.wait({asyncio.wrap_future(flight)}, timeout=self.settings.page_wait_seconds)
        if not flight.done():
            return self._too_late(servers, others)
        with self._lock:
            self._long.pop(place, None)
        found: Answer | Found = flight.result()
        return found

    def _first(self, *, ledger_only: bool) -> Question:
        return self.reach if ledger_only and self.reach is not None else self.ask

    def _servers(self, file: StreamFile, *, ledger_only: bool) -> tuple[str, ...]:
        """The servers that a question is asked of, by the names of their connections."""
        ledger = file.stream.ledger
        found = f"{ledger.server} ({ledger.connection})"
        return (found,) if ledger_only else (found, kafka_of(file))

    def _too_late(self, servers: tuple[str, ...], others: Sequence[str] = ()) -> Answer:
        *first, last = dict.fromkeys([*servers, *others])
        named = f"{', '.join(first)} and {last}" if first else last
        return Answer(
            TOO_LATE,
            {
                "detail": f"{named} did not answer within {self.settings.page_wait_seconds:g} s; "
                "they are still being asked"
            },
        )

    def _threads_of(self, shared: tuple[str, ...], threads: int | None = None) -> ThreadPoolExecutor:
        if shared not in self._threads:
            self._threads[shared] = ThreadPoolExecutor(
                threads or self.settings.page_threads, thread_name_prefix=f"tidemark page {' '.join(shared)}"
            )
        return self._threads[shared]

    def _asked(self, file: StreamFile, ask: Question, asked: _Asked) -> Answer:
        fresh = self.settings.page_cache_seconds
        try:
            status, fields = OK, ask(file)
        except Exception as problem:
            status, fields = _failed(file, problem)
            if isinstance(problem, Unreachable):
                fresh = self.settings.page_retry_seconds
        with self._lock:
            now = time.monotonic()
            if now - asked.began > self.settings.page_wait_seconds:
                # No viewer waits any more: the answer stays for viewers who look again.
                fresh = max(fresh, self.settings.page_retry_seconds)
            asked.answer = Answer(status, fields, now + fresh)
            asked.flight = None
            return asked.answer


def kafka_of(file: StreamFile) -> str:
    """The Kafka that a stream reads, as people read it."""
    return f"Kafka ({file.stream.source.kafka})"


def dead_letters_of(file: StreamFile) -> str:
    """The server of a stream's dead letters, as people read it."""
    return f"HBase ({file.stream.dead_letters.hbase})"


def sinks_of(file: StreamFile) -> list[str]:
    """The servers of a stream's sinks that are none of the others, by their connections."""
    stream = file.stream
    others = {stream.ledger.connection, stream.source.kafka, stream.dead_letters.hbase}
    return [f"the sinks' {one}" for one in sorted({one.connection for one in stream.sinks} - others)]


def _failed(file: StreamFile, problem: Exception) -> tuple[int, dict[str, Any]]:
    """Why there is no answer, for people: an HTTP status with the fields of its JSON."""
    if isinstance(problem, WrongUse):
        return WRONG, {"detail": str(problem)}
    if isinstance(problem, StaleLedger):
        return STALE, {"detail": str(problem)}
    if isinstance(problem, TidemarkError):
        return SERVER_AWAY, {"detail": f"{type(problem).__name__}: {problem}"}
    # The error's text may be about a connection. Only those who run Airflow may read it, in the log.
    log.error("the page cannot show the stream %s", file.stream.name, exc_info=problem)
    return INTERNAL, {"detail": f"internal error, see the log of Airflow's API: {type(problem).__name__}"}


def _told(question: Callable[[], Found], file: StreamFile) -> Answer | Found:
    try:
        return question()
    except Exception as problem:
        return Answer(*_failed(file, problem))
