"""Looking at one message in Kafka. A stream shows the messages that it reads or has read, and nobody what was erased.

Kafka's connection may read more topics than a stream, and who may see a stream may not see these. So everything that shows a
message, or says what Kafka has of a topic that a user names, asks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.clients.kafka.slots import OffsetContents
from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import AuthenticationFailed, Conflict, NotAuthorized, TopicUnknown, Unreachable, WrongUse
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.elsewhere import erased_elsewhere
from tidemark.ledger.erasures import erased_by, is_erased
from tidemark.ledger.incarnations import assign_incarnations
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import INGEST, Head, TopicIncarnation, erases
from tidemark.offsets.coordinates import Coordinate, in_four_parts
from tidemark.offsets.ranges import FIRST_INCARNATION, RangeSet, TopicPartition
from tidemark.runs.live.kafka_now import topics_now, unmet_cuts
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import check_same


@dataclass(frozen=True)
class SlotInKafka:
    """Kafka's answer for a coordinate: None if it has no such partition, or none of its incarnation; or why it said nothing.

    `hidden`: by what the message was erased, here or in another stream of the ledger. Then nothing of it is shown.
    """

    slot: OffsetContents | str | None
    hidden: str | None = None
    # Whether the topic is one of the stream: otherwise Kafka was not asked.
    ours: bool = True


def of_the_stream(opened: OpenStream, named: Iterable[str]) -> set[str]:
    """Those among some topics that the stream reads, or that its ledger knows.

    The names are people's. So none is matched against the stream's pattern: a name has to be one that the pattern found
    in Kafka. For that, Kafka is asked, and Unreachable or NotAuthorized raised.
    """
    source, wanted = opened.stream.source, set(named)
    topics = wanted & {*opened.ledger.topics(), *source.named()}
    if topics == wanted or source.pattern is None:
        return topics
    try:
        return topics | wanted & set(topics_now(opened))
    except TopicUnknown:
        return topics


def check_known(opened: OpenStream, at: Coordinate) -> None:
    """Raises WrongUse for an incarnation that the ledger does not know. A topic that no window has read has the first one."""
    known = opened.ledger.topics().get(at.partition.topic, ())
    numbers = sorted(incarnation.incarnation for incarnation in known) or [FIRST_INCARNATION]
    if at.partition.incarnation not in numbers:
        raise WrongUse(
            f"{at}: the ledger knows no incarnation {at.partition.incarnation} of {at.partition.topic}; it knows "
            f"{', '.join(map(str, numbers))}. Name one of these, or leave the incarnation out"
        )


def look(opened: OpenStream, at: Coordinate) -> SlotInKafka:
    """The contents of a coordinate of the stream in Kafka, and never a message that was erased.

    Of another topic, Kafka is not asked. Raises the ledger's errors, and those of `of_the_stream`.
    """
    topic = at.partition.topic
    if topic not in of_the_stream(opened, [topic]):
        return SlotInKafka(None, ours=False)
    ingest = head_before_topics(opened)
    known = opened.ledger.topics().get(topic, ())
    hidden = _erased(opened, known, at)
    try:
        now = opened.log.topics((topic,), opened.stream.source.isolation).get(topic)
        if now is None:
            return SlotInKafka(None, hidden)
        if not known:
            known = (TopicIncarnation(topic_id=now.topic_id, incarnation=FIRST_INCARNATION, since=0),)
            hidden = _erased(opened, known, at)
        slot = _slot(opened, ingest, known, now, at)
    except (Conflict, Unreachable, NotAuthorized, AuthenticationFailed) as problem:
        return SlotInKafka(f"{type(problem).__name__}: {problem}", hidden)
    if slot is not None and hidden is not None:
        slot = replace(slot, message=None)
    return SlotInKafka(slot, hidden)


def slot_at(opened: OpenStream, at: Coordinate) -> OffsetContents | None:
    """Kafka's answer for a coordinate that a window has read; None if it has no such partition, or none of its incarnation.

    Raises Conflict for a log that was cut meanwhile or a topic that was recreated, Unreachable, NotAuthorized.
    """
    ingest, topic = head_before_topics(opened), at.partition.topic
    known = opened.ledger.topics().get(topic, ())
    now = opened.log.topics((topic,), opened.stream.source.isolation).get(topic)
    return None if now is None else _slot(opened, ingest, known, now, at)


def _slot(
    opened: OpenStream, ingest: Head | None, known: Sequence[TopicIncarnation], now: TopicLog, at: Coordinate
) -> OffsetContents | None:
    """Kafka is asked for an offset by names: before that and after it, its topic has to be the one that was read."""
    if not _holds(known, now.topic_id, at):
        return None
    check_met(opened, ingest, {at.partition.topic: now}, RangeSet([at.as_range()]))
    slot = opened.log.slot(at.partition.topic, at.partition.partition, at.offset)
    check_same(opened, {at.partition.topic: now})
    return slot


def head_before_topics(opened: OpenStream) -> Head | None:
    """The ingest's head for `check_met`, read before the ledger's topics.

    An ingest may meet a cut between the two. By its newer head, nothing would be wrong with offsets that were placed in the
    older incarnation.
    """
    ingest = opened.ledger.head(INGEST)
    return None if ingest is None else ingest.head


def check_met(opened: OpenStream, ingest: Head | None, logs: Mapping[str, TopicLog], offsets: RangeSet) -> None:
    """Raises Conflict where some offsets lie above a cut that no run has met: the ledger has no incarnation for them yet."""
    cuts = unmet_cuts(opened, logs, ingest)
    for one in offsets:
        cut = cuts.get(one.partition[:2])
        if cut is not None and cut < one.until:
            at = f"{one.partition.topic}/{one.partition.partition}"
            raise Conflict(
                f"the log of {at} was cut at {cut}, and no ingest has met that yet: from there on Kafka has other messages "
                f"than those that were read. What lies below is {at}@0-{cut}"
            )


def _holds(known: Sequence[TopicIncarnation], topic_id: str, at: Coordinate) -> bool:
    """Whether an offset of the topic that Kafka has is of this incarnation.

    Below the cut of a log, Kafka has what an earlier incarnation has read; above it, nothing of that one any more.
    """
    topic, partition, incarnation = at.partition
    anywhere = RangeSet([Coordinate(TopicPartition(topic, partition), at.offset).as_range()])
    ours = {incarnation.incarnation for incarnation in known if incarnation.topic_id == topic_id}
    return incarnation in ours and (at.partition, at.offset) in assign_incarnations({topic: tuple(known)}, anywhere)


def _erased(opened: OpenStream, known: Sequence[TopicIncarnation], at: Coordinate) -> str | None:
    """Why the message of a topic id, a partition and an offset was erased; None if it was not."""
    ids = {incarnation.topic_id for incarnation in known if incarnation.incarnation == at.partition.incarnation}
    same = tuple(incarnation for incarnation in known if incarnation.topic_id in ids)
    if any(erases(lane) for lane in all_lanes(opened.ledger)):
        # Even where it was erased as one of another incarnation: what was taken for a cut may have been none.
        for incarnation in same:
            place = Coordinate(at.partition._replace(incarnation=incarnation.incarnation), at.offset)
            record = look_up(opened.ledger, place).counting()
            if record is not None and is_erased(opened.ledger, record, place):
                return f"{erased_by(record)}, as {in_four_parts(place)}"
    for other in erased_elsewhere(opened.ledger, {at.partition.topic: same}):
        if (at.partition, at.offset) in other.offsets:
            return other.said()
    return None
