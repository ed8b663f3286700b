"""A stream of a real file, over a Kafka and a ledger in memory, for rules that a test can check without servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tests.support.memory import MemoryStore
from tests.support.protocol_world import NoWork, Sweeps, hold
from tests.support.stream_text import MINIMAL
from tidemark.clients.connections import Connection
from tidemark.clients.kafka.topics import READ_COMMITTED, PartitionLog, TopicLog
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, Record
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs import erasing
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.windows import ingest, lanes
from tidemark.runs.windows.empty_windows import commit_unread
from tidemark.streams.loading import load

TEXT = MINIMAL.replace("  topics: [orders]\n", "  topics: [orders]\n  start: earliest\n")

# What the stream files say of their ledger, whose place MemoryStore takes. A test may set both for another kind.
LEDGER = ""


@dataclass
class KafkaInMemory:
    """Topics as (start, end) of each partition. A message comes each second from `since_ms` on, its offset's number of them."""

    logs: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {"orders": [(0, 0)]})
    ids: dict[str, str] = field(default_factory=dict)
    # Where the first open transaction began, of all partitions: readers of committed messages end there.
    stable: int | None = None
    since_ms: int = 0

    def time_of(self, offset: int) -> int:
        return self.since_ms + offset * 1000

    def names(self) -> set[str]:
        return set(self.logs)

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        return {
            name: TopicLog(
                self.ids.get(name, "id"),
                {
                    number: PartitionLog(start, self._end(end, isolation), 0, end)
                    for number, (start, end) in enumerate(self.logs[name])
                },
            )
            for name in set(names)
            if name in self.logs
        }

    def _end(self, end: int, isolation: str) -> int:
        return end if self.stable is None or isolation != READ_COMMITTED else min(end, self.stable)

    def first_at_or_after(
        self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str
    ) -> dict[tuple[str, int], int | None]:
        wanted = -(-(timestamp_ms - self.since_ms) // 1000)
        return {
            (topic, number): max(wanted, log.start) if wanted < log.end else None
            for topic, found in logs.items()
            for number, log in found.partitions.items()
        }

    def high_watermarks(self, logs: Mapping[str, TopicLog]) -> dict[tuple[str, int], int]:
        return {
            (topic, number): log.written for topic, found in logs.items() for number, log in found.partitions.items()
        }

    def compacted(self, topics: Iterable[str]) -> set[str]:
        return set()

    def messages(self, ranges: RangeSet) -> Iterator[tuple[OffsetRange, Iterator[tuple[int, bytes | None]]]]:
        for one in ranges:
            start, end = self.logs[one.partition.topic][one.partition.partition]
            assert start <= one.start <= one.until <= end, "only what Kafka holds can be read"
            yield one, ((offset, None) for offset in range(one.start, one.until))

    def epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return {}


@dataclass
class LookedAt(KafkaInMemory):
    """Kafka as the page asks it, without limits of retention."""

    def open_transactions(
        self, logs: Mapping[str, TopicLog], high: Mapping[tuple[str, int], int]
    ) -> tuple[OpenTransaction, ...]:
        return ()

    def retention(self, topics: Iterable[str]) -> dict[str, object]:
        return {}

    def timestamps(self, ends: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
        return {place: self.time_of(position) for place, (position, _) in ends.items()}


@dataclass
class StreamInMemory:
    """The stream `orders`, or one of another name that reads the topic `orders`. `kafka.logs` has the offsets to read."""

    folder: Path
    kafka: KafkaInMemory = field(default_factory=KafkaInMemory)
    text: str = TEXT
    store: MemoryStore = field(default_factory=lambda: MemoryStore())
    name: str = "orders"

    def __post_init__(self) -> None:
        path = self.folder / f"{self.name}.yaml"
        path.write_text(self.text.replace("stream: orders\n", f"stream: {self.name}\n") + LEDGER)
        self.now = 1_000_000
        self.sweeps = Sweeps()
        ledger = Ledger(self.store, self.name, clock=lambda: self.now)
        self.opened = OpenStream(
            load(path), ledger, cast("Any", self.kafka), cast("Any", self.sweeps), self._connection
        )

    def _connection(self, name: str) -> Connection:
        """One that leads nowhere, and files in the stream's folder."""
        return Connection(name, extra={"path": str(self.folder)})

    def ends(self, *logs: tuple[int, int]) -> None:
        self.kafka.logs["orders"] = list(logs)

    def ingest(self, run: str = "run 1") -> Record | None:
        """A run of the ingest, which reads all new offsets in one window."""
        return self.process(INGEST, run) if ingest.plan_ingest(self.opened, run) is not None else None

    def process(self, lane: str, run: str = "run 1") -> Record:
        ledger = self.opened.ledger
        found = ledger.head(lane)
        assert found is not None
        return protocol.process(ledger, self.sweeps, NoWork(), hold, lane, found.head.seq + 1, Run(run, "v1", "d"))

    def erase(self, wanted: RangeSet, run: str = "erasure") -> Record:
        """An erasure of messages, as ann asks for it."""
        chosen = erasing.choose(self.opened, wanted)
        lane = erasing.open_erasure(self.opened, run, chosen, "request 4711", Requesters("ann"))
        pending = lanes.plan_lane(self.opened, lane, run)
        assert pending is not None
        record = commit_unread(self.opened, lane, pending.window.seq, run)
        lanes.finish(self.opened, lane)
        return record

    def positions(self) -> dict[int, int]:
        found = self.opened.ledger.head(INGEST)
        assert found is not None
        return {at.partition: offset for at, offset in found.head.offsets().items()}


def at(partition: int, incarnation: int = 1) -> TopicPartition:
    return TopicPartition("orders", partition, incarnation)


def offsets(*found: tuple[int, int, int]) -> RangeSet:
    """(partition, start, until) of the topic."""
    return RangeSet(OffsetRange(at(number), start, until) for number, start, until in found)


def nowhere(name: str) -> Connection:
    """A connection of Airflow that leads nowhere, as the pages ask for it."""
    if name.startswith("kafka"):
        return Connection(name, extra={"bootstrap.servers": "nowhere:1", "allow_insecure": True})
    more = {"allow_insecure": True} if name.startswith("zookeeper") else {}
    return Connection(name, host="nowhere", port=1, extra=more)
