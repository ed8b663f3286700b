"""The ledger's knowledge of topics: which id is which incarnation, and how an accepted change begins a new one. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, structs

from tidemark.ledger.records import Accepted, RaisedOrder, TopicChange, TopicIncarnation
from tidemark.offsets.coordinates import Coordinate, exactly
from tidemark.offsets.ranges import FIRST_INCARNATION, MAX_OFFSET, OffsetRange, RangeSet, TopicPartition

# Where a value that is kept names offsets, as `str` writes them: a partition, a range or a coordinate, maybe that of a block,
# and a key after it. The first incarnation is left out. That is another one than the newest as soon as a topic was recreated.
At = Annotated[str, Meta(extra={"names": "offsets"})]
_AT = re.compile(r"((?:block )?)([A-Za-z0-9._-]+)(?:#(\d+))?/(\d+)(?:@(\d+)(?:-(\d+))?)?(|\s.*)", re.DOTALL)

# As in the register.
Topics = dict[str, tuple[TopicIncarnation, ...]]


@dataclass(frozen=True)
class Change:
    """Another topic or log under a known name, which a policy accepts. `starts` are (partition, offset) pairs."""

    change: TopicChange
    topic: str
    topic_id: str
    # The incarnation that the ledger knows until now.
    after: int
    policy: str
    starts: tuple[tuple[int, int], ...] = ()


def newest(topics: Topics, topic: str) -> TopicIncarnation:
    return max(topics[topic], key=lambda incarnation: incarnation.incarnation)


def recreated(topics: Topics, ids: Mapping[str, str]) -> frozenset[str]:
    """The topics whose ids in Kafka are not those that the ledger knows: other topics of the same names."""
    known = {topic: newest(topics, topic).topic_id for topic in ids if topic in topics}
    return frozenset(topic for topic, topic_id in ids.items() if known.get(topic, topic_id) != topic_id)


def assign_incarnations(topics: Topics, offsets: RangeSet) -> RangeSet:
    """Offsets that were named without an incarnation, in those to which they belong: below the cut of a log, an earlier one.

    Topics that the ledger does not know stay as they are.
    """
    placed = []
    for at in offsets.partitions:
        rest = offsets.only([at])
        for incarnation in sorted(topics.get(at.topic, ()), key=lambda incarnation: -incarnation.incarnation):
            start = dict(incarnation.starts).get(at.partition, 0)
            above = rest & RangeSet([OffsetRange(at, start, MAX_OFFSET)])
            placed.append((TopicPartition(at.topic, at.partition, incarnation.incarnation), above.of(at)))
            rest -= above
        placed.append((at, rest.of(at)))
    return RangeSet.of_intervals(placed)


def written(topics: Topics, at: Coordinate) -> str:
    """A coordinate as people take it from a page into a request: in three parts only where these mean this very message."""
    return f"{written_partition(topics, RangeSet([at.as_range()]))}@{at.offset}"


def written_partition(topics: Topics, offsets: RangeSet) -> str:
    """The partition of some offsets, in front of their ranges: without its incarnation only where these offsets are meant."""
    (at,) = offsets.partitions
    first = at.incarnation == FIRST_INCARNATION
    return exactly(at) if first and assign_incarnations(topics, offsets) != offsets else str(at)


def written_range(topics: Topics, range_: OffsetRange) -> str:
    """A range as people take it from a page into a request, as `written` does a coordinate."""
    # An empty one is where its offsets would be.
    offsets = RangeSet([range_ if len(range_) else Coordinate(range_.partition, range_.start).as_range()])
    return f"{written_partition(topics, offsets)}@{range_.start}-{range_.until}"


def rewritten(topics: Topics, text: str) -> str:
    """An `At`, as people take it into a request."""
    place = _AT.fullmatch(text)
    if place is None:
        return text
    before, topic, incarnation, partition, start, until, after = place.groups()
    at = TopicPartition(topic, int(partition), int(incarnation or FIRST_INCARNATION))
    if start is None:
        return f"{before}{at if len(topics.get(topic, ())) < 2 else exactly(at)}{after}"
    named = OffsetRange(at, int(start), int(until or int(start) + 1))
    return f"{before}{written_range(topics, named) if until else written(topics, Coordinate(at, named.start))}{after}"


def learned(topics: Topics, topic_ids: Mapping[str, str], now: int) -> Topics:
    """The topics, with new ones added in their first incarnation. `now` is in milliseconds since 1970.

    A known topic with another id stays as it is: the planner refuses or accepts the change.
    """
    new = {
        topic: (TopicIncarnation(topic_id=topic_id, incarnation=FIRST_INCARNATION, since=now),)
        for topic, topic_id in topic_ids.items()
        if topic not in topics
    }
    return {**topics, **new} if new else topics


def accepted(topics: Topics, change: Change, run: str, now: int) -> Topics:
    """The topics with a change that a policy accepts; unchanged when another run has accepted a change since it was seen."""
    if change.topic not in topics:
        # After `ledger rebuild`, nobody knows the id of a topic that has positions and of which no window has read anything.
        topics = {**topics, change.topic: (TopicIncarnation(topic_id="", incarnation=change.after, since=now),)}
    last = newest(topics, change.topic)
    event = Accepted(change=change.change, policy=change.policy, run=run, at=now)
    others = tuple(incarnation for incarnation in topics[change.topic] if incarnation is not last)
    if last.incarnation != change.after:
        return topics
    if change.change == TopicChange.DELETED:
        return topics if last.left else {**topics, change.topic: (*others, structs.replace(last, left=event))}
    following = TopicIncarnation(
        topic_id=change.topic_id,
        incarnation=last.incarnation + 1,
        since=now,
        begun=event,
        starts=change.starts,
        # A truncated topic is the same topic: keep its number of partitions, so that the ledger notes added ones.
        partitions=last.partitions if change.change == TopicChange.TRUNCATED else None,
        raised=still_rising(last, dict(change.starts)) if change.change == TopicChange.TRUNCATED else (),
    )
    return {**topics, change.topic: (*others, last, following)}


def still_rising(last: TopicIncarnation, starts: Mapping[int, int]) -> tuple[RaisedOrder, ...]:
    """The unfinished rise of the order epoch in a log that was cut: producers may not know the added partitions yet."""
    if not last.raised or last.raised[-1].later is not None:
        return ()
    rising = last.raised[-1]
    return (structs.replace(rising, ends=tuple((partition, starts.get(partition, 0)) for partition, _ in rising.ends)),)
