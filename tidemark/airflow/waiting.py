"""The conditions that sensors and triggers wait for. Imports heavy modules inside, since Airflow parses DAG files often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.offsets.counting import number_of

if TYPE_CHECKING:
    from tidemark.runs.live.open_stream import OpenStream


@dataclass(frozen=True)
class Sign:
    """A stream is too far behind. `committed`: the number of the ingest's last window, None before the first."""

    stream: str
    said: str
    committed: int | None


def windows_there(opened: OpenStream, ranges: str | Sequence[str] | None) -> tuple[bool, str]:
    """Whether committed windows have read all of the ranges, and a sentence. Raises TidemarkError."""
    from tidemark.errors import WrongUse
    from tidemark.ledger.nearby import view_near
    from tidemark.ledger.register import named_ranges
    from tidemark.offsets.coordinates import parse_ranges
    from tidemark.runs.requests.selecting import with_incarnations

    wanted = parse_ranges(ranges if isinstance(ranges, str) else "\n".join(ranges or ()))
    if not wanted:
        raise WrongUse("ranges: none is named, as where a template gave nothing; all of nothing would be there at once")
    stored = opened.ledger.register()
    register = stored[1] if stored else None
    asked = with_incarnations(register, wanted)
    left = asked - view_near(opened.ledger, asked).authority.covered()
    topics = register.topics if register else {}
    missing = f"{number_of(left.count(), 'offset', 'is', 'are')} not there yet: {named_ranges(left, topics)}"
    return not left, missing if left else "all of it is there"


def complete(opened: OpenStream, since: str, until: str) -> tuple[bool, str]:
    """Whether a span of event time is complete, and why or why not in each partition. Raises TidemarkError."""
    from tidemark.offsets.times import milliseconds, read_time
    from tidemark.views.event_time.completeness import TimeSpan, is_complete
    from tidemark.views.event_time.progress import progress

    span = TimeSpan(milliseconds(read_time(since)), milliseconds(read_time(until)))
    answers = progress(opened).answers(span)
    said = "\n".join(f"{answer.at}: {answer.rule.value}" for answer in answers)
    return is_complete(answers), said or "the stream reads no partition in this time"


def behind(opened: OpenStream, messages: int | None, seconds: float | None) -> Sign | None:
    """A sign when this many messages are unread, or one is unread for this long. Raises TidemarkError.

    Before the first window, what is in the topics is unread. Its age is not known then, and counts as too old.
    """
    from tidemark.views.overview import overview

    shown = overview(opened)
    starts = (
        (partition.log_start if partition.position is None else partition.position, partition.end)
        for partition in shown.partitions
    )
    # Kafka has answered, so it has said both of each partition.
    lag = sum(max(0, end - start) for start, end in starts if start is not None and end is not None)
    last = shown.ingest.last_commit
    committed = None if last is None else last.window
    since = shown.unread_since
    if messages is not None and lag >= messages:
        return Sign(
            shown.stream, f"{number_of(lag, 'message', 'is', 'are')} unread; the bound is {messages}", committed
        )
    if seconds is not None and lag:
        age = None if since is None else (opened.ledger.clock() - since) / 1000
        if (age is None and committed is None) or (age is not None and age >= seconds):
            old = "from before the first window" if age is None else f"{number_of(round(age), 'second')} old"
            return Sign(shown.stream, f"an unread message is {old}; the bound is {seconds:g} seconds", committed)
    return None
