"""Expressions of the stream's owner that cannot be computed for some messages: those become dead letters, the others rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.oracle import Example, Outcome
from tests.support.playground import Make, Playground
from tests.support.rows import GIVEN_BACK, SINKS
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.runs.requests.dead_letters import DeadLetters, redrive
from tidemark_spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")

SHARES: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {"type": "delimited", "fields": {"id": "integer", "of": "string"}},
    "sinks": SINKS,
    "dead_letters": {"table": "-"},
}
DIVIDED = {"sql": f"SELECT {GIVEN_BACK}, 100 div id AS share, int(of) AS of FROM messages"}
DIVIDED_FIELDS = {"fields": {"share": "integer", "of": "integer"}}


def shares(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Every 30th cannot be divided by; tombstones, which no transform sees."""
    for number in range(first, first + count):
        yield b"%d" % number, None if number % 10 == 9 else f"{number % 30},{number}".encode()


EXAMPLE = Example("shares", SHARES, ("shares",), 3, shares, lambda value: Outcome(None, None))


def dead(play: Playground) -> list[tuple[str | None, ...]]:
    rows = play.independent.hbase(f"{play.name}_dead").rows
    names = ("value", "outcome", "reason", "error", "attempts")
    return sorted(tuple(fields.get(name) for name in names) for _, fields in rows)  # type: ignore[type-var]


@pytest.mark.full
@pytest.mark.covers("C4", "P2", "E46")
def test_a_transform_that_fails_on_some_messages(make: Make) -> None:
    play = make(EXAMPLE, transform={**DIVIDED, **DIVIDED_FIELDS})
    play.produce(60)
    (record,) = play.ingest()
    by_zero = [(f"0,{number}", "failed", "transform: DIVIDE_BY_ZERO", "DIVIDE_BY_ZERO", "1") for number in (0, 30)]
    assert dead(play) == sorted(by_zero)
    assert sum(one.failed.number for one in record.tallies) == 2
    assert len(play.independent.hbase().rows) == 58
    (detail,) = {fields["detail"] for _, fields in play.independent.hbase(f"{play.name}_dead").rows}
    assert detail.startswith("[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`")
    report = audit(play.opened, "an audit")
    assert report.clean, report.sentence()
    assert report.dead_letters == 2

    # With the bug mended, they are read again, alone.
    mended = f"SELECT {GIVEN_BACK}, int(try_divide(100, id)) AS share, int(of) AS of FROM messages"
    play.rewrite(transform={"sql": mended, **DIVIDED_FIELDS})
    (again,) = play.select(LaneKind.REPLAY, redrive(play.opened, DeadLetters("DIVIDE_BY_ZERO")).ranges)
    assert sum(one.read.number for one in again.tallies) == sum(one.stored.number for one in again.tallies) == 2
    assert dead(play) == []


@pytest.mark.covers("C4", "E46")
def test_a_check_that_cannot_be_computed_refuses_nothing(make: Make) -> None:
    checks = [{"invalid_when": "100 div id > 50 or int(of) < 0", "reason": "too much"}]
    play = make(EXAMPLE, checks=checks)
    play.produce(60)
    play.kafka.send([(play.topics[0], 0, None, b"5,many")])
    play.ingest()
    # A division by 0 and a word for a number give null; 100 div 1 is more than 50.
    assert [(value, reason) for value, _, reason, _, _ in dead(play)] == [("1,1", "too much"), ("1,31", "too much")]
    assert len(play.independent.hbase().rows) == 59


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("cod = 0", "`cod` cannot be resolved. Did you mean"),
        ("id", 'requires the "BOOLEAN" type'),
        ("id = ", "Syntax error at or near end of input"),
    ],
)
def test_a_check_that_is_no_condition(make: Make, condition: str, said: str) -> None:
    checks = [{"invalid_when": "id > 5", "reason": "a"}, {"invalid_when": condition, "reason": "b"}]
    play = make(EXAMPLE, checks=checks)
    play.produce(3)
    with pytest.raises(
        WrongUse, match=r"^checks\.1\.invalid_when: .* is no condition on the fields id, of: "
    ) as refused:
        play.ingest()
    assert said in str(refused.value)
    # Nobody has taken the window.
    pending = play.head().pending
    assert pending is not None
    assert pending.attempt is None
