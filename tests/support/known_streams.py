"""A stream in memory whose every offset is known: what is written there, and what a window makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, at
from tidemark.clients.kafka.slots import KafkaMessage, OffsetContents, Slot
from tidemark.clients.kafka.stepping import MessageStep, Steps
from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.errors import Unreachable
from tidemark.ledger.records import Attempt, LaneKind, Receipt, Record, SinkReceipt, Window
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.windows import lanes
from tidemark.sinks.contract import SinkAdmin
from tidemark.sinks.stored_rows import Mark, Place, StoredRow
from tidemark.views.messages import trace
from tidemark.views.messages.fates import Fate

OUTCOMES = (Fate.STORED, Fate.DEAD_LETTER, Fate.SKIPPED, Fate.NO_MESSAGE)


@dataclass
class KnownLog(LookedAt):
    """A topic with one partition. `contents`: what is written at each offset, and what a window makes of it."""

    contents: list[Fate | Slot] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    away: bool = False
    # Messages that have more than their offset as their value.
    written: dict[int, KafkaMessage] = field(default_factory=dict)
    # Of one answer: how many offsets it passes.
    at_once: int = 3

    def slot(self, topic: str, partition: int, offset: int) -> OffsetContents | None:
        if self.away:
            raise Unreachable("Kafka at k:1 did not answer")
        if partition != 0:
            return None
        start, end = self.logs[topic][0]
        what: Any = Slot.EXPIRED if offset < start else Slot.BEYOND if offset >= end else self.contents[offset]
        if start <= offset < end and offset in self.gone:
            what = Slot.COMPACTED
        message = None if isinstance(what, Slot) else self.message(offset)
        return OffsetContents(what if isinstance(what, Slot) else Slot.MESSAGE, start, end, message)

    def message(self, offset: int) -> KafkaMessage:
        return self.written.get(offset) or KafkaMessage(
            self.time_of(offset) if self.since_ms else None, False, None, b"%d" % offset, ()
        )

    @contextmanager
    def stepping(self, isolation: str) -> Iterator[Steps]:
        def steps(topic: str, partition: int, start: int, until: int) -> Iterator[MessageStep]:
            for first in range(start, until, self.at_once):
                after = min(until, first + self.at_once)
                found = [(one, self.slot(topic, partition, one)) for one in range(first, after)]
                yield MessageStep(after, tuple((one, slot.message) for one, slot in found if slot and slot.message))

        yield steps


@dataclass
class Rows:
    """A table of results or dead letters of partition 0, with what each row says, by offset."""

    held: dict[int, StoredRow] = field(default_factory=dict)
    # What was read of it: the fields, and the places at which a row counted.
    read: list[tuple[frozenset[str], int]] = field(default_factory=list)
    fields: frozenset[str] = frozenset({"everything"})
    since_ms: int = 0

    def put(self, window: Window, lane: str, attempt: Attempt, offset: int) -> None:
        mark = Mark(attempt.generation, 0, lane, window.seq)
        before = self.held.get(offset)
        again = 0 if before is None else int(before.fields["redrives"]) + 1
        fields = {"reason": b"bad %d" % (offset % 2), "value": b"secret", "redrives": b"%d" % again}
        fields["timestamp"] = datetime.fromtimestamp(offset + self.since_ms / 1000, UTC).isoformat().encode()
        self.held[offset] = StoredRow(Place(at(0), offset, 0), mark, fields)

    def only(self, fields: Iterable[str]) -> Rows:
        kept = set(fields)
        return Rows(
            {
                offset: replace(row, fields={name: value for name, value in row.fields.items() if name in kept})
                for offset, row in self.held.items()
            },
            self.read,
            frozenset(kept),
            self.since_ms,
        )

    def rows_at(self, place: Coordinate, generation: int) -> list[StoredRow]:
        return list(self.rows_that_count(Authority([(generation, RangeSet([place.as_range()]))]), place.as_range()))

    def rows_that_count(self, authority: Authority, wanted: OffsetRange) -> Iterator[StoredRow]:
        return (row for _, row in self.rows(authority, wanted))

    def rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, StoredRow]]:
        for offset, row in sorted(self.held.items()):
            counts = authority.of(wanted.partition, offset) == row.mark.generation
            if wanted.start <= offset < wanted.until and row.place.partition == wanted.partition and counts:
                self.read.append((self.fields, offset))
                yield row.place, row


@dataclass
class Work:
    """Makes of each offset what its content says, and remembers which window has read it."""

    world: KnownStream
    lane: str
    covers: RangeSet = field(default_factory=RangeSet)

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self.window, self.covers = window, covers

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        for offset in self.offsets():
            if self.world.log.contents[offset] == Fate.STORED and self.writes_rows:
                self.world.results.put(self.window, self.lane, attempt, offset)
            if self.world.log.contents[offset] == Fate.DEAD_LETTER and self.window.counts_for(None):
                self.world.dead.put(self.window, self.lane, attempt, offset)

    @property
    def writes_rows(self) -> bool:
        return self.world.by_coordinate and self.window.counts_for("hbase")

    def offsets(self) -> list[int]:
        there = [offset for one in self.covers for offset in range(one.start, one.until)]
        return [one for one in there if one not in self.world.log.gone]

    def verify(self) -> Receipt:
        offsets, time_of, now = self.offsets(), self.world.log.time_of, self.world.now
        numbers = Counter(self.world.log.contents[one] for one in offsets)
        tally = PartitionTally(
            topic="orders",
            incarnation=1,
            partition=0,
            read=Count.of(sum(numbers[one] for one in OUTCOMES), 0),
            stored=Count.of(numbers[Fate.STORED], 0),
            invalid=Count.of(numbers[Fate.DEAD_LETTER], 0),
            skipped=Count.of(numbers[Fate.SKIPPED], 0),
            first=min(offsets, default=None),
            last=max(offsets, default=None),
            first_timestamp=time_of(min(offsets, default=0)),
            last_timestamp=time_of(max(offsets, default=0)),
        )
        sinks = (SinkReceipt(name="hbase", type="hbase", place={}),) if self.writes_rows else ()
        dead = SinkReceipt(name="dead_letters", type="hbase", place={}) if self.window.counts_for(None) else None
        return Receipt(tallies=(tally,), sinks=sinks, dead_letters=dead, started_at=now - 40_000, finished_at=now)


class KnownStream(StreamInMemory):
    """A stream over a known log, whose windows do what the log's contents say."""

    def __init__(
        self,
        folder: Path,
        contents: list[Fate | Slot],
        *,
        by_coordinate: bool = True,
        name: str = "orders",
        since_ms: int = 0,
        max_records: int = 5,
    ) -> None:
        self.log = KnownLog(contents=contents, since_ms=since_ms)
        more = f"limits: {{max_records: {max_records}}}\n"
        text = TEXT.replace("  start: earliest\n", "  start: earliest\n  on_out_of_range: earliest\n")
        super().__init__(folder, self.log, text + more, name=name)
        self.by_coordinate = by_coordinate
        self.results, self.dead = Rows(since_ms=since_ms), Rows(since_ms=since_ms)
        self.read: dict[int, tuple[str, int]] = {}
        _WORLDS[id(self.opened.ledger)] = self

    def process(self, lane: str, run: str = "run 1") -> Any:
        ledger, work = self.opened.ledger, Work(self, lane)
        found = ledger.head(lane)
        assert found is not None
        seq = found.head.seq + 1
        record = protocol.process(ledger, self.sweeps, cast("Any", work), unwatched, lane, seq, Run(run, "v1", "d"))
        self.read |= {offset: (lane, seq) for one in work.covers for offset in range(one.start, one.until)}
        return record

    def replay(self, run: str, *found: tuple[int, int], sinks: tuple[str, ...] | None = None) -> str:
        """A replay of (start, until) ranges, as far as its lane's end. Gives its lane."""
        chosen = RangeSet(OffsetRange(at(0), start, until) for start, until in found)
        people = Requesters("ann", "bob")
        lane = claim_lane(self.opened, LaneKind.REPLAY, run, chosen, "a test", people, sinks=sinks)
        while lanes.plan_lane(self.opened, lane, run) is not None:
            self.process(lane, run)
        lanes.finish(self.opened, lane)
        return lane

    def where(self, offset: int, partition: int = 0) -> trace.LocatedRecord:
        return trace.located(self.opened, trace.coordinate(self.opened, f"orders/{partition}@{offset}"))


_WORLDS: dict[int, KnownStream] = {}


class _Kind(SinkAdmin):
    """Every type of sink, with the table of a known stream."""

    looks_quickly = True

    def make_admin(self) -> _Kind:
        return self

    def rows_at(self, opened: Any, settings: Any, at: Coordinate, record: Record) -> list[StoredRow] | str:
        world = _WORLDS[id(opened.ledger)]
        if not world.by_coordinate:
            return super().rows_at(opened, settings, at, record)
        return world.results.rows_at(at, record.attempt.generation)


def _dead_letter_table(opened: OpenStream) -> Rows:
    # As the real one, it needs its connection.
    opened.connections(opened.stream.dead_letters.connection)
    return _WORLDS[id(opened.ledger)].dead


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    tables_of_known_streams(monkeypatch)


def tables_of_known_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of known streams, in the places of HBase's."""
    monkeypatch.setattr(OpenStream, "dead_letter_table", _dead_letter_table)
    monkeypatch.setattr(trace, "kind_of", lambda type_: _Kind())
