"""A Kafka in memory, with what Kafka does to a log: transactions, retention, compaction, cuts, recreations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.actors import current, effect, questioned
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.slots import KafkaMessage, OffsetContents, Slot
from tidemark.clients.kafka.stepping import MessageStep, Steps
from tidemark.clients.kafka.topics import READ_COMMITTED, READ_UNCOMMITTED, PartitionLog, TopicLog
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.errors import NotAuthorized, OffsetsOutOfRange, Unreachable
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

TOPIC = "orders"
# The second topic of a stream of two.
SECOND = "orders-of-shops"
KEYS = 4
# Offsets that one answer gives to somebody who reads step by step.
_A_STEP = 3
Place = tuple[TopicPartition, int]


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


class Topic:
    """A topic of one id. Whoever deletes it and creates it again has another one."""

    def __init__(self, topic_id: str, partitions: int) -> None:
        self.topic_id = topic_id
        self.logs = [Log() for _ in range(partitions)]
        # Where the producers write each key. A key moves only to a partition that was added.
        self.homes = {key: key % partitions for key in range(KEYS)}


class Kafka(KafkaLog):
    """The answers of a cluster with one or two topics; what is not overridden asks a server, and so fails."""

    def __init__(self, partitions: int, others: Iterable[str] = ()) -> None:
        self._made = 0
        self._number = 0
        self._transactions = 0
        self.now = 0
        self.away = False
        # Of logs with a new leader: by how much its answers are older, and how many of them.
        self.old_ends: dict[tuple[str, int], tuple[int, int]] = {}
        # Whether any was given: above the positions, nobody can tell it from the end.
        self.gave_old_ends = False
        self.held: dict[str, Topic] = {}
        # By the number of a message: the topic's name, the partition and the offset that it was written to, and its time.
        self.written: dict[int, tuple[str, int, int, int]] = {}
        for name in (TOPIC, *others):
            self._new_topic(name, partitions)

    def _new_topic(self, name: str, partitions: int) -> None:
        self._made += 1
        self.held[name] = Topic(f"id-{self._made}", partitions)

    def parts(self) -> Iterator[tuple[str, int, Log]]:
        """Every partition that there is: its topic, its number and its log."""
        for name, topic in self.held.items():
            for number, log in enumerate(topic.logs):
                yield name, number, log

    def all_logs(self) -> list[Log]:
        return [log for _, _, log in self.parts()]

    def log(self, topic: str, number: int) -> Log | None:
        """A partition that there is now."""
        held = self.held.get(topic)
        return held.logs[number] if held is not None and number < len(held.logs) else None

    def _one(self, which: int) -> Topic | None:
        return self.held[name] if (name := self._name(which)) is not None else None

    def _name(self, which: int) -> str | None:
        return [*self.held][which % len(self.held)] if self.held else None

    # what happens to it

    def produce(
        self,
        number: int,
        shift: int,
        *,
        transaction: int | None = None,
        bad: bool = False,
        which: int = 0,
        late: int = 0,
    ) -> None:
        """`late`: how many milliseconds before now the producers say that it happened."""
        if (name := self._name(which)) is None:
            return
        topic = self.held[name]
        for n in range(number):
            key = (n * n + n // 3 + shift) % KEYS
            self._number += 1
            message = Message(self._number, key, self.now + n - late, transaction, bad=bad and n % 3 == 0)
            home = topic.homes[key]
            self.written[self._number] = name, home, topic.logs[home].end, message.time
            topic.logs[home].append(message)

    def begin(self, number: int, shift: int, which: int = 0) -> None:
        """A transaction that stays open."""
        self._transactions += 1
        self.produce(number, shift, transaction=self._transactions, which=which)

    def end(self, which: int, *, commit: bool) -> bool:
        """Commit or abort one of the open transactions; False when none is open."""
        running = sorted({one for log in self.all_logs() for one in log.running})
        if not running:
            return False
        ended = running[which % len(running)]
        for log in self.all_logs():
            if log.running.pop(ended, None) is not None:
                if not commit:
                    log.aborted.add(ended)
                log.append(None)
        return True

    def compact(self, tail: int) -> None:
        """Of each key the newest message stays, and what is in the active segment, or not yet stable."""
        for log in self.all_logs():
            below = min(log.stable, log.end - tail)
            held = {at: one for at, one in log.slots.items() if one is not None and one.transaction not in log.aborted}
            newest = {one.key: at for at, one in sorted(held.items())}
            log.slots = {at: log.slots[at] for at in log.slots if at >= below or newest.get(_key(held.get(at))) == at}

    def retain(self, number: int) -> None:
        for log in self.all_logs():
            log.start = min(log.stable, log.start + number)
            log.slots = {at: one for at, one in log.slots.items() if at >= log.start}

    def cut(self, which: int, by: int, more: int, topic: int = 0) -> None:
        """An unclean election: the last messages are lost, and producers write on to another leader."""
        if (held := self._one(topic)) is None:
            return
        log = held.logs[which % len(held.logs)]
        log.end = max(log.start, log.end - by)
        log.slots = {at: one for at, one in log.slots.items() if at < log.end}
        log.running = {one: first for one, first in log.running.items() if first < log.end}
        log.epochs = [(epoch, first) for epoch, first in log.epochs if first <= log.end]
        self.lead(which, topic)
        self.produce(more, which, which=topic)

    def lead(self, which: int, topic: int = 0) -> None:
        """Another broker becomes the leader, and nothing is lost."""
        if (held := self._one(topic)) is not None:
            log = held.logs[which % len(held.logs)]
            log.leader_epoch += 1
            log.epochs.append((log.leader_epoch, log.end))

    def lead_with_old_ends(self, which: int, by: int, times: int, topic: int = 0) -> None:
        """The new leader does not know yet how far the log goes (KAFKA-7703), and says so to whoever asks first."""
        if (held := self._one(topic)) is not None:
            self.lead(which, topic)
            name = next(name for name, one in self.held.items() if one is held)
            self.old_ends[name, which % len(held.logs)] = by, times

    def _end_said(self, name: str, number: int, log: Log) -> int:
        by, left = self.old_ends.get((name, number), (0, 0))
        if current() is None or not left:
            return log.end
        self.old_ends[name, number] = by, left - 1
        self.gave_old_ends = True
        return max(log.start, log.end - by)

    def recreate(self, partitions: int, number: int, which: int = 0) -> None:
        if self.held:
            self._new_topic([*self.held][which % len(self.held)], partitions)
            self.produce(number, partitions, which=which)

    def delete(self, which: int) -> None:
        """Somebody deletes a topic, and nobody creates it again yet."""
        if self.held:
            del self.held[[*self.held][which % len(self.held)]]

    def create(self, name: str, partitions: int, number: int) -> None:
        """Somebody creates a topic, unless it is there."""
        if name not in self.held:
            self._new_topic(name, partitions)
            self.produce(number, partitions, which=[*self.held].index(name))

    def add_partition(self, name: str) -> None:
        """The keys that move are written there from now on."""
        topic = self.held[name]
        topic.logs.append(Log())
        topic.homes[self._number % KEYS] = len(topic.logs) - 1

    # what it says

    def _asked(self) -> None:
        effect()
        self._answers()

    def _answers(self) -> None:
        if self.away and current() is not None:
            raise Unreachable("Kafka at 127.0.0.1:9092 did not answer")

    def names(self) -> set[str]:
        self._asked()
        return {*self.held}

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        if questioned():
            raise NotAuthorized("may not read the topic orders")
        self._answers()
        return {
            name: TopicLog(
                topic.topic_id,
                {
                    number: PartitionLog(
                        log.start, min(log.stable, end) if isolation == READ_COMMITTED else end, log.leader_epoch, end
                    )
                    for number, log in enumerate(topic.logs)
                    for end in [self._end_said(name, number, log)]
                },
            )
            for name, topic in self.held.items()
            if name in {*names}
        }

    def high_watermarks(self, logs: Mapping[str, TopicLog]) -> dict[tuple[str, int], int]:
        self._asked()
        return {at: self._there(at).end for at in _named(logs)}

    def _there(self, at: tuple[str, int]) -> Log:
        """Raises Unreachable where a topic was deleted meanwhile, or recreated with fewer partitions."""
        if (log := self.log(*at)) is None:
            raise Unreachable(f"unknown partition: {at}")
        return log

    def epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        if not asked:
            return {}
        self._asked()
        return {
            at: next((first for newer, first in log.epochs if newer > epoch), log.end)
            for at, epoch in asked.items()
            if (log := self.log(*at)) is not None
        }

    def first_at_or_after(
        self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str
    ) -> dict[tuple[str, int], int | None]:
        self._asked()
        found: dict[tuple[str, int], int | None] = {}
        for at in _named(logs):
            log = self._there(at)
            end = log.stable if isolation == READ_COMMITTED else log.end
            there = (at for at, one in sorted(log.slots.items()) if at < end and one and one.time >= timestamp_ms)
            found[at] = next(there, None)
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
        for place, (start, end) in ends.items():
            log = self.log(*place)
            slots = log.slots if log is not None else {}
            times = [one.time for at, one in sorted(slots.items()) if one is not None and start <= at < end]
            if times:
                found[place] = times[0]
        return found

    def compacted(self, topics: Iterable[str]) -> set[str]:
        self._asked()
        return {*self.held} & {*topics}

    def slot(self, topic: str, partition: int, offset: int) -> OffsetContents | None:
        self._asked()
        if (log := self.log(topic, partition)) is None:
            return None
        message = log.slots.get(offset)
        if offset < log.start:
            found = Slot.EXPIRED
        elif offset >= log.end:
            found = Slot.BEYOND
        elif offset not in log.slots:
            found = Slot.COMPACTED
        elif message is None:
            found = Slot.MARKER
        elif offset >= log.stable:
            found = Slot.HELD_BACK
        else:
            found = Slot.ABORTED if message.transaction in log.aborted else Slot.MESSAGE
        return OffsetContents(found, log.start, log.end, None if message is None else _as_read(message))

    def messages(self, ranges: RangeSet) -> Iterator[tuple[OffsetRange, Iterator[tuple[int, bytes | None]]]]:
        for one in ranges:
            self._asked()
            log = self._there((one.partition.topic, one.partition.partition))
            there = [(at, log.slots.get(at)) for at in range(one.start, one.until)]
            seen = [(at, b"%d" % slot.key) for at, slot in there if slot is not None]
            yield one, iter(seen)

    @contextmanager
    def stepping(self, isolation: str) -> Iterator[Steps]:
        def steps(topic: str, partition: int, start: int, until: int) -> Iterator[MessageStep]:
            for reached in range(start, until, _A_STEP):
                self._asked()
                log = self._there((topic, partition))
                if reached < log.start or log.end < until:
                    raise OffsetsOutOfRange(f"Kafka has just deleted offsets of {topic}/{partition}")
                end = min(until, reached + _A_STEP)
                there = ((at, log.slots.get(at)) for at in range(reached, end))
                yield MessageStep(
                    end,
                    tuple(
                        (at, _as_read(slot))
                        for at, slot in there
                        if slot is not None and (isolation == READ_UNCOMMITTED or not _hidden(log, at, slot))
                    ),
                )

        yield steps

    def read(self, covers: RangeSet, isolation: str) -> dict[Place, Message]:
        """The messages at some offsets, as Spark's source gives them: by the topic's name and the partition's number alone."""
        if questioned():
            raise NotAuthorized("may not read the topic orders")
        self._answers()
        found = {}
        for one in covers:
            log = self.log(one.partition.topic, one.partition.partition) or Log()
            if one.start < log.start or one.until > log.end:
                raise OffsetsOutOfRange(f"{one} is not in the log [{log.start}, {log.end})")
            for at in range(one.start, one.until):
                slot = log.slots.get(at)
                if slot is None or (isolation == READ_COMMITTED and _hidden(log, at, slot)):
                    continue
                found[one.partition, at] = slot
        return found


def _named(logs: Mapping[str, TopicLog]) -> Iterator[tuple[str, int]]:
    return ((topic, number) for topic, log in logs.items() for number in log.partitions)


def _as_read(slot: Message) -> KafkaMessage:
    return KafkaMessage(slot.time, False, b"%d" % slot.key, b"%d" % slot.number, ())


def _hidden(log: Log, at: int, slot: Message) -> bool:
    return slot.transaction in log.aborted or at >= log.stable


def _key(slot: Message | None) -> int:
    return -1 if slot is None else slot.key
