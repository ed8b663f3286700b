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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from tidemark.errors import StaleLedger, TidemarkError, Unreachable, WrongUse
from tidemark.offsets.time_limit import limited
from tidemark.plugin.settings import Settings
from tidemark.plugin.thread_pool import EVERYBODY, FairThreadPool
from tidemark.streams.loading import StreamFile

log = logging.getLogger(__name__)
T = TypeVar("T")
SinkType = Literal["usual", "long", "apart"]
# A question about a stream whose answer is kept for all viewers.
Question = Callable[[StreamFile], Any]

OK, WRONG, STALE, TOO_MANY, SERVER_AWAY, TOO_LATE, INTERNAL = 200, 400, 409, 429, 503, 504, 500
# Long questions that are being answered, of all streams; and how long an answer waits for who has asked.
_MAX_LONG = 32
_LONG_SECONDS = 30.0
# Of one person: long questions, and usual ones, that are being answered. A page asks several at once.
MAX_LONG_OF_ONE, MAX_OF_ONE = 2, 16
# And what asks no server: texts of people, which are read apart from all else.
MAX_APART_OF_ONE = 4
# How long what was asked beside is new enough.
_BESIDE_SECONDS = 60.0
# Threads for what takes long, for each set of servers, of which one person keeps one busy.
_LONG_THREADS = 4


@dataclass(frozen=True)
class LedgerAnswer:
    """An answer from the ledger alone, and why Kafka has said nothing."""

    found: Any
    problem: str


@dataclass(frozen=True)
class Answer:
    """The answer of a stream's servers, or why there is none: an HTTP status with a sentence.

    `away` says why an answer had to do without Kafka.
    """

    status: int
    found: Any = None
    detail: str = ""
    until: float = 0.0
    away: str = ""


@dataclass
class _Asked:
    """The newest answer for one stream file, and whether its servers are being asked."""

    digest: str
    answer: Answer | None = None
    flight: Future[Answer] | None = None
    began: float = 0.0
    # When the servers have last begun to be asked, and when they have last answered. None while that has not happened.
    asks_since: float | None = None
    answered: float | None = None


@dataclass
class CachedQueries:
    """`ask` is the first question about a stream. Questions wait for servers, and raise TidemarkError.

    `reach` is the first question of those that need the ledger alone: they are answered while Kafka is away.
    """

    ask: Question
    settings: Settings
    reach: Question | None = None
    _streams: dict[tuple[str, Question], _Asked] = field(default_factory=dict)
    _threads: dict[tuple[str, ...], FairThreadPool] = field(default_factory=dict)
    _long: OrderedDict[tuple[str, str, str], tuple[float, Future[Any]]] = field(default_factory=OrderedDict)
    # Servers that did not answer when they were last asked, with what was said of them.
    _away: dict[tuple[str, ...], Answer] = field(default_factory=dict)
    # When a question was asked beside, by stream and question.
    _beside: dict[tuple[str, Question], tuple[float, Future[Any]]] = field(default_factory=dict)
    # Who waits for what, by the person and the kind of question.
    _of_one: dict[tuple[str, SinkType], set[Future[Any]]] = field(default_factory=dict)
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
            asked, now = self._noted_stream(file, ask), time.monotonic()
            if asked.answer is not None and now < asked.answer.until:
                return asked.answer
            flight = asked.flight or self._begin(file, ask, asked, servers)
            left = asked.began + self.settings.page_wait_seconds - now
        if left > 0:
            # `wait` cancels nothing: a time-out, or a closed browser, does not end what others wait for.
            await asyncio.wait({asyncio.wrap_future(flight)}, timeout=left)
        if flight.done():
            return flight.result()
        return self._too_late(servers, others)

    def look(self, files: Iterable[StreamFile], older: float) -> list[Future[Answer]]:
        """Have the first question asked of each of many streams whose answer is `older` than this many seconds. Waits for none.

        Returns the questions whose answers are worth waiting for: of streams that have none, or one of twice that age. Each set
        of servers has threads of its own: streams whose servers are away hold up no others.
        """
        with self._lock:
            now = time.monotonic()
            flights = []
            for file in files:
                asked = self._noted_stream(file, self.ask)
                age = float("inf") if asked.answered is None else now - asked.answered
                fresh = asked.answer is not None and (now < asked.answer.until or age < older)
                if asked.flight is None and not fresh:
                    self._begin(file, self.ask, asked, self._servers(file, ledger_only=False))
                if asked.flight is not None and age > 2 * older:
                    flights.append(asked.flight)
            return flights

    def known(self, file: StreamFile) -> Answer | None:
        """The newest answer to the first question, however old; None while there is none yet. Asks nothing.

        A stream whose servers are being asked for too long, or did not answer another stream just now, has no answer.
        """
        servers = self._servers(file, ledger_only=False)
        with self._lock:
            asked = self._streams.get((file.stream.name, self.ask))
            if asked is None or asked.digest != file.digest:
                return None
            waits = asked.flight is not None and asked.asks_since is not None
            if waits and time.monotonic() - (asked.asks_since or 0) > self.settings.page_wait_seconds:
                return self._too_late(servers)
            if asked.flight is not None and servers in self._away:
                # An answer without Kafka says more.
                return asked.answer if asked.answer is not None and asked.answer.away else self._away[servers]
            return asked.answer

    async def once(
        self,
        file: StreamFile,
        question: Callable[[], T],
        *others: str,
        ledger_only: bool = False,
        by: str = "",
    ) -> Answer | T:
        """The answer to a question about a stream that is not kept for others, or an answer that says why there is none.

        The question waits for the same servers as `answer`, in the same threads; with `ledger_only` for the ledger alone. It
        is only asked when they answer. `others` names further servers that it asks, as people read them. `by` is who asks:
        the questions of one person at a time are limited.
        """
        if (refused := await self._unanswered(file, ledger_only=ledger_only)) is not None:
            return refused
        servers = self._servers(file, ledger_only=ledger_only)
        with self._lock:
            if (refused := self._too_many(by, MAX_OF_ONE, "usual")) is not None:
                return refused
            flight = self._noted(by, self._threads_of(servers).submit(by, lambda: _told(question, file)), "usual")
        await asyncio.wait({asyncio.wrap_future(flight)}, timeout=self.settings.page_wait_seconds)
        if flight.done():
            result: Answer | T = flight.result()
            return result
        flight.cancel()
        return self._too_late(servers, others)

    async def apart(self, question: Callable[[], T], *, by: str) -> Answer | T:
        """The answer to a question that asks no server and takes a while to compute, as `once`.

        A person's next one waits until the one before is answered.
        """
        with self._lock:
            if (refused := self._too_many(by, MAX_APART_OF_ONE, "apart")) is not None:
                return refused
            flight = self._noted(by, self._long_threads_of("apart").submit(by, question), "apart")
        await asyncio.wait({asyncio.wrap_future(flight)}, timeout=self.settings.page_wait_seconds)
        if flight.done():
            answer: Answer | T = flight.result()
            return answer
        flight.cancel()
        return Answer(TOO_LATE, detail=f"no answer within {self.settings.page_wait_seconds:g} s; ask again later")

    async def long(
        self,
        file: StreamFile,
        key: str,
        question: Callable[[], T],
        *others: str,
        ledger_only: bool = False,
        by: str = "",
    ) -> Answer | T:
        """As `once`, for a question that may take longer than a viewer waits: whoever asks again by `key` waits for the same.

        Long questions have threads of their own for each set of servers, so that they hold up no other question; one person,
        `by`, keeps one of them busy. A question that somebody waits for is never given up for another one: with too many,
        the new one is refused. `others` names further servers that it waits for, as people read them. It must write nothing:
        after `page_long_seconds` it is given up, with an error.
        """
        if (refused := await self._unanswered(file, ledger_only=ledger_only)) is not None:
            return refused
        servers = self._servers(file, ledger_only=ledger_only)
        place, now = (file.stream.name, file.digest, key), time.monotonic()
        with self._lock:
            asked, flight = self._long.pop(place, (0.0, None))
            if flight is None or (flight.done() and now - asked > _LONG_SECONDS):
                for gone in [one for one, (at, had) in self._long.items() if had.done() and now - at > _LONG_SECONDS]:
                    del self._long[gone]
                if (refused := self._too_many(by, MAX_LONG_OF_ONE, "long")) is not None:
                    return refused
                threads = self._long_threads_of(*servers, "long", *others)
                flight = self._noted(by, threads.submit(by, lambda: _told(self._limited(question), file)), "long")
            self._long[place] = (now, flight)
            while len(self._long) > _MAX_LONG and (had := self._answered()) is not None:
                del self._long[had]
        await asyncio.wait({asyncio.wrap_future(flight)}, timeout=self.settings.page_wait_seconds)
        if not flight.done():
            return self._too_late(servers, others)
        with self._lock:
            self._long.pop(place, None)
        result: Answer | T = flight.result()
        return result

    def beside(self, file: StreamFile, ask: Question) -> None:
        """Have a question asked for which nobody waits, unless that was done just now: one after the other, of all streams."""
        place, now = (file.stream.name, ask), time.monotonic()
        with self._lock:
            began, flight = self._beside.get(place, (0.0, None))
            if flight is None or (flight.done() and now - began > _BESIDE_SECONDS):
                told = self._turns(("beside",), 1, 1).submit(EVERYBODY, lambda: _told(lambda: ask(file), file))
                self._beside[place] = (now, told)

    def _noted_stream(self, file: StreamFile, ask: Question) -> _Asked:
        asked = self._streams.get((file.stream.name, ask))
        if asked is None or asked.digest != file.digest:
            asked = self._streams[file.stream.name, ask] = _Asked(file.digest)
        return asked

    def _begin(self, file: StreamFile, ask: Question, asked: _Asked, servers: tuple[str, ...]) -> Future[Answer]:
        asked.began, asked.asks_since = time.monotonic(), None
        asked.flight = self._threads_of(servers).submit(EVERYBODY, lambda: self._asked(file, ask, asked, servers))
        return asked.flight

    def _answered(self) -> tuple[str, str, str] | None:
        """The long question whose answer has waited longest for who has asked."""
        return next((place for place, (_, flight) in self._long.items() if flight.done()), None)

    def _too_many(self, by: str, most: int, kind: SinkType) -> Answer | None:
        """The refusal of one more question, if this person, or all persons together, have too many already."""
        still = {who: {one for one in flights if not one.done()} for who, flights in self._of_one.items()}
        self._of_one = {who: flights for who, flights in still.items() if flights}
        if len(self._of_one.get((by, kind), ())) >= most:
            said = f"{most} questions of yours are still being answered; wait for their answers, and ask again"
            return Answer(TOO_MANY, detail=said)
        if (
            kind != "usual"
            and sum(len(flights) for (_, one), flights in self._of_one.items() if one == kind) >= _MAX_LONG
        ):
            said = f"{_MAX_LONG} long questions of others are being answered; ask again in a while"
            return Answer(TOO_MANY, detail=said)
        return None

    def _noted(self, by: str, flight: Future[Any], kind: SinkType) -> Future[Any]:
        self._of_one.setdefault((by, kind), set()).add(flight)
        return flight

    async def _unanswered(self, file: StreamFile, *, ledger_only: bool) -> Answer | None:
        """Why a stream's servers are not asked further questions now; None if they answer."""
        answer = await self.answer(file, self._first(ledger_only=ledger_only))
        if answer.status == OK and answer.away and not ledger_only:
            return Answer(SERVER_AWAY, detail=answer.away)
        return None if answer.status == OK else answer

    def _first(self, *, ledger_only: bool) -> Question:
        return self.reach if ledger_only and self.reach is not None else self.ask

    def _servers(self, file: StreamFile, *, ledger_only: bool) -> tuple[str, ...]:
        """The servers that a question is asked of, by the names of their connections."""
        ledger = file.stream.ledger
        of_ledger = f"{ledger.server} ({ledger.connection})"
        return (of_ledger,) if ledger_only else (of_ledger, kafka_of(file))

    def _too_late(self, servers: tuple[str, ...], others: Sequence[str] = ()) -> Answer:
        *first, last = dict.fromkeys([*servers, *others])
        named = f"{', '.join(first)} and {last}" if first else last
        said = f"{named} did not answer within {self.settings.page_wait_seconds:g} s; they are still being asked"
        return Answer(TOO_LATE, detail=said)

    def _threads_of(self, shared: tuple[str, ...]) -> FairThreadPool:
        threads = self.settings.page_threads
        return self._turns(shared, threads, max(1, threads - 1))

    def _long_threads_of(self, *shared: str) -> FairThreadPool:
        return self._turns(shared, _LONG_THREADS, 1)

    def _turns(self, shared: tuple[str, ...], threads: int, of_one: int) -> FairThreadPool:
        if shared not in self._threads:
            self._threads[shared] = FairThreadPool(threads, of_one, f"tidemark page {' '.join(shared)}")
        return self._threads[shared]

    def _limited(self, question: Callable[[], T]) -> Callable[[], T]:
        """The question with its bound in time."""
        seconds = self.settings.page_long_seconds

        def asked() -> T:
            said = (
                f"this took more than {seconds:g} s and was given up: ask for less at once (fewer offsets, fewer windows, a "
                "shorter time), or ask the command line, which has no such limit; a plan is what --dry-run says there"
            )
            with limited(seconds, said):
                return question()

        return asked

    def _asked(self, file: StreamFile, ask: Question, asked: _Asked, servers: tuple[str, ...]) -> Answer:
        fresh, away = self.settings.page_cache_seconds, False
        asked.asks_since = time.monotonic()
        try:
            value = ask(file)
            answer = (
                Answer(OK, value.found, away=value.problem) if isinstance(value, LedgerAnswer) else Answer(OK, value)
            )
            if away := bool(answer.away):
                fresh = self.settings.page_retry_seconds
        except Exception as problem:
            answer = _failed(file, problem)
            if away := isinstance(problem, Unreachable):
                fresh = self.settings.page_retry_seconds
        with self._lock:
            now = asked.answered = time.monotonic()
            if away:
                self._away[servers] = Answer(SERVER_AWAY, detail=answer.away or answer.detail)
            else:
                self._away.pop(servers, None)
            if now - asked.began > self.settings.page_wait_seconds:
                # No viewer waits any more: the answer stays for viewers who look again.
                fresh = max(fresh, self.settings.page_retry_seconds)
            asked.answer = replace(answer, until=now + fresh)
            asked.flight = None
            return asked.answer


def kafka_of(file: StreamFile) -> str:
    """The Kafka that a stream reads, as people read it."""
    return f"Kafka ({file.stream.source.kafka})"


def dead_letters_of(file: StreamFile) -> str:
    """The server of a stream's dead letters, as people read it."""
    dead_letters = file.stream.dead_letters
    return f"{dead_letters.server} ({dead_letters.connection})"


def sinks_of(file: StreamFile) -> list[str]:
    """The servers of a stream's sinks that are none of the others, by their connections."""
    stream = file.stream
    others = {stream.ledger.connection, stream.source.kafka, stream.dead_letters.connection}
    return [f"the sinks' {connection}" for connection in sorted({sink.connection for sink in stream.sinks} - others)]


def _failed(file: StreamFile, problem: Exception) -> Answer:
    """Why there is no answer, for people."""
    if isinstance(problem, WrongUse):
        return Answer(WRONG, detail=str(problem))
    if isinstance(problem, StaleLedger):
        return Answer(STALE, detail=str(problem))
    if isinstance(problem, TidemarkError):
        return Answer(SERVER_AWAY, detail=f"{type(problem).__name__}: {problem}")
    # The error's text may be about a connection. Only those who run Airflow may read it, in the log.
    log.error("the page cannot show the stream %s", file.stream.name, exc_info=problem)
    return Answer(INTERNAL, detail=f"internal error, see the log of Airflow's API: {type(problem).__name__}")


def _told(question: Callable[[], T], file: StreamFile) -> Answer | T:
    try:
        return question()
    except Exception as problem:
        return _failed(file, problem)
