"""Messages that could stop a stream: however many, each becomes a dead letter, and its neighbours go on."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.avro_orders import ORDER, ROW, written
from tests.support.canary import CANARY
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example, Outcome
from tests.support.registry import serving
from tests.support.rows import GIVEN_BACK
from tidemark.offsets.tallies import Outcome as Became
from tidemark.spark.jobs.audit import audit

FIELDS = {"id": "integer", "of": "string"}
# Every n-th message cannot be divided by.
EXAMPLE = Example(
    "poison",
    {
        "source": {"topics": []},
        "scheme": {"type": "delimited", "fields": FIELDS},
        "sinks": [{"type": "hbase", "table": "-"}],
        "dead_letters": {"type": "hbase", "table": "-"},
    },
    ("poison",),
    3,
    lambda count, first: iter(()),
    lambda value: Outcome(None, None),
)
DIVIDED = f"SELECT {GIVEN_BACK}, 100 div id AS share, int(of) AS of FROM messages"
MADE = {"fields": {"share": "integer", "of": "integer"}}


def in_python(messages: DataFrame) -> DataFrame:
    """A transform whose Python function raises."""

    @F.udf("long")
    def share(number: int) -> int:
        if number == 0:
            raise LookupError(f"nothing for {number}")
        return 100 // number

    of = F.col("of").cast("long").alias("of")
    return messages.select(*GIVEN_BACK.split(", "), share("id").alias("share"), of)


def shuffled(messages: DataFrame) -> DataFrame:
    """The same in SQL, with a shuffle of its own."""
    return messages.repartition(2, "of").withColumn("share", F.expr("100 div id")).withColumn("of", F.expr("int(of)"))


def produce(live: LiveStream, count: int, every: int) -> set[tuple[int, int]]:
    """So many messages, of which every n-th is bad in one of two ways; gives the places of those."""
    values = []
    for number in range(count):
        word = CANARY if number % (2 * every) == 0 else f"{number}"
        values.append(f"{0 if number % (2 * every) == every else 7},{word}".encode())
    live.kafka.send((live.topics[0], number % 3, None, value) for number, value in enumerate(values))
    return {(number % 3, number // 3) for number in range(0, count, every)}


@contextmanager
def jobs(spark: SparkSession) -> Iterator[list[int]]:
    """How many jobs of Spark there were."""
    found: list[int] = []
    group = f"poison {time.time_ns()}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        yield found
        found.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
    finally:
        spark.sparkContext._jsc.clearJobGroup()


def dead(live: LiveStream) -> dict[tuple[int, int], tuple[str | None, ...]]:
    found = live.independent.hbase(f"{live.name}_dead")
    assert found.twice() == 0
    names = ("outcome", "reason", "error", "detail")
    return {(place[1], place[2]): tuple(fields.get(name) for name in names) for place, fields in found.rows}


def assert_only_the_bad_ones_are_dead_letters(live: LiveStream, count: int, bad: set[tuple[int, int]]) -> None:
    assert set(dead(live)) == bad
    stored = {(place[1], place[2]) for place, _ in live.independent.hbase().rows}
    assert stored == {(number % 3, number // 3) for number in range(count)} - bad


def assert_an_audit_agrees(live: LiveStream, bad: set[tuple[int, int]]) -> None:
    report = audit(live.opened, f"audit {time.time_ns()}")
    assert report.clean, report.sentence()
    assert report.dead_letters == len(bad)


@pytest.mark.full
@pytest.mark.covers("C4", "E46")
def test_jobs_do_not_grow_with_the_messages_that_a_transform_fails_on(make: Make, spark: SparkSession) -> None:
    used = []
    for every in (300, 20):
        live = make(EXAMPLE, transform={"sql": DIVIDED, **MADE})
        bad = produce(live, 600, every)
        with jobs(spark) as found:
            live.ingest()
        used += found
        assert_only_the_bad_ones_are_dead_letters(live, 600, bad)
    assert_an_audit_agrees(live, bad)
    assert used[0] == used[1]
    # Each for its own reason, in the words of its own error.
    found_dead = dead(live)
    assert {one[:3] for one in found_dead.values()} == {
        ("failed", f"transform: {error}", error) for error in ("DIVIDE_BY_ZERO", "CAST_INVALID_INPUT")
    }
    assert found_dead[20 % 3, 20 // 3][3].startswith("[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`")
    assert found_dead[40 % 3, 40 // 3][3].startswith(f"[CAST_INVALID_INPUT] The value '{CANARY}' of the type")


@pytest.mark.full
@pytest.mark.covers("C4", "E46")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("count", [20, pytest.param(220, marks=pytest.mark.full)])
def test_a_python_function_that_raises(make: Make, count: int) -> None:
    live = make(EXAMPLE, transform={"function": f"{__name__}:in_python", **MADE})
    bad = produce(live, count, 10)
    live.ingest()
    assert_only_the_bad_ones_are_dead_letters(live, count, bad)
    assert {one[1:] for one in dead(live).values() if one[2] != "CAST_INVALID_INPUT"} == {
        ("transform: LookupError", "LookupError", "LookupError: nothing for 0")
    }


@pytest.mark.full
@pytest.mark.covers("C4", "E46")
@pytest.mark.usefixtures("spark")
def test_a_transform_with_a_shuffle_of_its_own(make: Make) -> None:
    live = make(EXAMPLE, transform={"function": f"{__name__}:shuffled", **MADE})
    bad = produce(live, 60, 20)
    live.ingest()
    assert_only_the_bad_ones_are_dead_letters(live, 60, bad)
    assert_an_audit_agrees(live, bad)


@pytest.mark.full
@pytest.mark.covers("C4", "E46")
def test_a_thousand_among_twenty_thousand(make: Make, spark: SparkSession) -> None:
    live = make(EXAMPLE, transform={"sql": DIVIDED, **MADE})
    bad = produce(live, 20_000, 20)
    with jobs(spark) as found:
        live.ingest()
    assert found[0] < 40
    assert_only_the_bad_ones_are_dead_letters(live, 20_000, bad)
    assert_an_audit_agrees(live, bad)


@pytest.mark.covers("E46", "E49")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("pages", [pytest.param(None, marks=pytest.mark.full), 1_000], ids=["no list", "a list"])
def test_messages_that_name_more_schemas_than_there_can_be(
    make: Make, monkeypatch: pytest.MonkeyPatch, pages: int | None
) -> None:
    """Bytes of something else, instead of the number of a schema: those are dead letters, and the registry is asked little."""
    scheme = {"type": "avro", "registry": "avro_registry", "fields": {"id": "integer", "name": "string"}}
    live = make(EXAMPLE, scheme=scheme)
    known, garbage = 4_000_000_000, 1_500
    values = [struct.pack(">bI", 0, 2 * number) + b"whatever" for number in range(garbage)]
    values.append(written(ORDER, ROW, known))
    live.kafka.send((live.topics[0], number % 3, None, value) for number, value in enumerate(values))
    with serving({known: {"schema": json.dumps(ORDER)}}) as served:
        served.pages = pages
        connection = {"conn_type": "http", "host": "http://127.0.0.1", "port": served.port}
        monkeypatch.setenv("AIRFLOW_CONN_AVRO_REGISTRY", json.dumps(connection))
        (record,) = live.ingest()
        asked = list(served.asked)
    counts = {one: sum(getattr(tally, one.name.lower()).number for tally in record.tallies) for one in Became}
    assert (counts[Became.STORED], counts[Became.INVALID]) == (1, garbage)
    assert [fields for _, fields in live.independent.hbase().rows] == [{"id": "5", "name": "Zoë"}]
    assert {reason for _, reason, _, _ in dead(live).values()} == {
        f"schema {2 * number} is not an Avro schema of the registry" for number in range(garbage)
    }
    assert len(asked) < 10 if pages else len(asked) > garbage
    assert f"/schemas/ids/{known}" in asked


@pytest.mark.full
@pytest.mark.covers("A33", "E46")
@pytest.mark.usefixtures("spark")
def test_a_function_is_not_called_for_a_message_whose_time_is_no_time(make: Make) -> None:
    """As `test_messages_whose_time_is_no_time` of Kafka's edges, for the scheme `function`, and for more than a few."""
    scheme = {
        "type": "function",
        "function": "tests.support.own_functions:work",
        "fields": {"word": "string", "number": "integer"},
    }
    live = make(EXAMPLE, scheme=scheme)
    kept = ConfigResource(ConfigResourceType.TOPIC, live.topics[0], {"retention.ms": "-1"})
    live.kafka.admin.alter_configs([kept])
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    for number in range(3_000):
        at = -(2**62) - number if number % 2 else number
        producer.send(live.topics[0], b"row %d" % number, partition=0, timestamp_ms=at)
    producer.close()
    live.ingest()
    assert {place[1] for place in dead(live)} == set(range(1, 3_000, 2))
    assert {one[:3] for one in dead(live).values()} == {("invalid", "timestamp out of range", None)}
    assert len(live.independent.hbase().rows) == 1_500
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()
