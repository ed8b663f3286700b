"""Dead letters: what they hold, and which of them a redrive takes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.requests.dead_letters import DeadLetterFilter, chosen
from tidemark.sinks.dead_letters import FIELDS, described, digested
from tidemark.sinks.stored_rows import Mark, Place, StoredRow

AT = TopicPartition("orders", 0, 1)


def letter(offset: int, **fields: bytes) -> StoredRow:
    return StoredRow(Place(AT, offset, 0), Mark(1_795_244_400_000, 7, "replay-ab", 3), {"redrives": b"0", **fields})


def at(*offsets: int) -> RangeSet:
    return RangeSet(OffsetRange(AT, offset, offset + 1) for offset in offsets)


def test_a_dead_letter_is_shown_with_the_fields_that_it_has() -> None:
    found = letter(5, reason=b"not UTF-8", value=b"\xff", timestamp=b"2026-11-21T07:00:00.000Z")
    assert described(found) == {
        "window": "replay-ab/3",
        "generation": "1795244400000",
        "fields": {
            "reason": "not UTF-8",
            "value": "\\xff",
            "timestamp": "2026-11-21T07:00:00.000Z",
            "redrives": "0",
        },
    }
    assert digested(found.fields) == [b"not UTF-8", None, b"\xff", b"2026-11-21T07:00:00.000Z", None]


def test_only_what_can_be_computed_again_is_digested() -> None:
    fields = {name: name.encode() for name in FIELDS}
    assert digested(fields) == [b"reason", b"key", b"value", b"timestamp", b"headers"]
    assert list(described(letter(5, **fields))["fields"]) == list(FIELDS)


def test_a_redrive_takes_a_reason_or_an_error_class() -> None:
    letters = [
        letter(1, reason=b"not UTF-8"),
        letter(2, reason=b"raised shop.Away", error=b"shop.Away"),
        letter(3, reason=b"raised ValueError", error=b"ValueError", redrives=b"2"),
    ]
    assert chosen(letters, DeadLetterFilter("not UTF-8"), 3) == (at(1), RangeSet())
    assert chosen(letters, DeadLetterFilter("raised shop.Away"), 3) == (at(2), RangeSet())
    assert chosen(letters, DeadLetterFilter("shop.Away"), 3) == (at(2), RangeSet())
    assert chosen(letters, DeadLetterFilter(), 3) == (at(1, 2, 3), RangeSet())
    assert chosen(letters, DeadLetterFilter("no such"), 3) == (RangeSet(), RangeSet())


def test_a_redrive_takes_the_dead_letters_of_a_window() -> None:
    def made(offset: int, lane: str, seq: int) -> StoredRow:
        fields = {"reason": b"a", "redrives": b"0"}
        return StoredRow(Place(AT, offset, 0), Mark(1_795_244_400_000, 7, lane, seq), fields)

    letters = [made(1, "ingest", 1), made(2, "ingest", 2), made(3, "ingest", 12), made(4, "replay-ab", 2)]
    for window, taken in {"ingest": (1, 2, 3), "ingest/2": (2,), "replay-ab": (4,), "": (1, 2, 3, 4)}.items():
        assert chosen(letters, DeadLetterFilter(None, window), 3) == (at(*taken), RangeSet())


def test_a_redrive_takes_those_whose_own_time_lies_between_two() -> None:
    """At or after the one and before the other. A message without a time that Spark can hold lies nowhere."""
    times = ("06:59:59.999Z", "07:00:00.000Z", "08:59:59.999+01:00", "08:00:00.000Z")
    letters = [letter(offset, timestamp=f"2026-11-21T{time}".encode()) for offset, time in enumerate(times)]
    letters += [letter(8), letter(9, timestamp=b"+292278-08-17T07:12:55.807Z")]
    since, until = (datetime(2026, 11, 21, hour, tzinfo=UTC) for hour in (7, 8))
    for wanted, taken in (
        (DeadLetterFilter(), (0, 1, 2, 3, 8, 9)),
        (DeadLetterFilter(since=since), (1, 2, 3)),
        (DeadLetterFilter(until=until), (0, 1, 2)),
        (DeadLetterFilter(since=since, until=until), (1, 2)),
    ):
        assert chosen(letters, wanted, 3) == (at(*taken), RangeSet())
    said = "the reason 'a' and the lane or window ingest/3 and a time from 2026-11-21T07:00:00+00:00 on"
    assert str(DeadLetterFilter("a", "ingest/3", since)) == said


@pytest.mark.parametrize(("most", "tired"), [(0, (1, 2, 3)), (2, (2, 3)), (3, (3,)), (4, ())])
def test_what_was_redriven_too_often_is_told_apart(most: int, tired: tuple[int, ...]) -> None:
    letters = [letter(1, reason=b"a"), letter(2, reason=b"a", redrives=b"2"), letter(3, reason=b"a", redrives=b"3")]
    assert chosen(letters, DeadLetterFilter("a"), most) == (at(1, 2, 3), at(*tired))
