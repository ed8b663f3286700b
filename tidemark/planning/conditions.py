"""Under which conditions a window is planned: limits and policies of the stream file, and how large messages are."""

from __future__ import annotations

from dataclasses import fields, replace

from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST, Guarantee
from tidemark.planning import message_sizes
from tidemark.planning.inputs import Known, Policies, Request
from tidemark.streams.opened import OpenStream
from tidemark.streams.source import Source, TopicPolicies

# Windows whose messages say how large the next ones are: enough to even out one that was unusual.
_SIZED_WINDOWS = 5


def request(opened: OpenStream, run: str, topics: tuple[str, ...], reason: str | None = None) -> Request:
    """What a run asks the planner for, by the stream file."""
    source, limits = opened.stream.source, opened.stream.limits
    return Request(
        topics=topics,
        isolation=source.isolation,
        run=run,
        now=opened.book.clock(),
        reason=reason,
        max_records=limits.max_records,
        max_bytes=limits.max_bytes,
        max_behind=limits.max_behind,
        policies=_policies(source),
        by_topic={topic: _policies(said, source) for topic, said in source.by_topic.items()},
        guarantee=Guarantee(opened.stream.guarantee),
    )


def sized(opened: OpenStream, known: Known, asked: Request) -> Request:
    """With how large messages are, where a limit in bytes asks for it.

    In the ingest's last windows, and in Kafka's logs where those have read nothing.
    """
    if asked.max_bytes is None:
        return asked
    ingest = opened.book.head(INGEST)
    records = newest_of_lane(opened.book, INGEST, ingest.head if ingest else None, _SIZED_WINDOWS)
    read = message_sizes.from_tallies(tally for record in records for tally in record.tallies)
    others = {at: log for at, log in known.partitions().items() if at not in read and log.start < log.end}
    sizes = opened.log.sizes({at.topic for at in others}) if others else {}
    return replace(asked, bytes_per_offset={**message_sizes.from_logs(sizes, others), **read})


def _policies(said: Source | TopicPolicies, otherwise: Source | None = None) -> Policies:
    """The policies that a stream file gives; what a topic does not say of its own is as for the others."""
    names = [policy.name for policy in fields(Policies)]
    return Policies(**{name: getattr(said, name) or getattr(otherwise, name) for name in names})
