"""Which messages people mean: a topic, a partition or a range of it, a window, and times. Only of topics of the stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import Conflict, WrongUse
from tidemark.ledger.elsewhere import erased_elsewhere, erased_here
from tidemark.ledger.incarnations import assign_incarnations
from tidemark.ledger.records import Record, TopicIncarnation
from tidemark.offsets.coordinates import NamedOffsets, parse_ranges
from tidemark.offsets.ranges import FIRST_INCARNATION, OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.times import milliseconds
from tidemark.runs.live.message_lookup import check_met, head_before_topics, of_the_stream
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import check_same, first_at
from tidemark.runs.requests.selecting import times

_TOPIC = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})(?:/(?P<partition>\d{1,10}))?")
_WINDOW = re.compile(r"(?P<lane>[A-Za-z0-9-]{1,60})/(?P<seq>\d{1,19})")


@dataclass(frozen=True)
class SearchScope:
    """The messages that are searched. `where`: TOPIC, TOPIC/PARTITION or a range; empty for all that the stream reads.

    `window`: a committed window as LANE/NUMBER. `since` and `until`: times with their zone, of messages from the first
    at or after it, or up to it.
    """

    where: str = ""
    window: str = ""
    since: str = ""
    until: str = ""

    @property
    def topic(self) -> str | None:
        """The topic, where one is named. Raises WrongUse."""
        named = self._named()
        return named if isinstance(named, str | None) else named[0].topic

    def _named(self) -> str | tuple[TopicPartition, NamedOffsets] | None:
        """The topic, or the partition with its named offsets."""
        text = self.where.strip()
        if not text:
            return None
        if (whole := _TOPIC.fullmatch(text)) is not None:
            if whole["partition"] is None:
                return whole["topic"]
            at = TopicPartition(whole["topic"], int(whole["partition"]))
            return at, NamedOffsets(RangeSet([OffsetRange(at, 0, 2**63 - 1)]))
        named = parse_ranges(text, "where")
        ranges = [one for _, one in named.ranges()]
        if len(ranges) != 1:
            raise WrongUse(f"where: {text[:100]!r}: expected one topic, topic/partition, or topic/partition@from-until")
        return ranges[0].partition, named

    def only(self, offsets: RangeSet) -> RangeSet:
        """Those among some offsets, in their incarnations, that are named: without an incarnation, in any."""
        named = self._named()
        if named is None:
            return offsets
        if isinstance(named, str):
            return offsets.only([at for at in offsets.partitions if at.topic == named])
        at, ranges = named
        anywhere = RangeSet.of_intervals(
            (own, ranges.open.of(one))
            for own in offsets.partitions
            for one in ranges.open.partitions
            if own[:2] == at[:2]
        )
        return offsets & (anywhere | ranges.exact)


def window_record(opened: OpenStream, name: str) -> Record:
    """The committed window of this name. Raises WrongUse where there is none."""
    match = _WINDOW.fullmatch(name)
    if match is None:
        raise WrongUse(f"window {name[:100]}: expected LANE/NUMBER, such as ingest/17")
    stored, seq = opened.ledger.head(match["lane"]), int(match["seq"])
    if stored is not None and stored.head.last is not None and stored.head.last.seq == seq:
        return stored.head.last
    records = (
        list(opened.ledger.records([(match["lane"], seq)])) if stored is not None and 0 < seq <= stored.head.seq else []
    )
    if not records:
        raise WrongUse(f"window {name}: {opened.ledger.stream} has no committed window of this name")
    return records[0]


@dataclass(frozen=True)
class InKafka:
    """The offsets that are looked through, in their incarnations; those of them that were erased; the log as it is."""

    topic: str
    log: TopicLog
    offsets: RangeSet
    erased: RangeSet


def in_kafka(opened: OpenStream, where: SearchScope) -> InKafka:
    """Kafka's part of what is named: of a topic that the stream reads or has read, in incarnations that the ledger knows.

    Raises WrongUse, Conflict for a topic that was recreated and that the stream does not read yet, Unreachable, NotAuthorized.
    """
    topic = where.topic or _only_topic(opened, where)
    if topic not in of_the_stream(opened, [topic]):
        raise WrongUse(
            f"the stream reads no topic {topic}, and no window of it has read one; expected a topic, topic/partition, or "
            "topic/partition@from-until"
        )
    ingest = head_before_topics(opened)
    log = opened.log.topics((topic,), opened.stream.source.isolation).get(topic)
    if log is None:
        raise WrongUse(f"Kafka has no topic {topic}")
    known = _same(topic, opened.ledger.topics().get(topic, ()), log)
    there = {number: one for number, one in log.partitions.items() if one.start < one.end}
    offsets = RangeSet(OffsetRange(TopicPartition(topic, number), one.start, one.end) for number, one in there.items())
    offsets = where.only(assign_incarnations({topic: known}, _between(opened, where, {topic: log}, offsets)))
    if where.window:
        offsets &= opened.ledger.covers(window_record(opened, where.window).window)
    check_met(opened, ingest, {topic: log}, offsets)
    return InKafka(topic, log, offsets, _erased(opened, topic, known) & offsets)


def _only_topic(opened: OpenStream, where: SearchScope) -> str:
    """The topic that is meant where none is named: that of the window, or the stream's only one."""
    named = set(opened.stream.source.named())
    if where.window:
        named = {one.at.topic for one in window_record(opened, where.window).window.ranges}
    if len(named) != 1:
        raise WrongUse("where: name a topic of the stream, or topic/partition")
    return named.pop()


def _same(topic: str, known: tuple[TopicIncarnation, ...], log: TopicLog) -> tuple[TopicIncarnation, ...]:
    """The incarnations of the very topic that Kafka has."""
    if not known:
        return (TopicIncarnation(topic_id=log.topic_id, incarnation=FIRST_INCARNATION, since=0),)
    same = tuple(one for one in known if one.topic_id == log.topic_id)
    if not same:
        raise Conflict(
            f"topic {topic} was deleted and created again, and the stream does not read the new one yet: there is nothing to "
            "look through until an ingest has taken it"
        )
    return same


def _between(opened: OpenStream, where: SearchScope, logs: Mapping[str, TopicLog], offsets: RangeSet) -> RangeSet:
    lower, upper = (
        None if one is None else first_at(opened, logs, milliseconds(one)) for one in times(where.since, where.until)
    )
    parts = []
    for one in offsets:
        place = (one.partition.topic, one.partition.partition)
        # Where no message is at or after a time: nothing from there on, and everything up to there.
        start = one.start if lower is None else one.until if (at := lower.get(place)) is None else max(at, one.start)
        until = one.until if upper is None or (at := upper.get(place)) is None else min(at, one.until)
        if start < until:
            parts.append(OffsetRange(one.partition, start, until))
    return RangeSet(parts)


def _erased(opened: OpenStream, topic: str, known: tuple[TopicIncarnation, ...]) -> RangeSet:
    """The erased offsets of a topic, here or by other streams of the ledger, in each of its incarnations.

    An offset that was erased in one is so in all: what was taken for a cut may have been none.
    """
    register = opened.ledger.register()
    own = [one.offsets for one in erased_here(opened.ledger, register[1])] if register else []
    others = [one.offsets for one in erased_elsewhere(opened.ledger, {topic: known})]
    return RangeSet.of_intervals(
        (TopicPartition(topic, at.partition, one.incarnation), found.of(at))
        for found in (*own, *others)
        for at in found.partitions
        if at.topic == topic and at.incarnation in {same.incarnation for same in known}
        for one in known
    )


@dataclass(frozen=True)
class SearchCursor:
    """Where a question that goes on begins, and the log that the one before has seen.

    `step`: how many offsets it reads first, from the newest back.
    """

    partition: int
    offset: int
    step: int
    topic_id: str
    epoch: int | None
    written: int

    def __str__(self) -> str:
        epoch = "" if self.epoch is None else self.epoch
        return f"{self.partition}:{self.offset}:{self.step}:{self.topic_id}:{epoch}:{self.written}"

    @classmethod
    def read(cls, text: str) -> SearchCursor:
        """Raises WrongUse for a text that no answer has given."""
        match = re.fullmatch(r"(\d{1,10}):(\d{1,19}):(\d{1,10}):([\w-]{1,60}):(\d{0,10}):(\d{1,19})", text, re.ASCII)
        if match is None:
            raise WrongUse("go_on: expected what the answer before has given")
        partition, offset, step, topic_id, epoch, written = match.groups()
        return cls(int(partition), int(offset), int(step), topic_id, int(epoch) if epoch else None, int(written))

    @classmethod
    def after(cls, partition: int, offset: int, step: int, log: TopicLog) -> SearchCursor:
        own = log.partitions[partition]
        return cls(partition, offset, step, log.topic_id, own.leader_epoch, own.written)

    def check(self, opened: OpenStream, topic: str) -> None:
        """Raises Conflict where the topic was recreated, or its log cut, since the answer before."""
        before = PartitionLog(0, self.written, self.epoch)
        check_same(opened, {topic: TopicLog(self.topic_id, {self.partition: before})})
