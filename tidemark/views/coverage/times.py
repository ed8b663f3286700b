"""The coverage picture by event time: for each partition, what has become of the messages of each hour or day."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import WrongUse
from tidemark.ledger.records import INGEST
from tidemark.runs.live.kafka_now import topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import check_same
from tidemark.views.coverage.bars import MAX_BARS, BarQuery, PartitionOfBar, seen_of
from tidemark.views.coverage.picture import OffsetState, stretches
from tidemark.views.coverage.window_index import WindowIndex
from tidemark.views.values import From, Number

Step = Literal["hour", "day"]
STEP_MS: dict[Step, int] = {"hour": 3_600_000, "day": 86_400_000}
MAX_COLUMNS = 192
_USUAL_COLUMNS: dict[Step, int] = {"hour": 48, "day": 31}
# The largest time, in ms, that a `datetime` has.
LAST_MS = 253_402_300_799_999
_ORDER = list(OffsetState)


@dataclass(frozen=True)
class TimeRequest:
    """The columns, hours or days that begin from `since` on and before `until` (ms since 1970; None: the newest ones).

    And the rows: `count` partitions from number `first` on, or one partition.
    """

    step: Step = "hour"
    since: int | None = None
    until: int | None = None
    first: int = 0
    count: int = MAX_BARS
    partition: str | None = None


@dataclass(frozen=True)
class CellInTime:
    """Offsets of a column, with the most remarkable state among them, and how many offsets have each state."""

    column: int
    state: str
    start: From
    until: Number
    states: dict[str, Number]


@dataclass(frozen=True)
class RowInTime:
    partition: str
    topic: str
    number: int
    cells: list[CellInTime]


@dataclass(frozen=True)
class CoverageInTime:
    """Columns of `step_ms` from `since` on, until `until` (ms since 1970). A column without messages has no cell.

    Messages are divided by the first offset at or after a column's beginning, as a replay of a time divides them. What Kafka
    has deleted is not here: only Kafka knows where its times lie.
    """

    since: int
    until: int
    step_ms: int
    partitions: int
    of: int
    first: int
    rows: list[RowInTime]


@dataclass(frozen=True)
class Grid:
    """The offsets at which the columns begin: by (topic, partition), and None where no message is at or after a time."""

    asked: TimeRequest
    since: int
    until: int
    logs: Mapping[str, TopicLog]
    begins: list[Mapping[tuple[str, int], int | None]]

    @property
    def step(self) -> int:
        return STEP_MS[self.asked.step]


def grid_of(opened: OpenStream, asked: TimeRequest) -> Grid:
    """Ask Kafka where the columns begin. Raises WrongUse, Unreachable, and Conflict for a topic that was recreated."""
    step = STEP_MS[asked.step]
    until = _up(_newest(opened) + 1 if asked.until is None else asked.until, step)
    since = until - step * _USUAL_COLUMNS[asked.step] if asked.since is None else asked.since // step * step
    since = max(0, since)
    columns = (until - since) // step
    if not 0 < columns <= MAX_COLUMNS:
        raise WrongUse(f"since and until: expected 1 to {MAX_COLUMNS} columns of one {asked.step} each, not {columns}")
    logs = opened.log.topics(topics_now(opened), opened.stream.source.isolation)
    isolation = opened.stream.source.isolation
    times = [since + number * step for number in range(columns + 1)]
    begins = _between(times, lambda time: opened.log.first_at_or_after(logs, time, isolation))
    check_same(opened, logs)
    return Grid(asked, since, until, logs, begins)


def _up(time: int, step: int) -> int:
    return -(-time // step) * step


def _newest(opened: OpenStream) -> int:
    """The newest time that the ingest's last window has read, unless that lies in the future; else now."""
    now = opened.ledger.clock()
    head = opened.ledger.head(INGEST)
    last = head.head.last if head else None
    times = [one.last_timestamp for one in (last.tallies if last else ()) if one.last_timestamp is not None]
    return min(now, max(times, default=now))


Begins = Mapping[tuple[str, int], int | None]


def _between(times: list[int], ask: Callable[[int], Begins]) -> list[Begins]:
    """The answer at each time. Between two times with the same answer, nothing is asked: a later time has a later place."""
    known = {0: ask(times[0]), len(times) - 1: ask(times[-1])}
    left = [(0, len(times) - 1)]
    while left:
        low, high = left.pop()
        if known[low] == known[high]:
            known |= dict.fromkeys(range(low, high), known[low])
        elif high - low > 1:
            middle = (low + high) // 2
            known[middle] = ask(times[middle])
            left += [(low, middle), (middle, high)]
    return [known[number] for number in range(len(times))]


def coverage_times(opened: OpenStream, index: WindowIndex, grid: Grid) -> CoverageInTime:
    """The states of the messages of each column, by the windows that the index has. Raises the ledger's errors."""
    asked = grid.asked
    seen = seen_of(opened, index, grid.logs, BarQuery(1, asked.first, asked.count, asked.partition))
    return CoverageInTime(
        since=grid.since,
        until=grid.until,
        step_ms=grid.step,
        partitions=seen.partitions,
        of=seen.of,
        first=asked.first,
        rows=[RowInTime(str(one.at), one.at.topic, one.at.partition, _cells(index, one, grid)) for one in seen.chosen],
    )


def _cells(index: WindowIndex, seen: PartitionOfBar, grid: Grid) -> list[CellInTime]:
    place, log = (seen.at.topic, seen.at.partition), seen.log
    edges = [log.end if (at := begins.get(place)) is None else at for begins in grid.begins]
    cells = []
    for column, (start, until) in enumerate(itertools.pairwise(edges)):
        counted: Counter[OffsetState] = Counter()
        for one in stretches(log, index.kinds, start, until) if start < until else ():
            counted[one.state] += one.until - one.start
        if counted:
            states = {one.value: counted[one] for one in _ORDER if counted[one]}
            cells.append(CellInTime(column, next(iter(states)), start, until, states))
    return cells
