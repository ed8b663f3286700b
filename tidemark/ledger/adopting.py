"""A history out of the results, for a ledger that is lost whole: rows and dead letters say which attempt wrote them.

Each row has the lane, the number and the generation of the attempt that wrote it. So the newest attempt at each window that
has left anything becomes a record. This is a guess in three places, and an audit against Kafka has to prove the results:

- An attempt that was at work and never committed has left rows too. They count from now on, if its window was its lane's
  last one. The positions that other layouts have kept say where the ingest really was: rows beyond them are left out.
- Where a window has stored nothing, as where a transform skipped all messages, nothing says that it was read.
- What was counted is lost: how many messages each window read, which were skipped, lost or erased, who asked, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tidemark.ledger.book import Book, record_key
from tidemark.ledger.codec import digest, encode
from tidemark.ledger.draft import DraftStore
from tidemark.ledger.records import (
    INGEST,
    Attempt,
    LaneKind,
    Receipt,
    Record,
    SelectionRef,
    SinkReceipt,
    Window,
    WindowRange,
    positions,
)
from tidemark.ledger.register import new_token
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

RUN = "tidemark ledger rebuild"
REASON = "the record of this window was lost, and made again from the results"
UNKNOWN = "unknown"


class Left(NamedTuple):
    """A row or dead letter, whether it counts or not: where its message is, and which attempt has written it."""

    at: TopicPartition
    offset: int
    lane: str
    seq: int
    generation: int


@dataclass
class Found:
    """What one attempt at a window has left, by place: the name of a sink, or None for the dead letters."""

    lane: str
    seq: int
    generation: int
    places: dict[str | None, RangeSet] = field(default_factory=dict)

    @property
    def offsets(self) -> RangeSet:
        return RangeSet(one for part in self.places.values() for one in part)


@dataclass(frozen=True)
class Results:
    """What is known of the stream besides its rows.

    `sinks` are those whose rows were looked at, in the order of the stream file. `until` is where the ingest was, by
    another layout, for the partitions that this layout knows. `ids` has the ids of the topics as Kafka has them now.
    `receipt` says where an attempt has written.
    """

    sinks: Sequence[str]
    until: Mapping[tuple[str, int], int]
    ids: Mapping[str, str]
    isolation: str
    receipt: Callable[[Found], tuple[tuple[SinkReceipt, ...], SinkReceipt | None]]


def newest_attempts(left: Iterable[tuple[str | None, Left]]) -> list[Found]:
    """The newest attempt at each window that has left anything, by lane and number. `left` has rows with their place."""
    intervals: dict[tuple[str, int, int], dict[str | None, dict[TopicPartition, list[list[int]]]]] = {}
    for place, one in left:
        here = intervals.setdefault((one.lane, one.seq, one.generation), {}).setdefault(place, {})
        known = here.setdefault(one.at, [])
        # Sinks give rows that lie beside each other one after another, in all their parts.
        if known and known[-1][0] <= one.offset <= known[-1][1]:
            known[-1][1] = max(known[-1][1], one.offset + 1)
        else:
            known.append([one.offset, one.offset + 1])
    newest: dict[tuple[str, int], int] = {}
    for lane, seq, generation in intervals:
        newest[lane, seq] = max(generation, newest.get((lane, seq), 0))
    return [
        Found(
            lane,
            seq,
            generation,
            {
                place: RangeSet(OffsetRange(at, *pair) for at, pairs in parts.items() for pair in pairs)
                for place, parts in intervals[lane, seq, generation].items()
            },
        )
        for (lane, seq), generation in sorted(newest.items())
    ]


def adopted(book: Book, found: Iterable[Found], results: Results) -> Book:
    """A ledger in memory with a history that makes these rows count. It has no heads and no register yet."""
    draft = Book(DraftStore(book.store.max_value_bytes), book.stream, clock=book.clock)
    lanes: dict[str, list[Found]] = {}
    newest: dict[str, int] = {}
    used: set[int] = set()
    for one in found:
        lanes.setdefault(one.lane, []).append(one)
        used.add(one.generation)
        for at in one.offsets.partitions:
            newest[at.topic] = max(at.incarnation, newest.get(at.topic, 1))
    for lane, attempts in lanes.items():
        if lane == INGEST:
            windows = _of_ingest(attempts, results, newest)
        else:
            windows = _of_selection(draft, attempts, results)
        _put(draft, lane, windows, results, newest, used)
    return draft


@dataclass
class _Covers:
    """What a window covers: ranges, or a selection within them. Without an attempt, it has left nothing."""

    attempt: Found | None
    ranges: dict[TopicPartition, tuple[int, int]]
    selection: SelectionRef | None = None
    sinks: tuple[str, ...] | None = None


def _of_ingest(attempts: Sequence[Found], results: Results, newest: Mapping[str, int]) -> list[_Covers]:
    """The ingest has read every offset from its first row on. Windows of which nothing is left cover nothing.

    A window covers what lies before the first row of the next one, too. Rows that a replay has written there since have
    a higher generation than this window, and may have a lower one than the next.
    """
    windows = [_Covers(None, {}) for _ in range(max(one.seq for one in attempts))]
    firsts = _first_offsets(attempts)
    # Other layouts know the newest incarnation of a topic alone.
    ends = {TopicPartition(topic, number, newest.get(topic, 1)): end for (topic, number), end in results.until.items()}
    for at, starts in firsts.items():
        end = ends.get(at, starts[-1][1].offsets.of(at)[-1][1])
        untils = [*(first for first, _ in starts[1:]), end]
        for (start, one), until in zip(starts, untils, strict=True):
            if start < min(until, end):
                windows[one.seq - 1].attempt = one
                windows[one.seq - 1].ranges[at] = (start, min(until, end))
    while windows and windows[-1].attempt is None:
        windows.pop()
    if windows:
        # Of other partitions nothing is left. Their positions hold all the same.
        windows[-1].ranges |= {at: (end, end) for at, end in ends.items() if at not in firsts}
    return windows


def _first_offsets(attempts: Sequence[Found]) -> dict[TopicPartition, list[tuple[int, Found]]]:
    """The first offset of each attempt in each partition, where they rise from one to the next, as those of a lane do."""
    found: dict[TopicPartition, list[tuple[int, Found]]] = {}
    for one in attempts:
        offsets = one.offsets
        for at in offsets.partitions:
            known, first = found.setdefault(at, []), offsets.of(at)[0][0]
            if not known or known[-1][0] < first:
                known.append((first, one))
    return found


def _of_selection(draft: Book, attempts: Sequence[Found], results: Results) -> list[_Covers]:
    """The windows of another lane cover the offsets of which something is left, and no others."""
    # One that has read the newest offsets first: positions of a lane never fall.
    falls = any(
        after.offsets.of(at)[0][0] < before.offsets.of(at)[0][0]
        for before, after in pairwise(attempts)
        for at in set(before.offsets.partitions) & set(after.offsets.partitions)
    )
    selection = draft.store_selection(RangeSet(part for one in attempts for part in one.offsets))
    return [
        _Covers(
            one,
            {part.partition: (part.start, part.until) for part in one.offsets.hull()},
            selection,
            _alone(one, results.sinks),
        )
        for one in (attempts[::-1] if falls else attempts)
    ]


def _alone(one: Found, sinks: Sequence[str]) -> tuple[str, ...] | None:
    """The sinks that a replay has written alone, as far as its rows tell. None: all of them."""
    written = [name for name in sinks if name in one.places]
    if not one.lane.startswith(LaneKind.REPLAY.value) or None in one.places or len(written) == len(sinks):
        return None
    return tuple(written)


def _put(
    draft: Book,
    lane: str,
    windows: Sequence[_Covers],
    results: Results,
    newest: Mapping[str, int],
    used: Collection[int],
) -> None:
    reached: dict[TopicPartition, int] = {}
    taken, generation, previous = set(used), 0, None
    for seq, covers in enumerate(windows, 1):
        if covers.attempt is not None:
            generation = covers.attempt.generation
        else:
            # Covers nothing, and only keeps the numbers of the others.
            generation = next(
                number for number in range(generation + 1, generation + 2 + len(taken)) if number not in taken
            )
            taken.add(generation)
        reached |= {at: until for at, (_, until) in covers.ranges.items()}
        sinks, letters = results.receipt(covers.attempt) if covers.attempt is not None else ((), None)
        record = Record(
            stream=draft.stream,
            lane=lane,
            kind=LaneKind(lane.partition("-")[0]),
            window=Window(
                seq=seq,
                ranges=tuple(_range(at, *pair) for at, pair in sorted(covers.ranges.items())),
                selection=covers.selection,
                topic_ids={
                    at.topic: results.ids.get(at.topic, UNKNOWN)
                    if at.incarnation == newest.get(at.topic, 1)
                    else f"{UNKNOWN} {at.incarnation}"
                    for at in covers.ranges
                },
                isolation=results.isolation,
                pinned_at=generation,
                run=RUN,
                reason=REASON,
                sinks=covers.sinks,
            ),
            attempt=Attempt(
                generation=generation,
                token=new_token(),
                run=RUN,
                taken_at=generation,
                code_version=UNKNOWN,
                stream_digest=UNKNOWN,
            ),
            receipt=Receipt(
                tallies=(), sinks=sinks, dead_letters=letters, started_at=generation, finished_at=generation
            ),
            positions=positions(reached),
            committed_at=generation,
            owes_sweep=False,
            previous=previous,
        )
        stored = encode(record)
        previous = digest(stored)
        draft.store.put(record_key(lane, seq), stored)


def _range(at: TopicPartition, start: int, until: int) -> WindowRange:
    return WindowRange(
        topic=at.topic,
        incarnation=at.incarnation,
        partition=at.partition,
        start=start,
        until=until,
        log_start=start,
        log_end=until,
    )
