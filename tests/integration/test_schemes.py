"""Every scheme on the same unusual messages: into both sinks, read back, and audited."""

from __future__ import annotations

import secrets
from functools import reduce
from operator import xor
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.live_streams import Kafka, Make
from tests.support.oracle import Example
from tests.support.scheme_cases import CASES, CREATE_TIME, LOG_APPEND_TIME, NO_TIME, Case, Message, messages, send
from tidemark.offsets.hashing import coordinate_hash, source_hash
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results

PROMISES = {
    "raw": ["E10", "S7"],
    "string": ["S7"],
    "key_value": ["A07", "S7"],
    "delimited": ["S7"],
    "json": ["S7"],
    "message_metadata": ["A08", "E11"],
}


@pytest.fixture(scope="module")
def topics(kafka: Kafka) -> tuple[str, str]:
    """Two topics with the same messages; the times of the second are the broker's."""
    names = f"schemes-{secrets.token_hex(3)}", f"schemes-{secrets.token_hex(3)}"
    kafka.create(names[0], 1)
    kafka.create(names[1], 1, **{"message.timestamp.type": "LogAppendTime"})
    for name in names:
        send(kafka.servers, name)
    return names


@pytest.fixture(scope="module")
def sent(kafka: Kafka, topics: tuple[str, str]) -> list[Message]:
    found = list(messages(kafka.servers, topics))
    # Kafka holds what this is about: nulls and empties apart, null headers, and messages without a time.
    assert {(one.key, one.value) for one in found} >= {(key, value) for key in (None, b"") for value in (None, b"")}
    assert {value for one in found for _, value in one.headers} >= {None, b""}
    assert {one.timestamp_type for one in found if one.timestamp != NO_TIME} == {CREATE_TIME, LOG_APPEND_TIME}
    assert any(one.timestamp == NO_TIME for one in found)
    return found


# In every run one that Spark's expressions make, one in Python, and one that looks at the whole message.
ALWAYS = ("raw", "key_value", "delimited", "json", "message_metadata")


def marks(case: Case) -> list[pytest.MarkDecorator]:
    long = [] if case.name in ALWAYS else [pytest.mark.full]
    return [pytest.mark.covers(*PROMISES.get(case.name, ())), *long]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=marks(case)) for case in CASES])
def test_a_scheme(make: Make, spark: SparkSession, topics: tuple[str, str], sent: list[Message], case: Case) -> None:
    stream: dict[str, Any] = {
        "source": {},
        "scheme": case.scheme,
        "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
        "dead_letters": {"type": "hbase", "table": "-"},
    }
    example = Example(case.name, stream, (), 1, lambda count, first: iter(()), lambda value: case.outcome(sent[0]))
    live = make(example, source={"topics": list(topics)})
    (record,) = live.ingest()
    assert sum(tally.read.number for tally in record.tallies) == len(sent)
    for tally in record.tallies:
        there = [one for one in sent if one.topic == tally.topic]
        digests = (source_hash(coordinate_hash(tally.at, one.offset), one.key, one.value, one.headers) for one in there)
        assert tally.source == f"{reduce(xor, digests):016x}"
        assert tally.bytes == sum(len(one.key or b"") + len(one.value or b"") for one in there)

    outcomes = {(one.topic, one.partition, one.offset): case.outcome(one) for one in sent}
    wanted = {(*place, 0): outcome.fields for place, outcome in outcomes.items() if outcome.reason is None}
    hbase, files = live.independent.hbase(), live.independent.parquet(list(case.fields))
    assert (hbase.twice(), files.twice()) == (0, 0)
    assert hbase.by_place() == wanted
    assert files.by_place() == wanted
    for offset, fields in case.promised.items():
        assert fields.items() <= hbase.by_place()[topics[0], 0, offset, 0].items()

    # What is invalid is kept with its key and value as they are.
    dead = {place[:3]: fields for place, fields in live.independent.hbase(f"{live.name}_dead").rows}
    assert {place: fields["reason"] for place, fields in dead.items()} == {
        place: outcome.reason for place, outcome in outcomes.items() if outcome.reason is not None
    }
    for one in sent:
        if (one.topic, one.partition, one.offset) in dead:
            fields = dead[one.topic, one.partition, one.offset]
            parts = {"key": one.key, "value": one.value}
            held = {
                name: content.decode(errors="surrogateescape") for name, content in parts.items() if content is not None
            }
            assert {name: text for name, text in fields.items() if name in parts} == held

    # Both sinks give the same rows with the same types, and a row without a value is marked in both.
    typed = [results(spark, live.opened, sink.name) for sink in live.opened.stream.sinks]
    assert typed[0].dtypes == typed[1].dtypes
    rows = [sorted(map(repr, frame.collect())) for frame in typed]
    assert rows[0] == rows[1]
    tombstones = {(row["_topic"], row["_offset"]) for row in typed[0].where("_tombstone").collect()}
    assert tombstones == {(one.topic, one.offset) for one in sent if one.value is None} - {
        (at[0], at[2]) for at in dead
    }

    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()
    assert report.stored == len(wanted)
    assert report.dead_letters == len(dead)
