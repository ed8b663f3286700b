"""Expressions of the stream's owner that cannot be computed for some messages: those become dead letters, the others rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example, Outcome
from tests.support.rows import GIVEN_BACK, SINKS
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive
from tidemark.spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")

SHARES: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {"type": "delimited", "fields": {"id": "integer", "of": "string"}},
    "sinks": SINKS,
    "dead_letters": {"type": "hbase", "table": "-"},
}
DIVIDED = {"sql": f"SELECT {GIVEN_BACK}, 100 div id AS share, int(of) AS of FROM messages"}
DIVIDED_FIELDS = {"fields": {"share": "integer", "of": "integer"}}


def shares(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Every 30th cannot be divided by; tombstones, which no transform sees."""
    for number in range(first, first + count):
        yield b"%d" % number, None if number % 10 == 9 else f"{number % 30},{number}".encode()


EXAMPLE = Example("shares", SHARES, ("shares",), 3, shares, lambda value: Outcome(None, None))


def dead(live: LiveStream) -> list[tuple[str | None, ...]]:
    rows = live.independent.hbase(f"{live.name}_dead").rows
    names = ("value", "outcome", "reason", "error", "attempts")
    return sorted(tuple(fields.get(name) for name in names) for _, fields in rows)  # type: ignore[type-var]


@pytest.mark.full
@pytest.mark.covers("C4", "P2", "E46")
def test_a_transform_that_fails_on_some_messages(make: Make) -> None:
    live = make(EXAMPLE, transform={**DIVIDED, **DIVIDED_FIELDS})
    live.produce(60)
    (record,) = live.ingest()
    by_zero = [(f"0,{number}", "failed", "transform: DIVIDE_BY_ZERO", "DIVIDE_BY_ZERO", "1") for number in (0, 30)]
    assert dead(live) == sorted(by_zero)
    assert sum(one.failed.number for one in record.tallies) == 2
    assert len(live.independent.hbase().rows) == 58
    (detail,) = {fields["detail"] for _, fields in live.independent.hbase(f"{live.name}_dead").rows}
    assert detail.startswith("[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`")
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()
    assert report.dead_letters == 2

    # With the bug mended, they are read again, alone.
    mended = f"SELECT {GIVEN_BACK}, int(try_divide(100, id)) AS share, int(of) AS of FROM messages"
    live.rewrite(transform={"sql": mended, **DIVIDED_FIELDS})
    (again,) = live.select(LaneKind.REPLAY, redrive(live.opened, DeadLetterFilter("DIVIDE_BY_ZERO")).ranges)
    assert sum(one.read.number for one in again.tallies) == sum(one.stored.number for one in again.tallies) == 2
    assert dead(live) == []


@pytest.mark.covers("C4", "E46")
def test_a_check_that_cannot_be_computed_refuses_nothing(make: Make) -> None:
    checks = [{"invalid_when": "100 div id > 50 or int(of) < 0", "reason": "too much"}]
    live = make(EXAMPLE, checks=checks)
    live.produce(60)
    live.kafka.send([(live.topics[0], 0, None, b"5,many")])
    live.ingest()
    # A division by 0 and a word for a number give null; 100 div 1 is more than 50.
    assert [(value, reason) for value, _, reason, _, _ in dead(live)] == [("1,1", "too much"), ("1,31", "too much")]
    assert len(live.independent.hbase().rows) == 59


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
    live = make(EXAMPLE, checks=checks)
    live.produce(3)
    with pytest.raises(
        WrongUse, match=r"^checks\.1\.invalid_when: .* is no condition on the fields id, of: "
    ) as refused:
        live.ingest()
    assert said in str(refused.value)
    # Nobody has taken the window.
    pending = live.head().pending
    assert pending is not None
    assert pending.attempt is None
