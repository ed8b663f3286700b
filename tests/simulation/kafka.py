"""A Kafka in memory, with what Kafka does to a log: transactions, retention, compaction, cuts, recreations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.actors import current, effect, questioned
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.slots import OffsetContents, Slot
from tidemark.clients.kafka.topics import READ_COMMITTED, READ_UNCOMMITTED, PartitionLog, TopicLog
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.errors import NotAuthorized, OffsetsOutOfRange, Unreachable
from tidemark.offsets.ranges import OffsetRange, RangeSet

TOPIC = "orders"
KEYS = 4


@dataclass(frozen=True)
class Message:
    """`number` rises with every message that is written. `bad`: no scheme can parse it."""

    number: int
    key: int
    time: int
    transaction: int | None = None
    bad: bool = False


@dataclass
class Log:
    """A partition. `slots` has what is at an offset; None is a transaction's marker. An offset without a slot was compacted.

    `epochs` are (leader epoch, its first offset), ascending. `running`: the first offset of each open transaction.
    """

    start: int = 0
    end: int = 0
    slots: dict[int, Message | None] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    leader_epoch: int = 0
    running: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min([self.end, *self.running.values()])

    def append(self, slot: Message | None) -> None:
        if slot is not None and slot.transaction is not None:
            self.running.setdefault(slot.transaction, self.end)
        self.slots[self.end] = slot
        self.end += 1


class Kafka(KafkaLog):
    """The answers of a cluster with one topic; what is not overridden asks a server, and so fails."""

    def __init__(self, partitions: int) -> None:
        self._made = 0
        self._number = 0
        self._transactions = 0
        self.now = 0
        self.exists = True
        self.stale = False
        self.away = False
        self._new_topic(partitions)

    def _new_topic(self, partitions: int) -> None:
        self._made += 1
        self.topic_id = f"id {self._made}"
        self.logs = [Log() for _ in range(partitions)]
        # Where the producers write each key. A key moves only to a partition that was added.
        self.homes = {key: key % partitions for key in range(KEYS)}

    # what happens to it

    def produce(self, number: int, shift: int, *, transaction: int | None = None, bad: bool = False) -> None:
        for n in range(number):
            key = (n * n + n // 3 + shift) % KEYS
            self._number += 1
            message = Message(self._number, key, self.now + n, transaction, bad=bad and n % 3 == 0)
            self.logs[self.homes[key]].append(message)

    def begin(self, number: int, shift: int) -> None:
        """A transaction that stays open."""
        self._transactions += 1
        self.produce(number, shift, transaction=self._transactions)

    def end(self, which: int, *, commit: bool) -> bool:
        """Commit or abort one of the open transactions; False when none is open."""
        running = sorted({one for log in self.logs for one in log.running})
        if not running:
            return False
        ended = running[which % len(running)]
        for log in self.logs:
            if log.running.pop(ended, None) is not None:
                if not commit:
                    log.aborted.add(ended)
                log.append(None)
        return True

    def compact(self, tail: int) -> None:
        """Of each key the newest message stays, and what is in the active segment, or not yet stable."""
        for log in self.logs:
            below = min(log.stable, log.end - tail)
            held = {at: one for at, one in log.slots.items() if one is not None and one.transaction not in log.aborted}
            newest = {one.key: at for at, one in sorted(held.items())}
            log.slots = {at: log.slots[at] for at in log.slots if at >= below or newest.get(_key(held.get(at))) == at}

    def retain(self, number: int) -> None:
        for log in self.logs:
            log.start = min(log.stable, log.start + number)
            log.slots = {at: one for at, one in log.slots.items() if at >= log.start}

    def cut(self, which: int, by: int, more: int) -> None:
        """An unclean election: the last messages are lost, and producers write on to another leader."""
        log = self.logs[which % len(self.logs)]
        log.end = max(log.start, log.end - by)
        log.slots = {at: one for at, one in log.slots.items() if at < log.end}
        log.running = {one: first for one, first in log.running.items() if first < log.end}
        log.epochs = [(epoch, first) for epoch, first in log.epochs if first <= log.end]
        self.lead(which)
        self.produce(more, which)

    def lead(self, which: int) -> None:
        """Another broker becomes the leader, and nothing is lost."""
        log = self.logs[which % len(self.logs)]
        log.leader_epoch += 1
        log.epochs.append((log.leader_epoch, log.end))

    def recreate(self, partitions: int, number: int) -> None:
        self._new_topic(partitions)
        self.produce(number, partitions)

    def add_partition(self) -> None:
        """The keys that move are written there from now on."""
        self.logs.append(Log())
        self.homes[self._number % KEYS] = len(self.logs) - 1

    # what it says

    def _asked(self) -> None:
        effect()
        self._answers()

    def _answers(self) -> None:
        if self.away and current() is not None:
            raise Unreachable("Kafka at 127.0.0.1:9092 did not answer")

    def names(self) -> set[str]:
        self._asked()
        return {TOPIC}

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        if questioned():
            raise NotAuthorized("may not read the topic orders")
        self._answers()
        logs = {
            number: PartitionLog(
                log.start, log.stable if isolation == READ_COMMITTED else log.end, log.leader_epoch, log.end
            )
            for number, log in enumerate(self.logs)
        }
        return {name: TopicLog(self.topic_id, logs) for name in set(names) if name == TOPIC}

    def high_watermarks(self, logs: Mapping[str, TopicLog]) -> dict[tuple[str, int], int]:
        self._asked()
        asked = {(topic, number) for topic, log in logs.items() for number in log.partitions}
        found = {(TOPIC, number): log.end for number, log in enumerate(self.logs)}
        if gone := asked - found.keys():
            # The topic was recreated meanwhile, with fewer partitions.
            raise Unreachable(f"unknown partitions: {sorted(gone)}")
        return {at: found[at] for at in asked}

    def epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        if not asked:
            return {}
        self._asked()
        return {
            (topic, number): next((first for newer, first in log.epochs if newer > epoch), log.end)
            for (topic, number), epoch in asked.items()
            if number < len(self.logs) and (log := self.logs[number])
        }

    def first_at_or_after(
        self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str
    ) -> dict[tuple[str, int], int | None]:
        self._asked()
        found: dict[tuple[str, int], int | None] = {}
        for number, log in enumerate(self.logs):
            end = log.stable if isolation == READ_COMMITTED else log.end
            there = (at for at, one in sorted(log.slots.items()) if at < end and one and one.time >= timestamp_ms)
            found[TOPIC, number] = next(there, None)
        return found

    def open_transactions(
        self, logs: Mapping[str, TopicLog], high: Mapping[tuple[str, int], int]
    ) -> tuple[OpenTransaction, ...]:
        return ()

    def retention(self, topics: Iterable[str]) -> dict[str, Any]:
        self._asked()
        return {}

    def timestamps(self, ends: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
        """Of the first message from a position on, below an end."""
        self._asked()
        found = {}
        for (topic, number), (start, end) in ends.items():
            slots = self.logs[number].slots if number < len(self.logs) else {}
            times = [one.time for at, one in sorted(slots.items()) if one is not None and start <= at < end]
            if times:
                found[topic, number] = times[0]
        return found

    def compacted(self, topics: Iterable[str]) -> set[str]:
        self._asked()
        return {TOPIC}

    def slot(self, topic: str, partition: int, offset: int) -> OffsetContents | None:
        self._asked()
        if partition >= len(self.logs):
            return None
        log = self.logs[partition]
        message = log.slots.get(offset)
        if offset < log.start:
            found = Slot.EXPIRED
        elif offset >= log.end:
            found = Slot.BEYOND
        elif offset not in log.slots:
            found = Slot.COMPACTED
        elif message is None:
            found = Slot.MARKER
        elif message.transaction in log.aborted:
            found = Slot.ABORTED
        else:
            found = Slot.HELD_BACK if offset >= log.stable else Slot.MESSAGE
        return OffsetContents(found, log.start, log.end)

    def messages(
        self, ranges: RangeSet, isolation: str = READ_UNCOMMITTED
    ) -> Iterator[tuple[OffsetRange, Iterator[tuple[int, bytes | None]]]]:
        for one in ranges:
            self._asked()
            if one.partition.partition >= len(self.logs):
                # The topic was recreated meanwhile, with fewer partitions.
                raise Unreachable(f"unknown partition: {one.partition}")
            log = self.logs[one.partition.partition]
            there = [(at, log.slots.get(at)) for at in range(one.start, one.until)]
            seen = [
                (at, b"%d" % slot.key)
                for at, slot in there
                if slot is not None and (isolation == READ_UNCOMMITTED or not _hidden(log, at, slot))
            ]
            yield one, iter(seen)

    def read(self, covers: RangeSet, isolation: str) -> dict[tuple[int, int], Message]:
        """The messages at some offsets, by partition and offset, as Spark's source gives them: by the topic's name alone."""
        if questioned():
            raise NotAuthorized("may not read the topic orders")
        self._answers()
        found = {}
        for one in covers:
            number = one.partition.partition
            log = self.logs[number] if number < len(self.logs) else Log()
            if one.start < log.start or one.until > log.end:
                raise OffsetsOutOfRange(f"{one} is not in the log [{log.start}, {log.end})")
            for at in range(one.start, one.until):
                slot = log.slots.get(at)
                if slot is None or (isolation == READ_COMMITTED and _hidden(log, at, slot)):
                    continue
                found[number, at] = slot
        return found


def _hidden(log: Log, at: int, slot: Message) -> bool:
    return slot.transaction in log.aborted or at >= log.stable


def _key(slot: Message | None) -> int:
    return -1 if slot is None else slot.key
