"""Which dead letters a redrive takes. It leaves out those that Kafka no longer holds, or that were redriven too often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemark.errors import WrongUse
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import PartitionTally
from tidemark.offsets.times import milliseconds
from tidemark.planning.planner import offsets_within
from tidemark.runs.live.kafka_now import known_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.dead_letters import redrives
from tidemark.sinks.reading import fewest_scans, hbase_rows, pieces, rows_of_pieces
from tidemark.sinks.stored_rows import StoredRow

# Read of each dead letter. Keys and values, which may be large, are left where they are.
READ = ("reason", "error", "redrives", "timestamp")


@dataclass(frozen=True)
class DeadLetterFilter:
    """Which dead letters are asked for: those that fit all of it."""

    # Exactly this reason, or this error class; None for any.
    reason: str | None = None
    # The lane that made them, or its window as LANE/NUMBER; empty for any.
    window: str = ""
    # Only those whose message has a time from `since` on, and before `until`; None for any.
    since: datetime | None = None
    until: datetime | None = None

    def has(self, row: StoredRow) -> bool:
        wanted = None if self.reason is None else self.reason.encode()
        return (
            (wanted is None or wanted in (row.fields.get("reason", b""), row.fields.get("error")))
            and (not self.window or self.window in (row.mark.lane, f"{row.mark.lane}/{row.mark.seq}"))
            and self._has_time(row.fields.get("timestamp", b""))
        )

    def may_be_in(self, record: Record) -> list[TopicPartition]:
        """The partitions in which a window may have made some of them, by what it has counted."""
        if self.window and self.window not in (record.lane, f"{record.lane}/{record.seq}"):
            return []
        if not record.window.counts_for(None):
            return []
        if not record.tallies:
            # It has not ended, or the ledger was rebuilt from the sinks.
            return [range_.at for range_ in record.window.ranges]
        return [tally.at for tally in record.tallies if tally.dead_letters and self._may_have_time(tally)]

    def check(self, stream: str, view: LedgerSnapshot) -> None:
        """Raises WrongUse for a lane or window that has committed nothing: `no dead letters` would be no answer."""
        known = (record.record for record in view.windows)
        if self.window and not any(self.window in (record.lane, f"{record.lane}/{record.seq}") for record in known):
            raise WrongUse(
                f"window {self.window}: {stream} has no committed window of this name. Expected LANE, such as ingest, or "
                "LANE/NUMBER, such as ingest/17"
            )

    def _has_time(self, said: bytes) -> bool:
        """Whether a message's time lies between the times. One that Spark could not hold lies nowhere."""
        if self.since is None and self.until is None:
            return True
        try:
            time = datetime.fromisoformat(said.decode())
        except ValueError:
            return False
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)

    def _may_have_time(self, tally: PartitionTally) -> bool:
        if tally.first_timestamp is None or tally.last_timestamp is None:
            return True
        after = self.since is None or tally.last_timestamp >= milliseconds(self.since)
        return after and (self.until is None or tally.first_timestamp < milliseconds(self.until))

    def __str__(self) -> str:
        said = [f"the reason {self.reason!r}"] if self.reason is not None else []
        said += [f"the lane or window {self.window}"] if self.window else []
        said += [f"a time from {self.since.isoformat()} on"] if self.since is not None else []
        said += [f"a time before {self.until.isoformat()}"] if self.until is not None else []
        return " and ".join(said) or "any reason"


@dataclass(frozen=True)
class Redrive:
    """The requested offsets: those to read again, those that Kafka no longer holds, and those redriven too often."""

    ranges: RangeSet
    expired: RangeSet
    too_often: RangeSet


def redrive(opened: OpenStream, wanted: DeadLetterFilter, view: LedgerSnapshot | None = None) -> Redrive:
    """The dead letters that count and were requested. Raises WrongUse when there are none: the error names all reasons.

    `view`: the ledger as it was read for the request.
    """
    view = view or opened.ledger.view()
    wanted.check(opened.ledger.stream, view)
    rows = _rows(opened, wanted, view)
    letters, tired = chosen(rows, wanted, opened.stream.dead_letters.max_redrives)
    if not letters:
        raise WrongUse(f"no dead letter of {opened.ledger.stream} has {wanted}; reasons are: {_reasons(opened)}")
    topics = tuple(sorted({at.topic for at in letters.partitions}))
    held = offsets_within(known_now(opened, topics, learn=False), letters)
    return Redrive(held - tired, letters - held, held & tired)


def _rows(opened: OpenStream, wanted: DeadLetterFilter, view: LedgerSnapshot) -> Iterator[StoredRow]:
    """The dead letters that count, where windows may have made some that are asked for."""
    there = RangeSet(
        part
        for window in view.windows
        if (places := wanted.may_be_in(window.record))
        for part in view.authority.held_by(window.generation, window.covers.only(places))
    )
    table = opened.dead_letter_table().only(READ)
    return rows_of_pieces(opened.ledger, table, view, pieces(fewest_scans(there, there.hull())))


def _reasons(opened: OpenStream) -> str:
    """The reasons of all dead letters, with their numbers."""
    rows = hbase_rows(opened.ledger, opened.dead_letter_table().only(("reason",)), None)
    seen = Counter(row.fields.get("reason", b"").decode(errors="replace") for row in rows)
    return ", ".join(f"{why!r} ({number})" for why, number in seen.most_common()) or "there are none at all"


def chosen(rows: Iterable[StoredRow], wanted: DeadLetterFilter, most: int) -> tuple[RangeSet, RangeSet]:
    """The coordinates of the rows that are asked for, and of those among them that were redriven `most` times or more."""
    ranges: list[OffsetRange] = []
    tired: list[OffsetRange] = []
    for row in rows:
        if wanted.has(row):
            at = OffsetRange(row.place.partition, row.place.offset, row.place.offset + 1)
            ranges.append(at)
            if redrives(row) >= most:
                tired.append(at)
    return RangeSet(ranges), RangeSet(tired)


def too_often(most: int) -> str:
    """The text that tells people why dead letters were left out that were redriven so often."""
    return f"redriven {most} times or more: name them by --records, or raise dead_letters.max_redrives"
