"""Which of many streams needs somebody first: one order for the page of all streams and `tidemark status`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tidemark.streams.model import Stream
from tidemark.views.messages.payloads import visible
from tidemark.views.overview import Overview, worst_partitions
from tidemark.views.scheduling import Scheduling
from tidemark.views.state_words import SEVERITY, StateReason, StreamState
from tidemark.views.states import invalid, reasons_of, state_of, unseen
from tidemark.views.stream_line import StreamLine, line_of

Sort = Literal["worst", "name", "lag", "retention", "dead", "audit", "owner", "tags"]


@dataclass(frozen=True)
class StreamShown(Overview):
    """A stream's own page: its overview, the state that it has among many, and what is wrong, the worst first."""

    state: StreamState
    reasons: list[StateReason]
    scheduling: Scheduling | None


@dataclass(frozen=True)
class StreamNow:
    """A stream among many. `line` is None while it is not known, and `problem` says why, if that is known.

    While Kafka does not answer, `problem` says so, and `line` has what the ledger knows.

    `state` is None as long as nobody has asked its servers; `reasons` are all that is wrong, the worst first. `scheduling`:
    what Airflow knows of its ingest, where that is known.
    """

    stream: str
    description: str
    owner: str | None
    tags: list[str]
    state: StreamState | None
    problem: str | None
    line: StreamLine | None
    reasons: list[StateReason] = field(default_factory=list)
    scheduling: Scheduling | None = None
    # Whether Airflow has no DAGs of it: its file cannot be used, or was not read. Then it has no page either.
    is_unread: bool = False


@dataclass(frozen=True)
class StateCount:
    """How many streams are in a state."""

    state: StreamState
    streams: int


@dataclass(frozen=True)
class StreamFilter:
    """Which streams somebody wants to see, and in which order. `words` is any part of a name, a description and so on.

    `down`: descending. The order `worst` has the worst first, and with `down` last; `audit` has findings first.
    """

    words: str = ""
    state: str = ""
    tag: str = ""
    owner: str = ""
    sort: Sort = "worst"
    down: bool = False


def stream_now(
    stream: Stream, line: StreamLine | None, problem: str | None = None, scheduling: Scheduling | None = None
) -> StreamNow:
    """A stream among many: as its line says, or with the problem that there is no line; with neither, nobody has asked."""
    reasons = [] if line is None and problem is None else _reasons(line, problem or "", scheduling)
    return StreamNow(
        stream=stream.name,
        description=visible(stream.description),
        owner=None if stream.owner is None else visible(stream.owner),
        tags=[visible(tag) for tag in stream.tags],
        state=None if line is None and problem is None else state_of(reasons),
        problem=problem if line is None else line.kafka_problem,
        line=line,
        reasons=reasons,
        scheduling=scheduling,
    )


def invalid_stream(name: str, problem: str) -> StreamNow:
    """A stream whose file cannot be used."""
    return StreamNow(name, "", None, [], StreamState.INVALID, problem, None, invalid(problem), is_unread=True)


def stream_without_dag(stream: Stream, problem: str) -> StreamNow:
    """A stream that Airflow does not know, although its file can be used."""
    said = StateReason(
        StreamState.NO_DAG,
        "unknown to Airflow",
        problem,
        "Airflow's list of import errors, and the DAG processor's log; or a DAG file of your own that calls build_dags",
    )
    return replace(stream_now(stream, None), state=StreamState.NO_DAG, problem=problem, reasons=[said], is_unread=True)


def _reasons(line: StreamLine | None, problem: str, scheduling: Scheduling | None) -> list[StateReason]:
    return unseen(problem, scheduling) if line is None else reasons_of(line, scheduling)


def with_state(shown: Overview, most: int, scheduling: Scheduling | None = None) -> StreamShown:
    """An overview with at most this many partitions, the worst ones, and the state of the whole stream."""
    reasons = reasons_of(line_of(shown), scheduling)
    return StreamShown(
        **vars(worst_partitions(shown, most)), state=state_of(reasons), reasons=reasons, scheduling=scheduling
    )


def counted(streams: Iterable[StreamNow]) -> list[StateCount]:
    """The number of streams in each state that some are in, the worst state first."""
    numbers = Counter(stream.state for stream in streams if stream.state is not None)
    return [StateCount(state, numbers[state]) for state in reversed(StreamState) if numbers[state]]


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
    """The streams of the wanted state in the wanted order, ascending, or with `down` descending.

    Equal ones are in the order of `worst`. Those of which the value is unknown come last either way, and those that nobody has
    asked after them.
    """
    chosen = [stream for stream in streams if not wanted.state or stream.state == wanted.state]
    chosen.sort(key=_worst)
    asked = [stream for stream in chosen if stream.state is not None]
    key = _KEYS[wanted.sort]
    return [
        *sorted((stream for stream in asked if key(stream) is not None), key=key, reverse=wanted.down),
        *(stream for stream in asked if key(stream) is None),
        *(stream for stream in chosen if stream.state is None),
    ]


def _text(stream: StreamNow) -> str:
    parts = (
        stream.stream,
        stream.description,
        stream.owner,
        *stream.tags,
        stream.state,
        stream.problem,
        *(word for reason in stream.reasons for word in (reason.state, reason.brief, reason.sentence)),
        stream.line.status.rule if stream.line and stream.line.status else None,
    )
    return "\n".join(part for part in parts if part).lower()


def _worst(stream: StreamNow) -> tuple[int, int, float, int, str]:
    """By the state and its number, then by how long the oldest unread message waits, then by the number of unread offsets."""
    severity = -1 if stream.state is None else SEVERITY.index(stream.state)
    number = stream.reasons[0].number if stream.reasons else 0
    lag = (stream.line.lag or 0) if stream.line else 0
    since = stream.line.unread_since if stream.line and lag else None
    return -severity, -number, float("inf") if since is None else since, -lag, stream.stream


def _lag(stream: StreamNow) -> int | None:
    return stream.line.lag if stream.line else None


def _retention(stream: StreamNow) -> float | None:
    """Until the next deletion; what is deleted already comes first."""
    if stream.line is None:
        return None
    return -1 if stream.line.retention == "lost" else stream.line.retention_ms


def _dead(stream: StreamNow) -> int | None:
    return stream.line.dead_letters if stream.line and stream.line.windows else None


def _audit(stream: StreamNow) -> int | None:
    """Findings first, then clean ones."""
    return int(stream.line.audit.clean) if stream.line and stream.line.audit else None


_KEYS: dict[Sort, Callable[[StreamNow], Any]] = {
    "worst": _worst,
    "name": lambda stream: stream.stream,
    "lag": _lag,
    "retention": _retention,
    "dead": _dead,
    "audit": _audit,
    "owner": lambda stream: stream.owner or None,
    "tags": lambda stream: stream.tags or None,
}
