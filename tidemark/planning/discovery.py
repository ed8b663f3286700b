"""What there is to read now: the topics of a stream, what Kafka says of them, and what the ledger knows them as."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tidemark.errors import TopicUnknown
from tidemark.kafka.log import newer_epochs
from tidemark.kafka.topics import TopicLog
from tidemark.ledger import ordering
from tidemark.ledger.incarnations import Topics, accepted, learned, newest
from tidemark.ledger.records import INGEST, Head, Register, Window
from tidemark.ledger.register import change_topics
from tidemark.planning import checking
from tidemark.planning.inputs import Known, Request
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.streams.opened import OpenStream

# A broker that has just become leader may give an older end than the one before it (KAFKA-7703): ask again, then believe it.
_STALE_ANSWERS = 3
_STALE_PAUSE_SECONDS = 1.0


def topics_now(opened: OpenStream) -> tuple[str, ...]:
    """The topics that the stream reads: those that are named; of a pattern those that match now, or that were read and match.

    Raises TopicUnknown when no topic matches.
    """
    source = opened.stream.source
    if source.pattern is None:
        return source.named()
    ingest = opened.book.head(INGEST)
    read = {at.topic for at in ingest.head.offsets()} if ingest else set()
    found = tuple(sorted(topic for topic in opened.log.names() | read if source.reads(topic)))
    if not found:
        raise TopicUnknown(f"no topic matches source.pattern {source.pattern!r}: create one, or correct the pattern")
    return found


def known_now(opened: OpenStream, topics: tuple[str, ...], *, learn: bool = True) -> Known:
    """What Kafka says of these topics, and the incarnations that the ledger knows them as.

    Topics that are new are entered in the ledger; without `learn`, they only get the number that they would have there.
    """
    logs = opened.log.topics(topics, opened.stream.source.isolation)
    found = opened.book.register()
    known = found[1].topics if found else {}
    # A plan that will be refused for a missing topic leaves the ledger as it is.
    missing = [topic for topic in topics if topic not in logs and not (topic in known and newest(known, topic).left)]
    if learn and not missing:
        return _known(opened, logs, change_topics(opened.book, partial(_learned, opened, logs)))
    return _known(opened, logs, _learned(opened, logs, known))


def known_to_ingest(opened: OpenStream, request: Request, head: Head, *, learn: bool = True) -> Known:
    """As `known_now`, for the lane's positions: what a policy accepts is accepted, and it is noted when partitions were added.

    Without `learn` the ledger stays as it is, and the answer is what it would be.
    """
    known = _known_to_ingest(opened, request, head, learn=learn)
    if learn:
        _note_partitions(opened, known, head, request.now)
    return known


def _note_partitions(opened: OpenStream, known: Known, head: Head, now: int) -> None:
    """Where the order of a topic's messages changes because partitions were added: where its logs end now."""
    found = opened.book.register()
    read = head.offsets()
    ends = {at: max(log.end, read.get(at, 0)) for at, log in known.partitions().items()}
    if found is None or ordering.noted(found[1].topics, ends, now) is found[1].topics:
        return
    # Not the last stable offsets: what an open transaction holds back was written before too.
    high = opened.log.high_watermarks(known.logs)
    ends = {at: max(end, high[at.topic, at.partition]) for at, end in ends.items()}
    change_topics(opened.book, lambda topics: ordering.noted(topics, ends, now))


def _known_to_ingest(opened: OpenStream, request: Request, head: Head, *, learn: bool = True) -> Known:
    """As `known_now`, for the lane's positions: logs that were cut are found out, and what a policy accepts is accepted."""
    known, positions = known_now(opened, request.topics, learn=learn), head.offsets()
    for _ in range(_STALE_ANSWERS):
        if not any(log.end < positions.get(at, 0) for at, log in known.partitions().items()):
            break
        time.sleep(_STALE_PAUSE_SECONDS)
        known = known_now(opened, request.topics, learn=learn)
    known = with_epoch_ends(opened, known, head)
    found = checking.changes(head, known, request)
    if not found:
        return known

    def accept(topics: Topics) -> Topics:
        topics = _learned(opened, known.logs, topics)
        for change in found:
            topics = accepted(topics, change, request.run, request.now)
        return topics

    if learn:
        return _known(opened, known.logs, change_topics(opened.book, accept))
    register = opened.book.register()
    return _known(opened, known.logs, accept(register[1].topics if register else {}))


def lost_since_pin(opened: OpenStream, window: Window) -> RangeSet:
    """The offsets of a pinned window that Kafka has deleted since."""
    logs = opened.log.topics(window.topic_ids, window.isolation)
    return RangeSet(
        OffsetRange(one.at, one.start, min(one.until, logs[one.topic].partitions[one.partition].start))
        for one in window.ranges
        if one.topic in logs
        and one.partition in logs[one.topic].partitions
        and logs[one.topic].topic_id == window.topic_ids[one.topic]
        and one.start < min(one.until, logs[one.topic].partitions[one.partition].start)
    )


def with_epoch_ends(opened: OpenStream, known: Known, ingest: Head) -> Known:
    """With the ends of the leader epochs that the last window of the ingest was pinned under, where there is a newer leader."""
    if ingest.last is None:
        return known
    ends = opened.log.epoch_ends(newer_epochs(ingest.last.window, known.logs))
    incarnations = known.incarnations
    return replace(
        known,
        epoch_ends={
            TopicPartition(topic, partition, incarnations[topic]): end
            for (topic, partition), end in ends.items()
            if topic in incarnations
        },
    )


def _learned(opened: OpenStream, logs: Mapping[str, TopicLog], topics: Topics) -> Topics:
    return learned(topics, {topic: log.topic_id for topic, log in logs.items()}, opened.book.clock())


def _known(opened: OpenStream, logs: Mapping[str, TopicLog], topics: Topics) -> Known:
    last = {topic: newest(topics, topic) for topic in topics}
    current = {
        topic: last[topic] for topic, log in logs.items() if topic in last and last[topic].topic_id == log.topic_id
    }
    return Known(
        logs,
        {topic: one.incarnation for topic, one in current.items()},
        chosen=opened.stream.source.partitions,
        left=frozenset(topic for topic, one in last.items() if one.left is not None and topic not in logs),
        starts={
            TopicPartition(topic, partition, one.incarnation): offset
            for topic, one in current.items()
            for partition, offset in one.starts
        },
    )


def newest_incarnations(register: Register) -> dict[str, int]:
    return {topic: newest(register.topics, topic).incarnation for topic in register.topics}
