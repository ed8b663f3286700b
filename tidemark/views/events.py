"""What happened to a stream besides reading: what was jumped over, given up, or accepted by a policy."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.ledger.book import Book
from tidemark.ledger.records import Accepted


@dataclass(frozen=True, order=True)
class Event:
    """`at` is in milliseconds since 1970; of a window that was given up, the time is not kept."""

    at: int | None
    what: str
    where: str
    why: str
    run: str | None


def events(book: Book) -> list[Event]:
    """The events of a stream, in the order of their times. Reads the whole history."""
    found = [
        Event(
            record.committed_at,
            gap.kind.value,
            f"{gap.as_range()}, window {record.lane}/{record.seq}",
            gap.policy,
            record.attempt.run,
        )
        for record in (window.record for window in book.committed())
        for gap in record.window.gaps
    ]
    register = book.register()
    for topic, incarnations in register[1].topics.items() if register else ():
        for one in incarnations:
            found += [_accepted(topic, one.incarnation, event) for event in (one.begun, one.left) if event]
    for lane, stored in book.heads().items():
        given_up = stored.head.abandoned
        if given_up is not None:
            times = f"{given_up.count} times, the last reason" if given_up.count > 1 else "once"
            found.append(Event(None, "abandoned", f"lane {lane}, {times}", given_up.reason, None))
    return sorted(found, key=lambda one: (one.at is None, one.at or 0, one.where))


def _accepted(topic: str, incarnation: int, event: Accepted) -> Event:
    return Event(event.at, event.change.value, f"{topic}, incarnation {incarnation}", event.policy, event.run)
