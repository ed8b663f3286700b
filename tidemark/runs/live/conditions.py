"""The conditions for planning a window: limits and policies of the stream file, and how large messages are."""

from __future__ import annotations

from dataclasses import fields, replace

from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST, Guarantee
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.planning import message_sizes
from tidemark.planning.inputs import KafkaState, Policies, Request
from tidemark.runs.live.open_stream import OpenStream
from tidemark.streams.source import Source, TopicPolicies

# How many windows the size of the next messages is estimated from: enough to even out an unusual one.
_SIZED_WINDOWS = 5


def request(opened: OpenStream, run: str, topics: tuple[str, ...], reason: str | None = None) -> Request:
    """A run's request to the planner, from the stream file."""
    source, limits = opened.stream.source, opened.stream.limits
    return Request(
        topics=topics,
        isolation=source.isolation,
        run=run,
        now=opened.ledger.clock(),
        reason=reason,
        max_records=limits.max_records,
        max_bytes=limits.max_bytes,
        max_behind=limits.max_behind,
        policies=_policies(source),
        by_topic={topic: _policies(said, source) for topic, said in source.by_topic.items()},
        guarantee=Guarantee(opened.stream.guarantee),
    )


def sized(opened: OpenStream, known: KafkaState, asked: Request) -> Request:
    """The request with the sizes of messages, where a limit in bytes needs them.

    Sizes come from the ingest's last windows. Where those have read nothing, they come from Kafka's logs.
    """
    if asked.max_bytes is None:
        return asked
    read = sizes_before(opened)
    others = {at: log for at, log in known.partitions().items() if at not in read and log.start < log.end}
    sizes = opened.log.sizes({at.topic for at in others}) if others else {}
    return replace(asked, bytes_per_offset={**message_sizes.from_logs(sizes, others), **read})


def sizes_before(opened: OpenStream) -> dict[TopicPartition, float]:
    """Bytes per message in the ingest's last windows, for the partitions from which they have read anything."""
    ingest = opened.ledger.head(INGEST)
    records = newest_of_lane(opened.ledger, INGEST, ingest.head if ingest else None, _SIZED_WINDOWS)
    return message_sizes.from_tallies(tally for record in records for tally in record.tallies)


def sizes_for(opened: OpenStream, wanted: RangeSet) -> dict[TopicPartition, float]:
    """As `sizes_before`, where the size decides what is read besides: for scattered offsets."""
    return sizes_before(opened) if any(len(wanted.of(at)) > 1 for at in wanted.partitions) else {}


def _policies(said: Source | TopicPolicies, otherwise: Source | None = None) -> Policies:
    """The policies of a stream file. A topic without a policy of its own has the stream's."""
    names = [policy.name for policy in fields(Policies)]
    return Policies(**{name: getattr(said, name) or getattr(otherwise, name) for name in names})
