"""Functions of one's own, retries, dead letters and redrives, on real servers."""

from __future__ import annotations

import json
import random
import string
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.codec import gzip_encode

from tests.support.compacted_topics import COMPACTED, wait_until_left
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example
from tests.support.waiting import until
from tidemark.cli.commands.results import read_rows
from tidemark.commit import protocol
from tidemark.errors import EXIT_FAILED, EXIT_WRONG_USE, Fenced, TooManyInvalid, WrongUse
from tidemark.ledger.records import INGEST, LaneKind, Record
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive
from tidemark.runs.requests.forms import ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import lanes
from tidemark.sinks.kafka.messages import kafka_messages
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks.kafka.writer import MESSAGE_BYTES

pytestmark = pytest.mark.usefixtures("spark")

# Two retries, and no long waits.
RETRY = {"initial_delay_ms": 20, "multiplier": 2.0, "max_delay_ms": 100, "limit": 2}
ERRORS = "tidemark.functions"
OUT_OF_STOCK = "raised tests.support.own_functions.OutOfStock"


def function(name: str, **fields: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": f"tests.support.own_functions:{name}",
        "fields": fields or {"number": "integer", "word": "string"},
    }


STREAM: dict[str, Any] = {
    "source": {},
    "scheme": function("work"),
    "retry": RETRY,
    "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}
EXAMPLE = Example("function", STREAM, ("calls",), 1, lambda count, first: iter(()), lambda value: None)  # type: ignore[arg-type,return-value]


def send(live: LiveStream, *values: str | None, **more: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    try:
        for value in values:
            producer.send(live.topics[0], value and value.encode(), partition=0, **({"key": b"key"} | more))
        producer.flush()
    finally:
        producer.close()


def counts(record: Record) -> dict[str, int]:
    (tally,) = record.tallies
    names = ("read", "stored", "skipped", "invalid", "failed", "rows")
    return {name: getattr(tally, name).number for name in names}


def words(live: LiveStream) -> dict[tuple[int, int], str]:
    """The word of each row by offset and index, the same in both sinks; nothing is there twice."""
    hbase, files = live.independent.hbase(), live.independent.parquet(["number", "word"])
    assert (hbase.twice(), files.twice()) == (0, 0)
    assert hbase.by_place() == files.by_place()
    return {place[2:]: fields["word"] for place, fields in hbase.rows}


def dead(live: LiveStream) -> dict[int, dict[str, Any]]:
    """The dead letters that count, by offset, as people see them."""
    found = list(read_rows(live.opened, live.opened.stream.dead_letters, 1000))
    return {int(one["coordinate"].rpartition("@")[2]): one for one in found}


def redriven(live: LiveStream, **changes: Any) -> Record:
    """Redrive everything that may be, with the stream file changed as told."""
    live.rewrite(**changes)
    (record,) = live.select(LaneKind.REPLAY, redrive(live.opened, DeadLetterFilter()).ranges)
    return record


@pytest.mark.covers("S10", "C3", "C4", "F23", "P3", "P4", "E46", "E47", "A13")
def test_from_the_first_failure_to_the_last_redrive(make: Make, site: Any) -> None:
    live = make(EXAMPLE)
    send(live, "row a", None, "rows 3", "skip", "fail 2", "permanent", "bad", *(f"row {number}" for number in range(4)))
    (first,) = live.ingest()
    assert counts(first) == {"read": 11, "stored": 7, "skipped": 2, "invalid": 1, "failed": 1, "rows": 9}
    assert words(live) == {
        (0, 0): "a",
        **{(2, index): str(index) for index in range(3)},
        # Failed twice, and then did not.
        (4, 0): "2",
        **{(7 + number, 0): str(number) for number in range(4)},
    }
    assert {offset: one["fields"]["reason"] for offset, one in dead(live).items()} == {
        5: "raised tidemark.functions.PermanentFailure",
        6: "word is not a string but int",
    }

    # Of [11, 19) the message at 14 can never be processed: the others are stored, and it is a dead letter.
    headers = [("trace", b"1"), ("trace", b""), ("", b"\xff")]
    before = time.time()
    send(live, "row", "row", "row")
    send(live, "fail 99", key=b"\xff\x00", headers=headers)
    send(live, "row", "row", "row", "row")
    (second,) = live.ingest()
    assert live.positions() == {(live.topics[0], 0): 19}
    assert counts(second) == {"read": 8, "stored": 7, "skipped": 0, "invalid": 0, "failed": 1, "rows": 7}
    letter = dead(live)[14]
    assert letter["window"] == "ingest/2"
    fields = letter["fields"]
    assert {name: fields[name] for name in ("reason", "outcome", "error", "detail", "attempts", "redrives")} == {
        "reason": OUT_OF_STOCK,
        "outcome": "failed",
        "error": "tests.support.own_functions.OutOfStock",
        "detail": "tests.support.own_functions.OutOfStock: none of 14",
        "attempts": "3",
        "redrives": "0",
    }
    assert (fields["key"], fields["value"], fields["code_version"]) == ("\\xff\x00", "fail 99", lanes.code_version())
    assert json.loads(fields["headers"]) == [
        {"key": "trace", "value": "MQ=="},
        {"key": "trace", "value": ""},
        {"key": "", "value": "/w=="},
    ]
    # The two waits lie between the first failure and the last.
    times = [_seconds(fields[name]) for name in ("first_failed_at", "last_failed_at")]
    assert before - 1 <= times[0] <= times[1] - 0.06 <= time.time()
    report = audit(live.opened, "after the window")
    assert report.clean, report.sentence()

    # A redrive reads 14 alone; it fails again, which is counted, and is not tried again by itself.
    limited = {"type": "hbase", "table": f"{live.name}_dead", "max_redrives": 1}
    live.rewrite(dead_letters=limited)
    (again,) = live.select(LaneKind.REPLAY, redrive(live.opened, DeadLetterFilter(OUT_OF_STOCK)).ranges)
    assert counts(again) == {"read": 1, "stored": 0, "skipped": 0, "invalid": 0, "failed": 1, "rows": 0}
    assert {offset: one["fields"]["redrives"] for offset, one in dead(live).items()} == {5: "0", 6: "0", 14: "1"}
    assert live.ingest() == []

    # Once is enough here: it is left out, and the other two are chosen.
    chosen = plan_request(live.opened, ReplayRequest(dead_letters="*", reason="a test"))
    assert chosen.ranges == live.ranges(0, 0, (5, 7))
    ((why, left_out),) = chosen.left_out.items()
    assert (left_out, "max_redrives" in why) == (live.ranges(0, 0, (14, 15)), True)

    # With a corrected function and a higher limit it becomes a row, and nothing else is touched.
    generations = live.independent.generations()
    live.rewrite(scheme=function("corrected"), dead_letters={**limited, "max_redrives": 2})
    (good,) = live.select(
        LaneKind.REPLAY, redrive(live.opened, DeadLetterFilter("tests.support.own_functions.OutOfStock")).ranges
    )
    assert counts(good) == {"read": 1, "stored": 1, "skipped": 0, "invalid": 0, "failed": 0, "rows": 1}
    now = live.independent.generations()
    changed = {place for place, generation in now.items() if generations.get(place) != generation}
    assert changed == {(live.topics[0], 0, 14)}
    assert words(live)[14, 0] == "corrected"
    assert set(dead(live)) == {5, 6}

    # What Kafka no longer holds is said to be expired, and the rest is redriven.
    live.kafka.delete_records(live.topics[0], 0, 6)
    chosen = plan_request(live.opened, ReplayRequest(dead_letters="*", reason="a test"))
    assert (chosen.ranges, chosen.left_out) == (
        live.ranges(0, 0, (6, 7)),
        {"expired: Kafka no longer holds them": live.ranges(0, 0, (5, 6))},
    )
    assert set(dead(live)) == {5, 6}

    # Too many that fail are too many, as if they were invalid; nothing is written.
    live.rewrite(limits={"max_invalid": {"number": 1}})
    send(live, "fail 99", "bad", "row")
    with pytest.raises(TooManyInvalid) as caught:
        live.ingest()
    assert caught.value.exit_code == EXIT_FAILED
    assert f"1 x '{OUT_OF_STOCK}', such as {live.topics[0]}/0@19" in str(caught.value)
    assert set(dead(live)) == {5, 6}


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


@pytest.mark.full
def test_what_a_sink_cannot_take_is_a_dead_letter_as_a_whole(make: Make) -> None:
    """In the one sink or in none: nothing of a message is written that one of the sinks refuses."""
    live = make(EXAMPLE)
    target = f"{live.name}-out"
    live.kafka.create(target, 1, **{"max.message.bytes": "2048"})
    live.rewrite(
        checks=[{"invalid_when": "number = 2 and word = '2'", "reason": "two"}],
        sinks=[
            {"type": "hbase", "table": live.name, "max_cell_bytes": 3000},
            {"type": "kafka", "topic": target, "value": "word"},
        ],
    )
    # The largest that both take; the broker says whether that is so.
    largest = 2048 - MESSAGE_BYTES
    send(live, *(f"row {'a' * number}" for number in (1, largest, largest + 1, 3500)), "rows 3", "rows 2")
    (record,) = live.ingest()
    assert counts(record) == {"read": 6, "stored": 3, "skipped": 0, "invalid": 1, "failed": 2, "rows": 4}
    wanted = {(0, 0): "a", (1, 0): "a" * largest, (5, 0): "0", (5, 1): "1"}
    assert {place[2:]: fields["word"] for place, fields in live.independent.hbase().rows} == wanted
    sent = kafka_messages(live.opened.ledger, live.kafka.endpoint, [target], "kafka")
    assert {(one.origin.place.offset, one.origin.place.index): one.value for one in sent} == {
        place: word.encode() for place, word in wanted.items()
    }
    cell = 3500 + 45 + len("word") + len(live.topics[0])
    letters = {offset: one["fields"] for offset, one in dead(live).items()}
    assert {offset: one["reason"] for offset, one in letters.items()} == {
        2: "sink kafka: the message is too large",
        3: "sink hbase: the cell of word is too large",
        4: "two",
    }
    assert {offset: one.get("detail") for offset, one in letters.items()} == {
        2: "2049 bytes, the most is 2048",
        3: f"{cell} bytes, the most is 3000",
        4: None,
    }
    assert [letters[offset]["outcome"] for offset in (2, 3, 4)] == ["failed", "failed", "invalid"]
    assert letters[3]["value"] == f"row {'a' * 3500}"
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


@pytest.mark.full
@pytest.mark.covers("C4", "P3", "E46")
def test_a_message_that_never_returns_and_one_that_ends_its_process(make: Make) -> None:
    live = make(EXAMPLE, retry={**RETRY, "limit": 1, "timeout_ms": 1_000})
    send(live, "row a", "hang", "row b", "die", "rows 2", "row c")
    (record,) = live.ingest()
    assert counts(record) == {"read": 6, "stored": 4, "skipped": 0, "invalid": 0, "failed": 2, "rows": 5}
    assert words(live) == {(0, 0): "a", (2, 0): "b", (4, 0): "0", (4, 1): "1", (5, 0): "c"}
    letters = {offset: one["fields"] for offset, one in dead(live).items()}
    assert {offset: (one["reason"], one["attempts"], one["detail"]) for offset, one in letters.items()} == {
        1: (f"raised {ERRORS}.TimedOut", "2", f"{ERRORS}.TimedOut: longer than 1000 ms"),
        3: (f"raised {ERRORS}.ProcessEnded", "2", f"{ERRORS}.ProcessEnded: exit code 9"),
    }
    assert live.positions() == {(live.topics[0], 0): 6}
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


@pytest.mark.full
def test_what_a_topic_cannot_take_even_compressed_is_a_dead_letter(make: Make) -> None:
    """A topic's limit is that of what the producer sends: what is larger before that is stored."""
    live = make(EXAMPLE)
    target = f"{live.name}-out"
    live.kafka.create(target, 1, **{"max.message.bytes": "2048"})
    in_kafka = {"type": "kafka", "topic": target, "value": "word", "settings": {"compression.type": "gzip"}}
    live.rewrite(sinks=[{"type": "hbase", "table": live.name}, in_kafka])

    def compressed(text: str) -> int:
        return len(gzip_encode(text.encode())) + MESSAGE_BYTES

    text = "".join(random.Random(5).choices(string.ascii_letters + string.digits, k=4000))
    # The largest that is taken; the broker says whether that is so.
    largest = max(n for n in range(len(text)) if compressed(text[:n]) <= 2048)
    assert largest + MESSAGE_BYTES > 2048
    send(live, f"row {'a' * 20_000}", f"row {text[:largest]}", f"row {text}")
    (record,) = live.ingest()
    assert counts(record) == {"read": 3, "stored": 2, "skipped": 0, "invalid": 0, "failed": 1, "rows": 2}
    sent = kafka_messages(live.opened.ledger, live.kafka.endpoint, [target], "kafka")
    assert {one.origin.place.offset: one.value for one in sent} == {0: b"a" * 20_000, 1: text[:largest].encode()}
    (letter,) = [one["fields"] for one in dead(live).values()]
    assert letter["reason"] == "sink kafka: the message, compressed, is too large"
    assert letter["detail"] == f"{compressed(text)} bytes, the most is 2048"
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


@pytest.mark.full
def test_what_a_cell_of_dead_letters_cannot_take_is_left_out(make: Make) -> None:
    """Where HBase takes less than it does by default. What a function says of a failure is cut too."""
    live = make(EXAMPLE)
    checks = [{"invalid_when": "length(word) > 100", "reason": "long"}]
    live.rewrite(checks=checks, dead_letters={"type": "hbase", "table": f"{live.name}_dead", "max_cell_bytes": 3000})
    values = [f"row {'a' * number}" for number in (1972, 1973, 2500)]
    send(live, *values, f"permanent {'€' * 2000}")
    (record,) = live.ingest()
    assert (counts(record)["invalid"] + counts(record)["failed"], counts(record)["read"]) == (4, 4)
    letters = {offset: one["fields"] for offset, one in dead(live).items()}
    assert [letters[offset].get("value") for offset in range(4)] == [values[0], None, None, None]
    assert letters[1]["detail"] == "left out: the value has 1977 bytes, the most is 1976"
    assert letters[2]["detail"] == "left out: the value has 2504 bytes, the most is 1976"
    assert letters[3]["detail"].startswith("tidemark.functions.PermanentFailure: €€€")
    assert all(len(text.encode()) <= 1976 for one in letters.values() for text in one.values())
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


@pytest.mark.full
def test_the_largest_cell_that_hbase_takes(make: Make) -> None:
    """HBase's own limit is the one that is expected; and a message that is larger than any cell can be a dead letter too."""
    example = replace(EXAMPLE, stream={**STREAM, "scheme": {"type": "string"}, "sinks": STREAM["sinks"][:1]})
    example.stream.pop("retry")
    live = make(example)
    large = f"{live.name}-large"
    live.kafka.create(large, 1, **{"max.message.bytes": "16000000"})
    live.topics = (large,)
    live.rewrite()
    largest = 10_485_760 - 45 - len("value") - len(large)
    live.kafka.send(
        [(large, 0, None, b"a" * size) for size in (largest, largest + 1)],
        max_request_size=16_000_000,
        compression_type="gzip",
    )
    (record,) = live.ingest()
    assert counts(record) == {"read": 2, "stored": 1, "skipped": 0, "invalid": 0, "failed": 1, "rows": 1}
    ((_, fields),) = live.independent.hbase().rows
    assert len(fields["value"]) == largest
    letter = dead(live)[1]["fields"]
    assert letter["reason"] == "sink hbase: the cell of value is too large"
    left_out = f"left out: the value has {largest + 1} bytes, the most is 10484736"
    assert letter["detail"] == f"10485761 bytes, the most is 10485760; {left_out}"
    assert "value" not in letter
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


@pytest.mark.covers("A15")
def test_a_dead_letter_behind_a_gap(make: Make) -> None:
    live = make(EXAMPLE)
    topic = f"{live.name}-compacted"
    live.kafka.create(topic, 1, **COMPACTED)
    live.topics = (topic,)
    live.rewrite()
    for key, value in (*((key, "row") for key in "abcxx"), ("x", "fail 99")):
        send(live, value, key=key.encode())
    time.sleep(0.5)
    send(live, "row", key=b"y")
    wait_until_left(live, [0, 1, 2, 5, 6], 7)
    (record,) = live.ingest()
    assert (live.positions(), counts(record)["failed"], set(dead(live))) == ({(topic, 0): 7}, 1, {5})
    assert {offset for offset, _ in words(live)} == {0, 1, 2, 6}
    (gap,) = audit(live.opened, "audit").gaps
    assert (gap.ranges, gap.unexplained) == ((f"{topic}/0@3-5",), 0)
    generations = live.independent.generations()
    record = redriven(live, scheme=function("corrected"))
    assert counts(record) == {"read": 1, "stored": 1, "skipped": 0, "invalid": 0, "failed": 0, "rows": 1}
    changed = {place[2] for place, one in live.independent.generations().items() if generations.get(place) != one}
    assert (changed, dead(live)) == ({5}, {})


@pytest.mark.full
@pytest.mark.covers("A12")
def test_a_function_that_is_not_there_is_found_before_anything_is_read(make: Make) -> None:
    live = make(EXAMPLE, scheme=function("no_such_function"))
    send(live, *(f"fail {number}" for number in range(1, 5)))
    with pytest.raises(WrongUse, match="has no function no_such_function") as caught:
        live.ingest()
    assert caught.value.exit_code == EXIT_WRONG_USE
    pending = live.head().pending
    assert pending is not None
    assert pending.attempt is None
    # With the function that is meant, and no retries: all four fail, and the window commits.
    live.rewrite(retry={"limit": 0})
    (record,) = live.ingest()
    assert counts(record) == {"read": 4, "stored": 0, "skipped": 0, "invalid": 0, "failed": 4, "rows": 0}
    assert live.positions() == {(live.topics[0], 0): 4}
    assert [one["fields"]["attempts"] for one in dead(live).values()] == ["1"] * 4


@pytest.mark.full
def test_a_task_that_waits_for_a_retry_notices_that_its_window_was_taken(make: Make, tmp_path: Path) -> None:
    called = tmp_path / "called"
    live = make(EXAMPLE, scheme=function("slow"), retry={"initial_delay_ms": 600_000, "max_delay_ms": 600_000})
    send(live, str(called))
    raised: list[BaseException] = []

    def ingest() -> None:
        try:
            live.ingest("the first")
        except BaseException as problem:
            raised.append(problem)

    waiting = threading.Thread(target=ingest)
    waiting.start()
    until(called.exists, "the function was not called")
    opened = live.opened
    protocol.take(opened.ledger, INGEST, 1, lanes.this_run(opened, "the second"), take_over=True)
    waiting.join(60)
    assert not waiting.is_alive()
    (problem,) = raised
    from tidemark.spark.runtime.failures import translate

    assert isinstance(translate(problem), Fenced)
