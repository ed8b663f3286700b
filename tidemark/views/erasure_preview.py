"""The page of a plan for an erasure before it is started: the messages, and what would remain where.

The same as a dry run on the command line or in Airflow.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.ledger.incarnations import Topics, written_partition
from tidemark.offsets.coordinates import Coordinate, in_four_parts
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs import erasing
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.approval import needs_approval
from tidemark.runs.requests.forms import EraseRequest
from tidemark.views.plan import MAX_LINES, Ranges, ranges_shown
from tidemark.views.values import Number

# Offsets of Kafka that a page reads to look for a key. The question has a bound in time too.
MAX_READ = 5_000_000
# Messages with a key that the run is started with in place of the key.
MAX_RECORDS = 10_000


@dataclass(frozen=True)
class PartitionErased(Ranges):
    """The offsets of a partition that are erased."""

    partition: str


@dataclass(frozen=True)
class PlaceShown:
    """A place with results, and what it holds of the messages once they are erased; empty for nothing."""

    name: str
    type: str
    place: dict[str, str]
    remains: str


@dataclass(frozen=True)
class ErasureShown:
    """`plan` is the digest of what would be erased: a run that has it as its field `plan` does that, or nothing.

    `how`: how a key was found, in words. `records` names the messages of a key, a line each, where there are not too many: with
    them in its place, Airflow does not keep the key. `before` has those that were erased before, by their answer.
    """

    plan: str
    made_at: int
    how: str
    offsets: Number
    partitions: list[PartitionErased]
    more_partitions: int
    before: dict[str, Number]
    places: list[PlaceShown]
    records: str
    needs_approval: bool
    may_start: bool = False


def to_erase(opened: OpenStream, asked: EraseRequest) -> ErasureShown:
    """The offsets that a request would erase. Writes nothing. Raises what `erasing.wanted`, `choose` and `check` raise."""
    offsets, how = erasing.wanted(opened, asked, most=MAX_READ)
    chosen = erasing.choose(opened, offsets)
    erasing.check(opened, asked.plan, chosen)
    partitions, topics = chosen.offsets.partitions, opened.ledger.topics()
    return ErasureShown(
        plan=erasing.digest(opened, chosen),
        made_at=opened.ledger.clock(),
        how=how,
        offsets=chosen.offsets.count(),
        partitions=[_partition(at, chosen.offsets, topics) for at in partitions[:MAX_LINES]],
        more_partitions=max(0, len(partitions) - MAX_LINES),
        before={why: part.count() for why, part in chosen.before.items()},
        places=[PlaceShown(**one.as_fields()) for one in erasing.remaining(opened, chosen.named)],
        records=_records(chosen.offsets) if asked.key and chosen.offsets.count() <= MAX_RECORDS else "",
        needs_approval=needs_approval(opened.stream.limits.approve_above, chosen.offsets.count()),
    )


def _partition(at: TopicPartition, offsets: RangeSet, topics: Topics) -> PartitionErased:
    mine = offsets.only([at])
    return PartitionErased(*ranges_shown(mine, topics), partition=written_partition(topics, mine))


def _records(offsets: RangeSet) -> str:
    return "\n".join(
        in_four_parts(Coordinate(one.partition, offset)) for one in offsets for offset in range(one.start, one.until)
    )
