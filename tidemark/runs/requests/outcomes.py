"""The outcomes of the offsets that a backfill or a replay has read."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.clients.kafka.slots import Slot
from tidemark.errors import AuthenticationFailed, Conflict, NotAuthorized, Unreachable
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.live.message_lookup import slot_at
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import answers
from tidemark.runs.requests.answers import OffsetAnswer
from tidemark.sinks.dead_letters import redrives
from tidemark.sinks.reading import fewest_scans, pieces, rows_of_pieces

# Each is asked for by itself, in about a tenth of a second.
_MAX_ASKED = 32
_REASONS = {
    Slot.ABORTED: answers.ABORTED,
    Slot.COMPACTED: answers.COMPACTED,
    Slot.MARKER: answers.MARK,
}


def answers_of(opened: OpenStream, records: Sequence[Record]) -> list[OffsetAnswer]:
    """The answers for the offsets of a lane's committed windows, which have their receipts. Reads their dead letters."""
    covers = RangeSet(range_ for record in records for range_ in opened.ledger.covers(record.window))
    tallies = [tally for record in records for tally in record.tallies]
    # All windows of a lane write the same sinks.
    if any(not record.window.counts_for(None) for record in records):
        outcomes = answers.after(covers, tallies, {}, some_sinks=True)
    else:
        outcomes = answers.after(covers, tallies, _dead_letters(opened, records, covers))
    return _with_reasons(opened, outcomes)


def _with_reasons(opened: OpenStream, outcomes: list[OffsetAnswer]) -> list[OffsetAnswer]:
    """The answers, with why there is no message at an offset, where few are without one and Kafka says why."""
    missing = [
        answer for answer in outcomes if answer.answer == answers.INVISIBLE and answer.offsets == len(answer.within)
    ]
    if not missing or sum(answer.offsets for answer in missing) > _MAX_ASKED:
        return outcomes
    why: dict[str, list[OffsetRange]] = {}
    for answer in missing:
        at = answer.within.partition
        for offset in range(answer.within.start, answer.within.until):
            try:
                there = slot_at(opened, Coordinate(at, offset))
            except (Conflict, Unreachable, NotAuthorized, AuthenticationFailed):
                # The run is committed: its answers do not depend on Kafka.
                return outcomes
            said = answers.INVISIBLE if there is None else _REASONS.get(there.slot, answers.INVISIBLE)
            why.setdefault(said, []).append(OffsetRange(at, offset, offset + 1))
    others = [answer for answer in outcomes if answer not in missing]
    return sorted([*others, *answers.exact({reason: RangeSet(part) for reason, part in why.items()})])


def _dead_letters(opened: OpenStream, records: Sequence[Record], covers: RangeSet) -> dict[str, RangeSet]:
    """The dead letters of some windows that still count, by their answer."""
    tallies = [tally for record in records for tally in record.tallies if tally.dead_letters]
    if not tallies:
        return {}
    covers = covers.only(tally.at for tally in tallies)
    wanted = fewest_scans(covers, covers.hull())
    # Not the messages, which may be large.
    table = opened.dead_letter_table().only(("redrives",))
    ledger, most = opened.ledger, opened.stream.dead_letters.max_redrives
    generations = {record.attempt.generation for record in records}
    offsets: dict[str, list[OffsetRange]] = {}
    for row in rows_of_pieces(ledger, table, ledger.view(), pieces(wanted)):
        if row.mark.generation in generations:
            at = OffsetRange(row.place.partition, row.place.offset, row.place.offset + 1)
            offsets.setdefault(answers.dead_letter(redrives(row), most), []).append(at)
    return {why: RangeSet(ranges) for why, ranges in offsets.items()}
