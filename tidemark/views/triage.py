"""Which of many streams needs somebody first: one order for the page of all streams and `tidemark status`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from tidemark.streams.model import Stream
from tidemark.views.messages.payloads import visible
from tidemark.views.overview import Overview, worst_partitions
from tidemark.views.stream_line import StreamLine, line_of


class StreamState(StrEnum):
    """The state of a stream as a whole, from the best to the worst. Five of the words are those of its partitions."""

    OK = "OK"
    # No window yet: nobody knows whether it works.
    NEW = "NEW"
    # Its ingest is paused in Airflow: nothing is read until somebody resumes it.
    PAUSED = "PAUSED"
    WARNING = "WARNING"
    STALLED = "STALLED"
    # The ingest is past offsets that no window has read.
    HOLES = "HOLES"
    # A topic of its file does not exist.
    NO_TOPIC = "NO TOPIC"
    REWOUND = "REWOUND"
    # Kafka has deleted offsets that nobody has read.
    LOST = "LOST"
    STOPPED = "STOPPED"
    # Nobody can say: a server does not answer, or the ledger contradicts itself.
    UNREACHABLE = "UNREACHABLE"
    # Its file is wrong, so it has no DAGs and nothing reads it.
    INVALID = "INVALID"


_SEVERITY = list(StreamState)
Sort = Literal["worst", "name", "lag", "retention", "dead", "audit", "owner", "tags"]


@dataclass(frozen=True)
class StreamShown(Overview):
    """A stream's own page: its overview, and the state that it has among many."""

    state: StreamState


@dataclass(frozen=True)
class StreamNow:
    """A stream among many. `line` is None while it is not known, and `problem` says why, if that is known.

    While Kafka does not answer, `problem` says so, and `line` has what the ledger knows.

    `state` is None as long as nobody has asked its servers. `paused`: whether Airflow holds its ingest back, as far as is
    known here.
    """

    stream: str
    description: str
    owner: str | None
    tags: list[str]
    state: StreamState | None
    problem: str | None
    line: StreamLine | None
    paused: bool = False


@dataclass(frozen=True)
class OfState:
    """How many streams are in a state."""

    state: StreamState
    streams: int


@dataclass(frozen=True)
class StreamFilter:
    """Which streams somebody wants to see, and in which order. `words` is any part of a name, a description and so on."""

    words: str = ""
    state: str = ""
    tag: str = ""
    owner: str = ""
    sort: Sort = "worst"
    down: bool = False


def stream_now(
    stream: Stream, line: StreamLine | None, problem: str | None = None, *, paused: bool = False
) -> StreamNow:
    """A stream among many: as its line says, or with the problem that there is no line; with neither, nobody has asked.

    `paused`: whether Airflow holds its ingest back.
    """
    return StreamNow(
        stream=stream.name,
        description=visible(stream.description),
        owner=None if stream.owner is None else visible(stream.owner),
        tags=[visible(tag) for tag in stream.tags],
        state=state_of(line, paused=paused)
        if line is not None
        else None
        if problem is None
        else StreamState.UNREACHABLE,
        problem=problem if line is None else line.kafka_problem,
        line=line,
        paused=paused,
    )


def state_of(line: StreamLine, *, paused: bool = False) -> StreamState:
    """The worst that is true of a stream."""
    if line.kafka_problem is not None:
        return StreamState.UNREACHABLE
    states = [StreamState.NEW] if line.status is None else [StreamState(line.status.word)]
    if paused:
        states.append(StreamState.PAUSED)
    if line.missing_topics:
        states.append(StreamState.NO_TOPIC)
    if line.holes:
        states.append(StreamState.HOLES)
    if line.retention == "lost":
        states.append(StreamState.LOST)
    return max(states, key=_SEVERITY.index)


def with_state(shown: Overview, most: int, *, paused: bool = False) -> StreamShown:
    """An overview with at most this many partitions, the worst ones, and the state of the whole stream."""
    return StreamShown(**vars(worst_partitions(shown, most)), state=state_of(line_of(shown), paused=paused))


def counted(streams: Iterable[StreamNow]) -> list[OfState]:
    """The number of streams in each state that some are in, the worst state first."""
    numbers = Counter(stream.state for stream in streams if stream.state is not None)
    return [OfState(state, numbers[state]) for state in reversed(StreamState) if numbers[state]]


def matching(streams: Iterable[StreamNow], wanted: StreamFilter) -> list[StreamNow]:
    """The streams that somebody wants, of any state."""
    words = wanted.words.strip().lower()
    return [
        stream
        for stream in streams
        if words in _text(stream)
        and (not wanted.tag or wanted.tag in stream.tags)
        and (not wanted.owner or wanted.owner == stream.owner)
    ]


def in_order(streams: Iterable[StreamNow], wanted: StreamFilter) -> list[StreamNow]:
    """The streams of the wanted state in the wanted order. Equal ones are in the order of `worst`, unknown ones are last."""
    chosen = [stream for stream in streams if not wanted.state or stream.state == wanted.state]
    chosen.sort(key=_worst)
    key = _KEYS[wanted.sort]
    known = [stream for stream in chosen if stream.state is not None]
    return [*sorted(known, key=key, reverse=wanted.down), *(stream for stream in chosen if stream.state is None)]


def _text(stream: StreamNow) -> str:
    status = stream.line.status if stream.line else None
    parts = (
        stream.stream,
        stream.description,
        stream.owner,
        *stream.tags,
        stream.state,
        stream.problem,
        status.rule if status else None,
    )
    return "\n".join(part for part in parts if part).lower()


def _worst(stream: StreamNow) -> tuple[int, float, int, str]:
    """By the state, then by how long the oldest unread message waits, then by the number of unread offsets."""
    severity = -1 if stream.state is None else _SEVERITY.index(stream.state)
    lag = (stream.line.lag or 0) if stream.line else 0
    since = stream.line.unread_since if stream.line and lag else None
    return -severity, float("inf") if since is None else since, -lag, stream.stream


def _lag(stream: StreamNow) -> int:
    return -1 if stream.line is None or stream.line.lag is None else stream.line.lag


def _retention(stream: StreamNow) -> float:
    if stream.line is None:
        return float("inf")
    if stream.line.retention == "lost":
        return -1
    return float("inf") if stream.line.retention_ms is None else stream.line.retention_ms


def _audit(stream: StreamNow) -> int:
    """Findings first, then streams without an audit, then clean ones."""
    audit = stream.line.audit if stream.line else None
    return 1 if audit is None else 2 * audit.clean


_KEYS: dict[Sort, Callable[[StreamNow], Any]] = {
    "worst": _worst,
    "name": lambda stream: stream.stream,
    "lag": lambda stream: -_lag(stream),
    "retention": _retention,
    "dead": lambda stream: -(stream.line.dead_letters if stream.line else -1),
    "audit": _audit,
    "owner": lambda stream: (stream.owner is None, stream.owner or ""),
    "tags": lambda stream: (not stream.tags, stream.tags),
}
