"""The answer to each requested offset: a run reads it, or why not; after the run, what became of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.ledger.incarnations import Topics, written_partition
from tidemark.ledger.records import LaneKind
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.subsets import counted_ones
from tidemark.offsets.tallies import NOTHING, Count, PartitionTally
from tidemark.planning.inputs import KafkaState

# The answers, as people read them.
TO_READ = "to be read"
TO_READ_AGAIN = "to be read again"
READ_ALREADY = "a window has read them"
NOT_READ = "no window has read them"
THE_INGESTS = "at or above the ingest position"
EXPIRED = "expired: Kafka no longer holds them"
NOT_YET = "not in the topic yet: at or above its end"
NO_PARTITION = "never in the topic: it has no such partition"
NOT_OF_THE_STREAM = "the stream reads no such topic or partition"
CUT = "cut: they belong to the topic's earlier incarnation"
GONE = "gone: Kafka has this partition, or this incarnation of its topic, no longer"
STORED = "found and stored"
SKIPPED = "found and skipped by the transform"
DEAD_LETTER = "found, a dead letter"
NO_ROW = "found, invalid or failed: no row in these sinks, and no dead letter"
INVISIBLE = "not there: compacted away, of an aborted transaction, or a transaction's mark"
ABORTED = "not there: of an aborted transaction"
COMPACTED = "not there: compacted away"
MARK = "not there: a transaction's mark"

# How many ranges an error names of each answer, and how many lines Airflow and a terminal show.
MAX_NAMED = 5
MAX_LINES = 100


_NOTHING_ERASED: Mapping[str, RangeSet] = {}


@dataclass(frozen=True, order=True)
class OffsetAnswer:
    """The answer for `offsets` of the offsets in a range: for all of them, or for a number that was only counted."""

    within: OffsetRange
    offsets: int
    answer: str

    def as_fields(self, topics: Topics) -> dict[str, Any]:
        """For JSON. The bounds are texts: many readers of JSON round numbers of 64 bits."""
        at = self.within
        return {
            "partition": written_partition(topics, RangeSet([at])),
            "from": str(at.start),
            "until": str(at.until),
            "offsets": self.offsets,
            "answer": self.answer,
        }


def before(
    kind: LaneKind,
    wanted: RangeSet,
    known: KafkaState,
    read: RangeSet,
    below: RangeSet,
    erased: Mapping[str, RangeSet] = _NOTHING_ERASED,
) -> tuple[RangeSet, dict[str, RangeSet]]:
    """The offsets that a backfill or replay can read, and the others by their answer. Each offset is in exactly one set.

    `known` is about the topics that the stream reads, or has read. `read`: what committed windows cover. `below`: what lies
    below the ingest positions. `erased`: what was erased, by the answer for it. Offsets above an end that a window has read
    are not answered "not yet": their log was cut, which planning refuses.
    """
    logs, chosen = known.partitions(), known.to_read()
    rest = wanted
    by_answer: dict[str, RangeSet] = {}

    def answer(why: str, some: RangeSet) -> None:
        nonlocal rest
        if part := rest & some:
            by_answer[why] = by_answer.get(why, RangeSet()) | part
            rest = rest - part

    def whole(partitions: Iterable[TopicPartition]) -> RangeSet:
        return RangeSet(OffsetRange(at, 0, MAX_OFFSET) for at in partitions)

    for why, some in erased.items():
        answer(why, some)
    asked = wanted.partitions
    answer(NOT_OF_THE_STREAM, whole(at for at in asked if at.topic not in known.newest))
    answer(GONE, whole(at for at in asked if at not in logs) & read)
    answer(NO_PARTITION, whole(at for at in asked if at not in logs))
    answer(NOT_OF_THE_STREAM, whole(at for at in asked if at not in chosen) - read)
    answer(EXPIRED, RangeSet(OffsetRange(at, 0, log.start) for at, log in logs.items()))
    answer(CUT, RangeSet(OffsetRange(at, 0, known.begins(at, log)) for at, log in logs.items()))
    answer(NOT_YET, RangeSet(OffsetRange(at, log.end, MAX_OFFSET) for at, log in logs.items()) - read)
    parts = split_by_lane(rest, read, below)
    ranges = parts.pop(NOT_READ if kind == LaneKind.BACKFILL else READ_ALREADY)
    return ranges, by_answer | {why: part for why, part in parts.items() if part}


def split_by_lane(wanted: RangeSet, read: RangeSet, below: RangeSet) -> dict[str, RangeSet]:
    """Split offsets: those that a window has read, those that the ingest will read, and the others."""
    return {
        READ_ALREADY: wanted & read,
        NOT_READ: wanted & below - read,
        THE_INGESTS: wanted - below - read,
    }


def dead_letter(redrives: int, most: int) -> str:
    """The answer for a dead letter, which was redriven so often, this run included."""
    return f"{DEAD_LETTER} again: redrive {redrives} of {most}" if redrives else DEAD_LETTER


def after(
    covers: RangeSet, tallies: Sequence[PartitionTally], dead: Mapping[str, RangeSet], *, some_sinks: bool = False
) -> list[OffsetAnswer]:
    """The outcomes of the offsets that the windows of a run cover, by partition.

    `dead` has the dead letters of these windows that still count, by their answer. The other offsets are only counted
    in a receipt. If a partition has several answers, the XORs of the counts tell which offsets have which, while these
    are few. Otherwise each gets its number, within the same range. A run into `some_sinks` alone stores no dead
    letters.
    """
    answers = exact(dead)
    rest = covers
    for part in dead.values():
        rest = rest - part
    # Looked at once: a run may have many windows, each of a thousand partitions.
    by_partition: dict[TopicPartition, list[PartitionTally]] = {}
    for tally in tallies:
        by_partition.setdefault(tally.at, []).append(tally)
    for at in rest.partitions:
        own, here = by_partition.get(at, []), rest.only([at])
        read = sum(tally.read.number for tally in own)
        counts = {
            STORED: sum((tally.stored for tally in own), NOTHING),
            SKIPPED: sum((tally.skipped for tally in own), NOTHING),
            # Offsets without a message have no count, and so no XOR.
            INVISIBLE: Count(covers.count(at) - read),
        }
        # Offsets that a later run has read again meanwhile are not among `dead`.
        counts[NO_ROW if some_sinks else DEAD_LETTER] = Count(
            here.count() - sum(count.number for count in counts.values())
        )
        answers += _of_each(here, {why: count for why, count in counts.items() if count.number})
    return sorted(answers)


def _of_each(here: RangeSet, counts: Mapping[str, Count]) -> list[OffsetAnswer]:
    """The answers for some offsets of a partition: for each offset where the counts can tell, otherwise as numbers."""
    left, told = here, dict[str, RangeSet]()
    for why in (STORED, SKIPPED):
        part = counted_ones(left, counts[why]) if why in counts else None
        if part is not None:
            told[why], left = part, left - part
    rest = {why: count.number for why, count in counts.items() if why not in told}
    if len(rest) == 1:
        return exact({**told, next(iter(rest)): left})
    return exact(told) + [OffsetAnswer(range_, number, why) for range_ in left.hull() for why, number in rest.items()]


def exact(answers: Mapping[str, RangeSet]) -> list[OffsetAnswer]:
    """Each range with its answer, by partition and offset."""
    # A million records are sorted as numbers, and not as values.
    return [
        OffsetAnswer(OffsetRange(at, start, until), until - start, why)
        for at in sorted({at for part in answers.values() for at in part.partitions})
        for start, until, why in sorted(
            (start, until, why) for why, part in answers.items() for start, until in part.of(at)
        )
    ]


def totals(answers: Iterable[OffsetAnswer]) -> dict[str, int]:
    """How many offsets have each answer."""
    by_answer: dict[str, int] = {}
    for answer in answers:
        by_answer[answer.answer] = by_answer.get(answer.answer, 0) + answer.offsets
    return by_answer


def answer_texts(answers: Sequence[OffsetAnswer], topics: Topics, most: int) -> dict[str, Any]:
    """The totals and the first answers for browsers, which round large numbers: all of them are texts."""
    fields = (answer.as_fields(topics) for answer in answers[:most])
    return {
        "totals": {why: str(number) for why, number in totals(answers).items()},
        "answers": [{**row, "offsets": str(row["offsets"])} for row in fields],
    }


def table(answers: Sequence[OffsetAnswer], topics: Topics) -> list[str]:
    """The first answers as lines of a log, in columns."""
    names = ("partition", "from", "until", "offsets", "answer")
    shown = (answer.as_fields(topics) for answer in answers[:MAX_LINES])
    rows = [names, *([str(fields[name]) for name in names] for fields in shown)]
    first, *numbers = (max(len(row[column]) for row in rows) for column in range(len(names) - 1))
    lines = [
        "  ".join(
            [row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], numbers, strict=False)), row[4]]
        )
        for row in rows
    ]
    more = len(answers) - MAX_LINES
    return [*lines, number_of(more, "more line")] if more > 0 else lines


def describe_answers(answers: Mapping[str, RangeSet]) -> str:
    """The answers in one line, each with its first ranges."""
    return "; ".join(f"{why}: {_first(part)}" for why, part in answers.items())


def _first(ranges: RangeSet) -> str:
    shown = [str(range_) for range_ in ranges]
    more = len(shown) - MAX_NAMED
    return ", ".join(shown[:MAX_NAMED]) + (f" and {number_of(more, 'more range')}" if more > 0 else "")
