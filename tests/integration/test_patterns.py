"""Patterns of the scheme `regex` that use up a stack or never end: their messages become dead letters, the others rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example
from tidemark.errors import WrongUse
from tidemark.spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")

# A step into the stack for each character, and one with some n^9 ways to fail at n characters: none is tried twice of one
# with 2^n ways, such as `(a+)+$`, by Java since 9.
QUOTED = {"name": "quoted", "regex": r'"((?:[^"\\]|\\.)*)"'}
DOUBLED = {"name": "doubled", "regex": f"x({'a*' * 10})b"}
PLAIN = {"name": "plain", "regex": "z(.*)"}
LONGEST = 10_100_000


def scheme(*patterns: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "type": "regex",
        "fields": {"text": "string"},
        "patterns": [{**one, "fields": ["text"]} for one in patterns],
    } | more


LIMITED = scheme(QUOTED, DOUBLED, PLAIN, max_line_bytes=LONGEST, max_match_ms=1_000)
STREAM: dict[str, Any] = {
    "source": {},
    "scheme": LIMITED,
    "sinks": [{"type": "hbase", "table": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}
EXAMPLE = Example("patterns", STREAM, ("lines",), 1, lambda count, first: iter(()), lambda value: None)  # type: ignore[arg-type,return-value]


def send(live: LiveStream, *values: str) -> None:
    """To a topic that takes large messages."""
    topic = f"{live.name}-large"
    live.kafka.create(topic, 1, **{"max.message.bytes": "16000000"})
    live.topics = (topic,)
    live.rewrite()
    live.kafka.send(
        [(topic, 0, None, value.encode()) for value in values], max_request_size=16_000_000, compression_type="gzip"
    )


@pytest.mark.full
@pytest.mark.covers("C4", "P2", "E46")
def test_lines_that_a_pattern_cannot_end_with(make: Make) -> None:
    live = make(EXAMPLE)
    lines = {
        '"a"': "a",
        # More than the stack of a task takes, and less than a large one.
        f'"{"b" * 20_000}"': "b" * 20_000,
        f'"{"c" * 200_000}"': None,
        "xaab": "aa",
        f"x{'a' * 80}": None,
        f"z{'d' * 10_000_000}": "d" * 10_000_000,
        f'"{"e" * 10_000_000}"': None,
        f"z{'f' * LONGEST}": None,
        "none of them": None,
        "z\u0001": "\u0001",
        "z": "",
    }
    send(live, *lines)
    (record,) = live.ingest()
    assert sum(one.read.number for one in record.tallies) == len(lines)
    stored = {place[2]: fields["text"] for place, fields in live.independent.hbase().rows}
    assert stored == {offset: text for offset, text in enumerate(lines.values()) if text is not None}
    dead = {place[2]: fields["reason"] for place, fields in live.independent.hbase(f"{live.name}_dead").rows}
    assert dead == {
        2: "pattern quoted needs too much stack",
        4: "pattern doubled took longer than 1000 ms",
        6: "pattern quoted needs too much stack",
        7: f"longer than {LONGEST} bytes",
        8: "matches no pattern",
    }
    assert live.positions() == {(live.topics[0], 0): len(lines)}
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()


def test_a_pattern_that_java_does_not_take_is_found_before_anything_is_read(make: Make) -> None:
    live = make(EXAMPLE, scheme=scheme(PLAIN, {"name": "other", "regex": r"(z)\p{Nothing}"}))
    live.kafka.send([(live.topics[0], 0, None, b"z")])
    with pytest.raises(WrongUse, match=r"^scheme\.patterns\.1\.regex: Java cannot read it: Unknown"):
        live.ingest()
    pending = live.head().pending
    assert pending is not None
    assert pending.attempt is None
