"""The windows that a run has committed, for the event that other DAGs wait for, and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.ledger.incarnations import Topics, written_range
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import GapKind, Record
from tidemark.offsets.counting import number_of
from tidemark.offsets.times import in_words
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.unknown_fields import sentence, unknown_in
from tidemark.views.values import Number

# The windows of a run are the newest of its lane. This many are read at first, and more as long as the run goes on before them.
_AT_FIRST = 1_000
# Of the last lines of a log: windows, and ranges of each.
_MAX_LINES, _MAX_RANGES = 20, 3
# Under this name a task keeps the answer of its run in one line, and the run's note has it.
ANSWER = "tidemark_answer"


@dataclass(frozen=True)
class Messages:
    """How many messages of a window were read, stored, skipped, and invalid or failed."""

    read: int
    stored: int
    skipped: int
    dead_letters: int


@dataclass(frozen=True)
class WindowOfRun:
    """A window with its ranges and counts of messages."""

    seq: int
    generation: Number
    ranges: list[str]
    read: int
    stored: int
    skipped: int
    dead_letters: int


@dataclass(frozen=True)
class SkippedCounts:
    """How many offsets a window has jumped over: Kafka no longer had them (lost), or a policy left them out (skipped)."""

    lost: Number
    skipped: Number


def committed_by(opened: OpenStream, lane: str, run: str) -> list[Record]:
    """The windows that a run committed in a lane, in their order; only among the lane's newest, not its whole history."""
    stored, most = opened.ledger.head(lane), _AT_FIRST
    while True:
        newest = newest_of_lane(opened.ledger, lane, stored.head if stored else None, most)
        records = sorted((record for record in newest if record.attempt.run == run), key=lambda record: record.seq)
        if len(newest) < most or not records or records[0].seq > min(record.seq for record in newest):
            return records
        most *= 8


def windows(topics: Topics, records: Iterable[Record]) -> list[WindowOfRun]:
    return [
        WindowOfRun(
            record.seq,
            record.attempt.generation,
            [written_range(topics, range_.as_range()) for range_ in record.window.ranges],
            **vars(messages(record)),
        )
        for record in records
    ]


def said_of(topics: Topics, records: Sequence[Record]) -> list[str]:
    """A line for each of the windows that a run has committed, for the end of a log; of very many, for the last ones."""
    if not records:
        return ["nothing was committed: there was nothing to read"]
    more = len(records) - _MAX_LINES
    before = (
        [number_of(more, "window", "before these is committed too", "before these are committed too")]
        if more > 0
        else []
    )
    return [*before, *(_line(topics, record) for record in records[-_MAX_LINES:])]


def answer_of(topics: Topics, records: Sequence[Record]) -> str:
    """A run's committed windows in one line."""
    if len(records) < 2:
        return said_of(topics, records)[0]
    counts = [messages(record) for record in records]
    read, stored, dead = (sum(getattr(part, name) for part in counts) for name in ("read", "stored", "dead_letters"))
    first, last = (f"{record.lane}/{record.seq}" for record in (records[0], records[-1]))
    stored_and_dead = f"{stored} stored + {number_of(dead, 'dead letter')}"
    said = f"committed {len(records)} windows, {first} to {last}: read {read}, {stored_and_dead}"
    unknown = sentence(unknown_in(records))
    return f"{said}; {unknown}" if unknown is not None else said


def _line(topics: Topics, record: Record) -> str:
    counts, moved = (
        messages(record),
        [range_.as_range() for range_ in record.window.ranges if range_.start < range_.until],
    )
    ranges = ", ".join(written_range(topics, one) for one in moved[:_MAX_RANGES]) or "no offsets"
    others = f" and {len(moved) - _MAX_RANGES} more" if len(moved) > _MAX_RANGES else ""
    skipped = f" + {counts.skipped} skipped" if counts.skipped else ""
    said = (
        f"committed window {record.lane}/{record.seq}: {ranges}{others}: read {counts.read} = {counts.stored} stored"
        f"{skipped} + {number_of(counts.dead_letters, 'dead letter')}"
    )
    passed = passed_over(record)
    over = [f"{number} {why}" for why, number in vars(passed).items() if number]
    said += f"; passed over {', '.join(over)}" if over else ""
    unknown = sentence(unknown_in([record]))
    said += f"; {unknown}" if unknown is not None else ""
    if record.receipt is None:
        return said
    into = ", ".join(sink.name for sink in record.receipt.sinks)
    took = in_words(max(0, record.receipt.finished_at - record.receipt.started_at))
    return f"{said}{f'; into {into}' if into else ''}; {took}"


def messages(record: Record) -> Messages:
    return Messages(
        read=sum(tally.read.number for tally in record.tallies),
        stored=sum(tally.stored.number for tally in record.tallies),
        skipped=sum(tally.skipped.number for tally in record.tallies),
        dead_letters=sum(tally.dead_letters for tally in record.tallies),
    )


def passed_over(record: Record) -> SkippedCounts:
    counts = dict.fromkeys((kind.value for kind in GapKind), 0)
    for gap in record.window.gaps:
        counts[gap.kind.value] += gap.until - gap.start
    return SkippedCounts(**counts)
