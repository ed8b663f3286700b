"""The commit protocol by itself, with a thousand partitions: what it adds to the reads and writes that it needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from bench.pairs import Pairs, in_pairs
from bench.workbench import EXAMPLE, Workbench
from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.ledger.erasures import WrittenPlace
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import (
    INGEST,
    Attempt,
    Head,
    LaneKind,
    Receipt,
    Record,
    SinkReceipt,
    Window,
    WindowRange,
    positions,
)
from tidemark.ledger.register import open_lane
from tidemark.ledger.stores.contract import Key, LedgerStore
from tidemark.ledger.stores.kinds import ledger_store
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs.live.open_stream import open_stream

_PARTITIONS = [TopicPartition("logs", number) for number in range(1_000)]
_WINDOWS = 10


def thousand_partitions(bench: Workbench) -> Pairs:
    recorded = _Recording(new_store())
    _windows(recorded)
    calls = recorded.calls

    def ours() -> float:
        return _windows(new_store())

    def bare() -> float:
        return _bare(new_store(), calls)

    return in_pairs(bench.pairs, ours, bare)


def new_store() -> LedgerStore:
    """An empty ledger on the servers of the site."""
    example = open_stream(EXAMPLE)
    store = ledger_store(example.stream.ledger, f"bench_{time.time_ns()}", example.connections)
    store.prepare()
    return store


def _windows(store: LedgerStore) -> float:
    """Some windows of a stream, pinned, taken, committed and settled; gives the seconds, without opening the lane."""
    ledger = Ledger(store, "bench")
    open_lane(ledger, INGEST, LaneKind.INGEST, run="bench", start=positions(dict.fromkeys(_PARTITIONS, 0)))
    if isinstance(store, _Recording):
        store.calls.clear()
    began = time.perf_counter()
    for seq in range(1, _WINDOWS + 1):
        assert protocol.pin(ledger, NoSweeps(), INGEST, next_hundred) is not None
        run = Run(name=f"run {seq}", code_version="bench", stream_digest="0" * 64)
        # Without heartbeats, whose number depends on how long something takes.
        protocol.process(ledger, NoSweeps(), NoWork(), unwatched, INGEST, seq, run)
    return time.perf_counter() - began


def _bare(store: LedgerStore, calls: Sequence[tuple[str, Any]]) -> float:
    """The same requests with the same bytes; a compare-and-set compares with what the one before it has put."""
    now: dict[Key, bytes] = {}
    for _, (key, expected, _) in (one for one in calls if one[0] == "swap"):
        if key not in now and expected is not None:
            assert store.swap(key, None, expected)
            now[key] = expected
    began = time.perf_counter()
    for name, arguments in calls:
        match name:
            case "swap":
                key, _, value = arguments
                assert store.swap(key, now.get(key), value)
                now[key] = value
            case "scan":
                list(store.scan(*arguments))
            case _:
                getattr(store, name)(*arguments)
    return time.perf_counter() - began


class _Recording:
    """A store that remembers what is asked of it; a commit is a compare-and-set here, as it is in HBase."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            self.calls.append(("swap", arguments[:3]) if name == "commit" else (name, arguments))
            return found(*arguments)

        return call


class NoSweeps:
    def reach(self, stream: str, places: Sequence[WrittenPlace]) -> None: ...

    def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None: ...

    def erase(self, record: Record, erased: RangeSet, places: Sequence[WrittenPlace]) -> None: ...


class NoWork:
    """Says of every partition that a hundred messages were read and stored."""

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._window = window

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None: ...

    def verify(self) -> Receipt:
        hundred = Count.of(100, 2**63)
        tallies = tuple(
            PartitionTally(
                topic=one.topic,
                incarnation=one.incarnation,
                partition=one.partition,
                read=hundred,
                stored=hundred,
                rows=hundred,
                content="f" * 16,
                first=one.start,
                last=one.until - 1,
                bytes=10_000,
                first_timestamp=10**12,
                last_timestamp=10**12,
            )
            for one in self._window.ranges
        )
        dead = SinkReceipt(name="dead_letters", type="hbase", place={})
        return Receipt(tallies=tallies, sinks=(), dead_letters=dead, started_at=1, finished_at=2)


def next_hundred(head: Head) -> Window:
    ranges = tuple(
        WindowRange(
            topic=at.topic,
            incarnation=at.incarnation,
            partition=at.partition,
            start=offset,
            until=offset + 100,
            log_start=0,
            log_end=10**9,
            leader_epoch=3,
        )
        for at, offset in head.offsets().items()
    )
    return Window(
        seq=head.seq + 1,
        ranges=ranges,
        topic_ids={"logs": "A" * 22},
        isolation="read_committed",
        pinned_at=1,
        run=f"run {head.seq + 1}",
    )
