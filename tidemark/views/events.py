"""The events of a stream besides reading: offsets jumped over, windows given up, changes accepted by a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemark.ledger.incarnations import Topics, written_partition, written_range
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Accepted, LaneKind, Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet


@dataclass(frozen=True, order=True)
class Event:
    """`at` is in milliseconds since 1970. The ledger does not keep the time when a window was given up."""

    at: int | None
    what: str
    where: str
    why: str
    run: str | None


def events(ledger: Ledger) -> list[Event]:
    """The events of a stream, in the order of their times. Reads the whole history."""
    view = ledger.view(closed=True)
    windows, register = view.windows, view.register
    topics = register.topics if register else {}
    events = [
        Event(
            record.committed_at,
            gap.kind.value,
            f"{written_range(topics, gap.as_range())}, window {record.lane}/{record.seq}",
            gap.policy,
            record.attempt.run,
        )
        for record in (window.record for window in windows)
        for gap in record.window.gaps
    ]
    events += _added(topics, (record.record for record in windows if record.record.kind == LaneKind.INGEST))
    for topic, incarnations in topics.items():
        for incarnation in incarnations:
            events += [
                _accepted(topic, incarnation.incarnation, event)
                for event in (incarnation.begun, incarnation.left)
                if event
            ]
    if register and (clock := register.clock) is not None:
        events.append(Event(clock.at, "clock accepted", f"from generation {clock.generation}", clock.reason, None))
    for gone in register.forgotten if register else ():
        events.append(Event(gone.at, "place forgotten", " ".join(gone.place.words), f"{gone.reason} ({gone.by})", None))
    for lane, head in view.heads.items():
        if (early := head.closed_early) is not None:
            events.append(Event(None, "closed early", f"lane {lane}", early, None))
        given_up = head.abandoned
        if given_up is not None:
            times = f"{given_up.count} times, the last reason" if given_up.count > 1 else "once"
            events.append(Event(None, "abandoned", f"lane {lane}, {times}", given_up.reason, None))
    return sorted(events, key=lambda event: (event.at is None, event.at or 0, event.where))


def _added(topics: Topics, ingested: Iterable[Record]) -> Iterator[Event]:
    """Partitions added to a topic that was read before. The order of a key across old and new partitions is not certain."""
    known: dict[tuple[str, int], set[int]] = {}
    for record in sorted(ingested, key=lambda record: record.seq):
        read = {range_.at: range_ for range_ in record.window.ranges}
        for at, range_ in read.items():
            before = known.get((at.topic, at.incarnation))
            if before is not None and at.partition not in before:
                partition = written_partition(topics, RangeSet([Coordinate(at, range_.start).as_range()]))
                where = f"{partition} from offset {range_.start}, window {record.lane}/{record.seq}"
                yield Event(record.committed_at, "partition added", where, "Kafka has it since", record.attempt.run)
        for at in read:
            known.setdefault((at.topic, at.incarnation), set()).add(at.partition)


def _accepted(topic: str, incarnation: int, event: Accepted) -> Event:
    return Event(event.at, event.change.value, f"{topic}, incarnation {incarnation}", event.policy, event.run)
