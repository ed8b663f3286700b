"""Which dead letters a redrive takes. It leaves out those that Kafka no longer holds, or that were redriven too often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.errors import WrongUse
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.planning.planner import offsets_within
from tidemark.runs.discovery import known_now
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.dead_letters import redrives
from tidemark.sinks.hbase.table import StoredRow
from tidemark.sinks.reading import hbase_rows


@dataclass(frozen=True)
class DeadLetters:
    """Which dead letters are asked for: those that fit all of it."""

    # Exactly this reason, or this error class; None for any.
    reason: str | None = None
    # The lane that made them, or its window as LANE/NUMBER; empty for any.
    window: str = ""
    # Only of these offsets; None for any.
    within: RangeSet | None = None

    def has(self, row: StoredRow) -> bool:
        wanted = None if self.reason is None else self.reason.encode()
        return (
            (wanted is None or wanted in (row.fields.get("reason", b""), row.fields.get("error")))
            and (not self.window or self.window in (row.mark.lane, f"{row.mark.lane}/{row.mark.seq}"))
            and (self.within is None or (row.place.partition, row.place.offset) in self.within)
        )

    def __str__(self) -> str:
        said = [f"the reason {self.reason!r}"] if self.reason is not None else []
        said += [f"the lane or window {self.window}"] if self.window else []
        said += ["the offsets between the times"] if self.within is not None else []
        return " and ".join(said) or "any reason"


@dataclass(frozen=True)
class Redrive:
    """The requested offsets: those to read again, those that Kafka no longer holds, and those redriven too often."""

    ranges: RangeSet
    expired: RangeSet
    too_often: RangeSet


def redrive(opened: OpenStream, wanted: DeadLetters) -> Redrive:
    """The dead letters that count and are asked for. Raises WrongUse when there are none: the error names all reasons."""
    rows = hbase_rows(opened.book, opened.dead_letter_table(), None)
    found, tired = chosen(rows, wanted, opened.stream.dead_letters.max_redrives, opened.book.stream)
    topics = tuple(sorted({at.topic for at in found.partitions}))
    held = offsets_within(known_now(opened, topics, learn=False), found)
    return Redrive(held - tired, found - held, held & tired)


def chosen(rows: Iterable[StoredRow], wanted: DeadLetters, most: int, stream: str) -> tuple[RangeSet, RangeSet]:
    """The coordinates of the rows that are asked for, and of those among them that were redriven `most` times or more."""
    seen: Counter[str] = Counter()
    found: list[OffsetRange] = []
    tired: list[OffsetRange] = []
    for row in rows:
        why = row.fields.get("reason", b"")
        seen[why.decode(errors="replace")] += 1
        if wanted.has(row):
            at = OffsetRange(row.place.partition, row.place.offset, row.place.offset + 1)
            found.append(at)
            if redrives(row) >= most:
                tired.append(at)
    if not found:
        known = ", ".join(f"{why!r} ({number})" for why, number in seen.most_common()) or "there are none at all"
        raise WrongUse(f"no dead letter of {stream} has {wanted}; reasons are: {known}")
    return RangeSet(found), RangeSet(tired)


def too_often(most: int) -> str:
    """The text that tells people why dead letters were left out that were redriven so often."""
    return f"redriven {most} times or more: name them by --records, or raise dead_letters.max_redrives"
