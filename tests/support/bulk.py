"""A ledger with very many windows, as after years of runs, written straight into a store without the protocol.

The ingest has quiet nights, bursts, heavy tails and gaps. One partition was added later, and one topic was recreated.
Backfills and replays stand beside it, over whole ranges and scattered offsets, most of them closed.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from kazoo.client import KazooClient

from tests.support.memory import MemoryStore
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.clients.sql import engine
from tidemark.ledger.closed_lanes import given_up
from tidemark.ledger.codec import digest, encode
from tidemark.ledger.ledger import REGISTER, Ledger, head_key, record_key, settled_key
from tidemark.ledger.records import (
    INGEST,
    Attempt,
    Gap,
    GapKind,
    Head,
    LaneEntry,
    LaneKind,
    LaneState,
    Receipt,
    Record,
    Register,
    Selection,
    SelectionRef,
    SinkReceipt,
    TopicIncarnation,
    Window,
    WindowRange,
    positions,
)
from tidemark.ledger.selections import selection_ref
from tidemark.ledger.stores.contract import Key, LedgerStore
from tidemark.ledger.stores.hbase import HBaseLedgerStore
from tidemark.ledger.stores.sql import SQLLedgerStore
from tidemark.ledger.stores.zookeeper import ZooKeeperLedgerStore
from tidemark.offsets.ranges import Interval, OffsetRange, RangeSet, TopicPartition

STREAM = "bulk"
LOGS = [TopicPartition("logs", partition) for partition in range(4)]
ADDED = TopicPartition("logs", 4)
BEFORE, AGAIN = TopicPartition("clicks", 0, 1), TopicPartition("clicks", 0, 2)
# Where the ingest begins in `LOGS`; the backfills read the offsets below.
BEGIN = 10_000_000
_FAR = 2**62
_RECEIPT = Receipt(
    tallies=(), sinks=(), dead_letters=SinkReceipt(name="dead", type="hbase", place={}), started_at=1, finished_at=2
)

Moves = Mapping[TopicPartition, Interval]


@dataclass
class Lane:
    """One lane as it grows; `values` takes its history."""

    name: str
    kind: LaneKind
    values: dict[Key, bytes]
    start: dict[TopicPartition, int]
    opened_at: int
    selection: SelectionRef | None = None
    ends: tuple[int, ...] = ()
    closed_at: int | None = None
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    last: Record | None = None
    stored: bytes | None = None

    def __post_init__(self) -> None:
        self.offsets = dict(self.start)

    @property
    def seq(self) -> int:
        return self.last.seq if self.last else 0

    def commit(self, moves: Moves, now: int, generation: int, gaps: Sequence[Gap] = ()) -> None:
        """The next window, over [start, until) of some partitions."""
        ranges = tuple(
            WindowRange(
                topic=at.topic,
                incarnation=at.incarnation,
                partition=at.partition,
                start=start,
                until=until,
                log_start=0,
                log_end=until,
            )
            for at, (start, until) in sorted(moves.items())
        )
        self.offsets.update({at: until for at, (_, until) in moves.items()})
        window = Window(
            seq=self.seq + 1,
            ranges=ranges,
            gaps=tuple(gaps),
            selection=self.selection,
            topic_ids={at.topic: f"{at.topic}-{at.incarnation}" for at in moves},
            isolation="read_committed",
            pinned_at=now,
            run=f"run/{self.name}",
        )
        attempt = Attempt(
            generation=generation, token="t", run=window.run, taken_at=now, code_version="v", stream_digest="d"
        )
        self.last = Record(
            stream=STREAM,
            lane=self.name,
            kind=self.kind,
            window=window,
            attempt=attempt,
            receipt=_RECEIPT,
            positions=positions(self.offsets),
            committed_at=now,
            owes_sweep=False,
            previous=None if self.stored is None else digest(self.stored),
        )
        self.stored = self.values[record_key(self.name, self.seq)] = encode(self.last)

    def head(self) -> Head:
        return Head(
            stream=STREAM,
            lane=self.name,
            kind=self.kind,
            state=LaneState.OPEN if self.closed_at is None else LaneState.CLOSED,
            token="t",
            seq=self.seq,
            positions=positions(self.offsets),
            last=self.last,
        )

    def entry(self) -> LaneEntry:
        closed = self.closed_at is not None
        return LaneEntry(
            kind=self.kind,
            state=LaneState.CLOSED if closed else LaneState.OPEN,
            token="t",
            opened_at=self.opened_at,
            run=f"run/{self.name}",
            start=positions(self.start),
            until=self.ends,
            selection=self.selection,
            closed_at=self.closed_at,
            windows=self.seq if closed else None,
        )


def ingest_of(sizes: Sequence[int], at: TopicPartition = LOGS[0]) -> dict[Key, bytes]:
    """The ledger of a stream with one partition and only an ingest, with windows of these sizes."""
    values: dict[Key, bytes] = {}
    lane = Lane(INGEST, LaneKind.INGEST, values, {at: 0}, 1)
    for number, size in enumerate(sizes, start=1):
        lane.commit({at: (lane.offsets[at], lane.offsets[at] + size)}, number, number)
    return {**values, **_state([lane], len(sizes))}


def many_closed(number: int) -> dict[Key, bytes]:
    """The ledger of a stream that has read 10,000 offsets, with `number` closed lanes that each replayed ten of them."""
    values: dict[Key, bytes] = {}
    at, now = LOGS[0], 1_700_000_000_000
    ingest = Lane(INGEST, LaneKind.INGEST, values, {at: 0}, now)
    for seq in range(10):
        ingest.commit({at: (seq * 1_000, seq * 1_000 + 1_000)}, now + seq, now + seq)
    lanes = [ingest]
    for each in range(number):
        start, opened = each * 7 % 9_990, now + 100 + each * 3
        chosen = RangeSet([OffsetRange(at, start, start + 10)])
        ref = selection_ref(chosen)
        values["selection", ref.digest] = encode(Selection.of(chosen))
        lane = Lane(f"replay-{each:012x}", LaneKind.REPLAY, values, {at: start}, opened, ref, (start + 10,))
        lane.commit({at: (start, start + 10)}, opened + 1, opened + 1)
        lane.closed_at = opened + 2
        lanes.append(lane)
    return {**values, **_state(lanes, now + 200 + number * 3)}


class History:
    """Makes a history of `windows` windows in `lanes` lanes, about half of them the ingest's. The same seed gives the same."""

    def __init__(self, windows: int, lanes: int, seed: int = 1) -> None:
        self.values: dict[Key, bytes] = {}
        self._chance = random.Random(seed)
        self._now = 1_700_000_000_000
        self._generation = 0
        self._gaps: list[Gap] = []
        self._lowest = dict.fromkeys(LOGS, BEGIN)
        self._filled = RangeSet()
        self._burst = 0
        others = lanes - 1
        each = windows * 48 // 100 // others
        self._ingest = Lane(INGEST, LaneKind.INGEST, self.values, {**dict.fromkeys(LOGS, BEGIN), BEFORE: 0}, self._now)
        self.lanes = [self._ingest]
        self._make(windows - others * each, others, each)
        self.values.update(_state(self.lanes, self._generation))

    def _make(self, ingested: int, others: int, each: int) -> None:
        """Open one lane beside the ingest at a time. The last three stay open, and the very last has work left."""
        working: list[Iterator[None]] = []
        opening = {ingested * (2 * number + 1) // (2 * others): number for number in range(others)}
        for seq in range(ingested):
            self._read_on(seq, ingested)
            if seq in opening:
                working.append(self._work(opening[seq], each, stays_open=opening[seq] >= others - 3))
            working = [one for one in working if next(one, self) is None]
        for one in working:
            list(one)

    # the ingest

    def _read_on(self, seq: int, of: int) -> None:
        chance, lane = self._chance, self._ingest
        self._now += chance.randrange(60_000, 1_200_000)
        if seq == of * 2 // 5:
            lane.offsets[ADDED] = 0
        if seq == of * 3 // 5:
            lane.offsets[AGAIN] = 0
        if chance.random() < 0.002:
            self._burst = chance.randrange(10, 40)
        self._burst = max(0, self._burst - 1)
        moves, gaps = {}, []
        for at, position in lane.offsets.items():
            if at == BEFORE and AGAIN in lane.offsets:
                continue
            if chance.random() < 0.002:
                gap = self._gap(at, position)
                gaps.append(gap)
                position = gap.until
            moves[at] = (position, position + self._size(seq))
        self._gaps += gaps
        self._commit(lane, moves, gaps)

    def _size(self, seq: int) -> int:
        """The messages of about an hour: few at night, many in a burst, and now and then very many."""
        size = min(self._chance.paretovariate(1.1), 1_000) * (1 if seq % 24 < 6 else 40) * (100 if self._burst else 1)
        return int(size) if self._chance.random() < 0.9 else 0

    def _gap(self, at: TopicPartition, position: int) -> Gap:
        kind = self._chance.choice(list(GapKind))
        return Gap(
            kind=kind,
            policy="max_behind: 10" if kind == GapKind.SKIPPED else "on_out_of_range: earliest",
            topic=at.topic,
            incarnation=at.incarnation,
            partition=at.partition,
            start=position,
            until=position + int(1_000 * self._chance.paretovariate(1.2)),
        )

    # backfills and replays

    def _work(self, number: int, windows: int, *, stays_open: bool) -> Iterator[None]:
        kind = LaneKind.REPLAY if number % 2 else LaneKind.BACKFILL
        # Lanes that are open at the same time may not claim the same offsets.
        at = LOGS[number % len(LOGS)]
        wanted = windows * self._chance.randrange(50, 400)
        partial = stays_open and number % 3 == 0
        chosen = self._covered(at, wanted, number) if kind == LaneKind.REPLAY else self._uncovered(at, wanted, number)
        # In a small history the ingest may have read too little for so many windows, or nothing yet.
        windows = min(windows, chosen.count() // 2 if partial else chosen.count())
        if not windows:
            return
        ref = selection_ref(chosen)
        self.values["selection", ref.digest] = encode(Selection.of(chosen))
        hull = list(chosen.hull())
        lane = Lane(
            f"{kind.value}-{number}",
            kind,
            self.values,
            {one.partition: one.start for one in hull},
            self._now,
            ref,
            tuple(one.until for one in hull),
        )
        self.lanes.append(lane)
        intervals = chosen.of(at)
        ranks = [0, *accumulate(until - start for start, until in intervals)]

        def offset(rank: int) -> int:
            interval = bisect_right(ranks, rank) - 1
            return intervals[interval][0] + rank - ranks[interval]

        for first, until in self._cuts(ranks[-1] // 2 if partial else ranks[-1], windows):
            self._now += self._chance.randrange(1_000, 30_000)
            self._commit(lane, {at: (offset(first), offset(until - 1) + 1)})
            yield
        if not stays_open:
            self._now += 1_000
            lane.closed_at = self._now

    def _cuts(self, offsets: int, windows: int) -> list[Interval]:
        """Cut so many offsets into windows of irregular sizes, with at least one offset in each."""
        weights = [self._chance.paretovariate(1.3) for _ in range(windows)]
        total = sum(weights)
        edges = [int((offsets - windows) * part / total) + at for at, part in enumerate(accumulate(weights), start=1)]
        return list(zip([0, *edges[:-1]], [*edges[:-1], offsets], strict=True))

    def _covered(self, at: TopicPartition, wanted: int, number: int) -> RangeSet:
        """Offsets that the ingest has read: always the same first ones, scattered ones, or any."""
        jumped = RangeSet(gap.as_range() for gap in self._gaps)
        covered = RangeSet([OffsetRange(at, BEGIN, self._ingest.offsets[at])]) - jumped
        if number % 3 == 0:
            return covered.first(wanted)
        from_here = self._chance.randrange(BEGIN, (BEGIN + self._ingest.offsets[at]) // 2)
        if number % 3 == 1:
            return (covered & RangeSet([OffsetRange(at, from_here, _FAR)])).first(wanted)
        scattered, offset = [], from_here
        for _ in range(wanted // 250):
            offset += self._chance.randrange(1, 500)
            scattered.append(OffsetRange(at, offset, offset + self._chance.randrange(1, 500)))
            offset = scattered[-1].until
        return covered & RangeSet(scattered)

    def _uncovered(self, at: TopicPartition, wanted: int, number: int) -> RangeSet:
        """Offsets that the ingest has skipped, or most of those right below the offsets that were read."""
        skipped = RangeSet(gap.as_range() for gap in self._gaps if gap.kind == GapKind.SKIPPED).only([at])
        if number % 3 == 2 and (skipped - self._filled).count() >= wanted:
            chosen = (skipped - self._filled).first(wanted)
            self._filled |= chosen
            return chosen
        until = self._lowest[at] - self._chance.randrange(100)
        self._lowest[at] = until - wanted
        return RangeSet([OffsetRange(at, self._lowest[at], until)])

    def _commit(self, lane: Lane, moves: Moves, gaps: Sequence[Gap] = ()) -> None:
        self._generation = max(self._now, self._generation + 1)
        lane.commit(moves, self._now, self._generation, gaps)


def _state(lanes: Sequence[Lane], generation: int) -> dict[Key, bytes]:
    """The heads of lanes, and the register."""
    topics = {
        "logs": (TopicIncarnation(topic_id="logs-1", incarnation=1, since=1),),
        "clicks": tuple(TopicIncarnation(topic_id=f"clicks-{one}", incarnation=one, since=one) for one in (1, 2)),
    }
    register = Register(
        stream=STREAM,
        ledger="l",
        generation=generation,
        token="t",
        topics=topics,
        lanes={lane.name: lane.entry() for lane in lanes},
    )
    store = MemoryStore()
    register = given_up(Ledger(store, STREAM), register)
    heads = {head_key(lane.name): encode(lane.head()) for lane in lanes}
    return {REGISTER: encode(register), **store.values, **heads}


# into a store

# ZooKeeper keeps its last 500 requests in memory, beside all values.
_BATCH_BYTES = 50_000


def load(store: LedgerStore, values: Mapping[Key, bytes]) -> None:
    """Write the values of a ledger into a store, over those that it has. The ingest's last window is not settled."""
    last = max(key for key in values if key[:2] == ("history", INGEST))
    if isinstance(store, ZooKeeperLedgerStore | SQLLedgerStore):
        # A commit of theirs writes the record too.
        marks = {settled_key(key[1]): key[2].encode() for key in values if key[0] == "history" and key != last}
        whole = {**values, **marks}
        if isinstance(store, SQLLedgerStore):
            _load_sql(store, whole)
        else:
            _load_zookeeper(store, whole)
        return
    before = {key: value for key, value in values.items() if key != last}
    if isinstance(store, HBaseLedgerStore):
        _load_hbase(store, before)
    elif isinstance(store, MemoryStore):
        store.values.update(before)


def _load_hbase(store: HBaseLedgerStore, values: Mapping[Key, bytes]) -> None:
    table = store._table.encode()
    for batch in _batches(values):
        rows = [
            BatchMutation(row=store._row(key), mutations=[Mutation(column=b"l:v", value=value, writeToWAL=True)])
            for key, value in batch
        ]
        store._gateway.repeated("load", lambda client, rows=rows: client.mutateRows(table, rows, {}))


def _load_zookeeper(store: ZooKeeperLedgerStore, values: Mapping[Key, bytes]) -> None:
    client: KazooClient = store._zookeeper.client
    for folder in sorted({store._path(key).rpartition("/")[0] for key in values}):
        client.ensure_path(folder)
    for batch in _batches(values):
        request = client.transaction()
        for key, value in batch:
            path = store._path(key)
            if client.exists(path):
                request.delete(path)
            request.create(path, value)
        assert not any(isinstance(one, Exception) for one in request.commit())


def _load_sql(store: SQLLedgerStore, values: Mapping[Key, bytes]) -> None:
    stream, table = store._stream.encode(), store._values()
    with engine(store._where, 30.0).connect() as connection:
        connection.exec_driver_sql("BEGIN")
        for batch in _batches(values):
            rows = [{"stream": stream, "key": "/".join(key).encode(), "value": value} for key, value in batch]
            connection.execute(
                table.delete().where(table.c.stream == stream, table.c.key.in_([row["key"] for row in rows]))
            )
            connection.execute(table.insert(), rows)
        connection.exec_driver_sql("COMMIT")


def unload(store: LedgerStore, values: Mapping[Key, bytes]) -> None:
    """Remove the values that `load` has written, if the store keeps them in memory."""
    if isinstance(store, ZooKeeperLedgerStore):
        client: KazooClient = store._zookeeper.client
        for batch in _batches(values):
            request = client.transaction()
            for key, _ in batch:
                request.delete(store._path(key))
            assert request.commit() == [True] * len(batch)


def _batches(values: Mapping[Key, bytes]) -> Iterator[list[tuple[Key, bytes]]]:
    batch: list[tuple[Key, bytes]] = []
    size = 0
    for key, value in values.items():
        if batch and size + len(value) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((key, value))
        size += len(value)
    yield batch
