"""A stream over a Kafka and a ledger in memory, whose messages have times of their own, and whose windows count them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from tests.support.claiming import claim_lane
from tests.support.protocol_world import NoWork, hold
from tests.support.streams_in_memory import TEXT, KafkaInMemory, StreamInMemory
from tidemark.clients.kafka.topics import TopicLog
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Run
from tidemark.ledger.records import Attempt, LaneKind, Receipt, Record, Window
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs.windows import lanes
from tidemark.views.event_time.completeness import HOUR_MS

MINUTE = 60_000
Place = tuple[str, int]


@dataclass
class TimedKafka(KafkaInMemory):
    """Messages with times of their own, in ms: the offset is the place in the list. Logs end where the lists end."""

    times: dict[int, list[int]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)

    def send(self, partition: int, *times: int) -> None:
        self.times.setdefault(partition, []).extend(times)
        self._logs()

    def delete(self, partition: int, start: int) -> None:
        self.starts[partition] = start
        self._logs()

    def _logs(self) -> None:
        self.logs["orders"] = [(self.starts.get(number, 0), len(self.times[number])) for number in sorted(self.times)]

    def first_at_or_after(
        self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str
    ) -> dict[Place, int | None]:
        return {
            ("orders", number): next(
                (one for one in range(self.starts.get(number, 0), len(times)) if times[one] >= timestamp_ms), None
            )
            for number, times in self.times.items()
        }

    def timestamps(self, ends: Mapping[Place, tuple[int, int]]) -> dict[Place, int]:
        return {place: self.times[place[1]][start] for place, (start, _) in ends.items()}

    def count_between(
        self,
        ranges: Mapping[Place, Sequence[tuple[int, int]]],
        since: int,
        until: int,
        isolation: str,
        passed: Callable[[int], None],
    ) -> int:
        passed(sum(end - start for intervals in ranges.values() for start, end in intervals))
        return sum(
            since <= self.times[place[1]][offset] < until
            for place, intervals in ranges.items()
            for interval in intervals
            for offset in range(*interval)
        )


class TimedWork(NoWork):
    def __init__(self, kafka: TimedKafka) -> None:
        self.kafka = kafka

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self.covers = covers

    def verify(self) -> Receipt:
        tallies = []
        for one in self.covers.partitions:
            seen = [offset for start, until in self.covers.of(one) for offset in range(start, until)]
            times = [self.kafka.times[one.partition][offset] for offset in seen]
            tallies.append(
                PartitionTally(
                    topic=one.topic,
                    incarnation=one.incarnation,
                    partition=one.partition,
                    read=Count(len(seen)),
                    skipped=Count(len(seen)),
                    first=seen[0],
                    last=seen[-1],
                    first_timestamp=min(times),
                    last_timestamp=max(times),
                )
            )
        return structs.replace(super().verify(), tallies=tuple(tallies))


class Timed(StreamInMemory):
    kafka: TimedKafka

    def process(self, lane: str, run: str = "run 1") -> Record:
        found = self.opened.ledger.head(lane)
        assert found is not None
        return protocol.process(
            self.opened.ledger, self.sweeps, TimedWork(self.kafka), hold, lane, found.head.seq + 1, Run(run, "v1", "d")
        )

    def selected(self, kind: LaneKind, ranges: RangeSet) -> None:
        lane = claim_lane(self.opened, kind, f"{kind.value} 1", ranges, "a test")
        assert lanes.plan_lane(self.opened, lane, f"{kind.value} 1") is not None
        self.process(lane, f"{kind.value} 1")


def timed_stream(tmp_path: Path, source: str = "", text: str = "") -> Timed:
    made = Timed(
        tmp_path, kafka=TimedKafka(logs={}), text=TEXT.replace("start: earliest", "start: earliest" + source) + text
    )
    made.now = minutes(60)
    return made


def minutes(*after: int) -> int:
    """A time so many minutes after 100,000 hours."""
    return 100_000 * HOUR_MS + sum(after) * MINUTE
