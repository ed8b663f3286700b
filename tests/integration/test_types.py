"""Fields of all types: one digest of a value by the one-pass way, the kept way, and readers without Spark."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from tests.support.command_line import asked
from tests.support.digests import AT, expected_digest, kept_way, one_way
from tests.support.foreign_readers import foreign_rows, lakes
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example, Outcome
from tests.support.registry import serving
from tests.support.rows import GIVEN_BACK, messages_of, stream_of
from tests.support.sink_topics import written
from tests.support.typed_values import VECTORS, json_of, types, values
from tidemark.cli.app import app
from tidemark.commit.protocol import Step
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind, Record, UnknownFields
from tidemark.offsets.hashing import content_hash, coordinate_hash, row_hash, unsigned
from tidemark.planning.dividing import divide_evenly
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg.compacting import compact as compact_table
from tidemark.sinks.iceberg.reading import iceberg_tables
from tidemark.sinks.iceberg.settings import IcebergSink
from tidemark.sinks.kinds import sink_to_compact
from tidemark.sinks.parquet.steps import CompactionStep
from tidemark.sinks.reading import delta_tables, parquet_tables
from tidemark.sinks.values import value_of
from tidemark.spark.columns import OFFSET, REASON, content_digest, field, text
from tidemark.spark.jobs.audit import audit
from tidemark.spark.readers.parquet import schema_of
from tidemark.spark.readers.places import of_text
from tidemark.spark.rows.pipeline import rows_of
from tidemark.spark.sinks import results
from tidemark.spark.sinks.parquet.compacting import compact
from tidemark.streams.model import Stream
from tidemark.types.digests import digested
from tidemark.types.fields import canonical, spark_type, text_of
from tidemark.views.metrics import counts
from tidemark.views.summary import answer_of


@pytest.mark.covers("N82")
@pytest.mark.parametrize(("kind", "value", "encoded", "hashed"), VECTORS)
def test_vectors(spark: SparkSession, kind: str, value: Any, encoded: str, hashed: str) -> None:
    """Spark's expressions give the canonical bytes that are specified."""
    from tidemark.spark.columns import _canonical
    from tidemark.types.ddl import type_alone

    given = dict(value) if kind.startswith("map") else value
    if isinstance(given, dict) and "m" in given:
        given = {**given, "m": dict(given["m"])}
    frame = spark.createDataFrame([(given,)], f"c {spark_type(canonical(kind))}")
    made = F.expr(_canonical("c", type_alone(kind), 0))
    (row,) = frame.select(F.hex(made).alias("bytes"), F.xxhash64(made).alias("hash")).collect()
    assert (row["bytes"].lower(), f"{unsigned(row['hash']):016x}") == (encoded, hashed)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    kinds = draw(st.lists(types(), min_size=4, max_size=4))
    fields = {f"F-{number}": text_of(kind) for number, kind in enumerate(kinds)}
    row = st.fixed_dictionaries({f"F-{number}": values(kind) for number, kind in enumerate(kinds)})
    return fields, draw(st.lists(row, min_size=5, max_size=10))


def check_agreement(spark: SparkSession, folder: Path, fields: dict[str, str], rows: list[dict[str, Any]]) -> None:
    stream = stream_of(scheme={"type": "json", "fields": fields})
    messages = messages_of(spark, [json_of(row).encode() for row in rows])
    expected = {offset: expected_digest(offset, fields, row) for offset, row in enumerate(rows)}
    assert one_way(messages, stream) == expected
    assert kept_way(messages, stream) == expected
    made = rows_of(messages, stream).frame
    # Files, by Arrow and by Spark.
    made.select(OFFSET, *map(field, fields)).write.mode("overwrite").parquet(str(folder))
    read = ds.dataset(folder, format="parquet").to_table().to_pylist()
    assert {row[OFFSET]: expected_digest(row[OFFSET], fields, row) for row in read} == expected
    columns = [one.name for one in schema_of(fields) if one.name in fields]
    files = spark.read.schema(schema_of(fields)).parquet(str(folder)).select(OFFSET, *map(field, columns))
    both = made.select(OFFSET, *map(field, fields)).join(
        files.withColumnRenamed(OFFSET, "o"), F.col(OFFSET) == F.col("o")
    )
    assert both.count() == len(rows)
    # HBase's texts, by Python and by Spark.
    texts = [text(name, kind).alias(f"t{number}") for number, (name, kind) in enumerate(fields.items())]
    stored = made.select(OFFSET, *texts)
    for row in stored.collect():
        contents = [None if one is None else bytes(one) for one in row[1:]]
        found = [*map(value_of, fields.values(), contents)]
        assert content_hash(row_hash(coordinate_hash(AT, row[0]), 0), found) == expected[row[0]], (fields, row)
    back = [
        of_text(F.col(f"t{number}"), spark_type(kind)).alias(name) for number, (name, kind) in enumerate(fields.items())
    ]
    place = made.drop(*fields).join(stored.select(OFFSET, *back), OFFSET)
    again = place.select(OFFSET, content_digest(fields).alias("digest"))
    assert {row[OFFSET]: unsigned(row["digest"]) for row in again.collect()} == expected


# Through a stream: all sinks, and all readers

KINDS = {
    "id": "integer",
    "n": "int",
    "f": "float",
    "amount": "decimal(12,2)",
    "big": "decimal(38,10)",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "raw": "binary",
    "tags": "array<string>",
    "more": "map<string, decimal(9,3)>",
    "lines": "array<struct<sku: string, price: decimal(10,2), on: date>>",
}
STREAM: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {"type": "json", "fields": KINDS},
    "sinks": [],
    "dead_letters": {"type": "hbase", "table": "-"},
}


def row_of(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    lines = [
        {
            "sku": f"é{one}",
            "price": Decimal(chance.randrange(10**9)).scaleb(-2),
            "on": None if one else date(2026, 11, 27),
        }
        for one in range(number % 3)
    ]
    whole = {
        "id": number,
        "n": -number,
        "f": 0.10000000149011612,
        "amount": Decimal(number).scaleb(-2),
        "big": Decimal(-number).scaleb(-10),
        "day": date(2026, 1, 1 + number % 28),
        "at": datetime(2026, 11, 27, 1, 2, 3, number, tzinfo=UTC),
        "wall": datetime(2026, 11, 27, 1, 2, 3, number),
        "raw": bytes([number % 256]),
        "tags": [None, "", f"t{number}"][: number % 4],
        "more": {"b": Decimal("0.001"), "a": None} if number % 2 else {},
        "lines": lines,
    }
    return {name: None if chance.random() < 0.1 and name != "id" else value for name, value in whole.items()}


DEEP = "map<string,array<struct<m:map<string,int>,d:double>>>"


def rich(number: int) -> dict[str, Any]:
    deep = {"b": [{"m": {"y": number, "x": None}, "d": -0.0}, None], "a": None, "": []}
    return {**row_of(number), "deep": deep}


def typed_messages(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    for number in range(first, first + count):
        yield b"key", b'{"amount": 1.105}' if number % 10 == 9 else json_of(row_of(number)).encode()


TYPED = Example("typed", STREAM, ("typed",), 1, typed_messages, lambda value: Outcome(None, None))


def by_id(rows: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """Rows, their values as digests have them: whichever reader they are from, and in whatever order its maps are."""
    return {row["id"]: {name: digested(canonical(kind), row[name]) for name, kind in KINDS.items()} for row in rows}


def with_zones(row: dict[str, Any]) -> dict[str, Any]:
    """Spark gives instants as the machine's time, and bytes as a bytearray."""
    at, raw = row["at"], row["raw"]
    return {**row, "at": at and at.astimezone(UTC), "raw": None if raw is None else bytes(raw)}


def assert_typed(live: LiveStream, spark: SparkSession, numbers: range) -> None:
    wanted = by_id(row_of(number) for number in numbers if number % 10 != 9)
    ledger = live.opened.ledger
    tables = (parquet_tables(ledger, "parquet"), delta_tables(ledger, "delta"))
    for found in (*tables, iceberg_tables(ledger, "iceberg", live.opened.connections)):
        assert by_id(row for table in found for row in table.to_pylist()) == wanted
    for sink in live.opened.stream.sinks:
        rows = [row.asDict(recursive=True) for row in results(spark, live.opened, sink.name).collect()]
        assert by_id(with_zones(row) for row in rows) == wanted, sink.name
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()
    assert report.dead_letters == sum(number % 10 == 9 for number in numbers)


@pytest.mark.full
@pytest.mark.covers("N81", "N83")
def test_a_stream_of_all_types(
    make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make(TYPED)
    live.rewrite(sinks=[{"type": "hbase", "table": live.name}, *lakes(live, tmp_path, monkeypatch)])
    for count in (30, 20):
        live.produce(count)
        live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (5, 25)))
    compact(
        live.opened,
        sink_to_compact(live.opened.stream.sinks, live.name, "parquet"),
        live.new_run(),
        CompactionRequest(),
    )
    assert_typed(live, spark, range(50))


@pytest.mark.covers("N107")
def test_nested_json_is_read_in_three_lakes_by_whoever_reads_lakes(
    make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make(TYPED)
    live.rewrite(sinks=lakes(live, tmp_path, monkeypatch))
    live.produce(20)
    live.ingest()
    wanted = by_id(row_of(number) for number in range(20) if number % 10 != 9)
    # pyiceberg 0.12 reads an absent list of structs as an empty one.
    of_pyiceberg = by_id({**row_of(one), "lines": row_of(one)["lines"] or []} for one in wanted)
    for reader, rows in foreign_rows(spark, live):
        assert by_id(rows) == (of_pyiceberg if reader == "iceberg by pyiceberg" else wanted), reader


@pytest.mark.covers("N109")
def test_values_in_avro_by_a_registry(make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    live = make(TYPED)
    out = [f"{live.name}-{one}" for one in ("a", "b")]
    for topic in out:
        live.kafka.create(topic, 1)
    sink = {
        "type": "kafka",
        "topic": out[0],
        "topic_field": "topic",
        "topics": [out[1]],
        "value_format": "avro",
        "registry": "ours",
    }
    fields = {**KINDS, "topic": "string"}
    live.rewrite(sinks=[sink], scheme={"type": "json", "fields": fields})
    rows = [{**row_of(number), "topic": out[1] if number % 2 else None} for number in range(10)]
    live.kafka.send((live.topics[0], 0, b"k", json_of(row).encode()) for row in rows)
    live.kafka.send([(live.topics[0], 0, b"k", None)])
    with serving({}) as served:
        connection = {"conn_type": "http", "host": "http://127.0.0.1", "port": served.port}
        monkeypatch.setenv("AIRFLOW_CONN_OURS", json.dumps(connection))
        live.ingest()
        # One schema, which both subjects have.
        assert sorted(served.subjects) == [f"{topic}-value" for topic in out]
        ((schema, number),) = {entry for one in served.subjects.values() for entry in one.items()}
        reader = fastavro.parse_schema(json.loads(schema))
        found: list[dict[str, Any]] = []
        for topic in out:
            for value in (value for *_, value in written(live, topic) if value is not None):
                assert value[:5] == number.to_bytes(5, "big")
                row: Any = fastavro.schemaless_reader(BytesIO(value[5:]), reader, None)
                assert row["topic"] == (topic if topic == out[1] else None)
                found.append(row)
        assert by_id(found) == by_id(rows)
        report = audit(live.opened, live.new_run())
        assert report.clean, report.sentence()
        # A schema that the registry refuses ends the run before it reads anything.
        served.refuses = "incompatible"
        live.rewrite(sinks=[sink], scheme={"type": "json", "fields": {**fields, "more": "date"}})
        live.kafka.send([(live.topics[0], 0, b"k", b"{}")])
        with pytest.raises(WrongUse, match=r"the schema registry refuses the schema for .*: incompatible"):
            live.ingest()
    assert live.positions() == {(live.topics[0], 0): 11}


@pytest.mark.full
@pytest.mark.covers("N109")
def test_a_replay_into_a_topic_in_avro_that_was_cut_or_made_anew(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Kafka has deleted is there again, each value under the schema that its topic's subject has now."""
    live = make(TYPED)
    out = f"{live.name}-out"
    live.kafka.create(out, 1)
    sink = {"type": "kafka", "topic": out, "value_format": "avro", "registry": "ours"}
    live.rewrite(sinks=[sink])
    live.produce(30)
    whole = live.ranges(0, 0, (0, 30))
    wanted = by_id(row_of(number) for number in range(30) if number % 10 != 9)

    def values() -> dict[int, dict[str, Any]]:
        """Of each row what was written last."""
        ((schema, number),) = served.subjects[f"{out}-value"].items()
        reader, found = fastavro.parse_schema(json.loads(schema)), {}
        for value in (value for *_, value in written(live, out) if value is not None):
            assert value[:5] == number.to_bytes(5, "big")
            row: Any = fastavro.schemaless_reader(BytesIO(value[5:]), reader, None)
            found[row["id"]] = row
        return by_id(found.values())

    with serving({}) as served:
        connection = {"conn_type": "http", "host": "http://127.0.0.1", "port": served.port}
        monkeypatch.setenv("AIRFLOW_CONN_OURS", json.dumps(connection))
        live.ingest()
        assert values() == wanted
        live.kafka.delete_records(out, 0, 10)
        live.select(LaneKind.REPLAY, whole)
        assert values() == wanted
        assert audit(live.opened, live.new_run()).clean

        live.kafka.recreate(out, 1)
        report = audit(live.opened, live.new_run())
        assert report.places[0].missing == len(wanted), report.sentence()
        # Another registry, which numbers its schemas otherwise.
        served.subjects.clear()
        served.subjects["another-value"] = {"{}": 70_000}
        live.select(LaneKind.REPLAY, whole)
        assert values() == wanted
        report = audit(live.opened, live.new_run())
        assert report.clean, report.sentence()


@pytest.mark.full
def test_nested_types_of_compressed_pieces(
    make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed values, split into pieces, with all types, into Iceberg."""
    live = make(TYPED)
    *_, iceberg = lakes(live, tmp_path, monkeypatch)
    live.rewrite(sinks=[iceberg], decompress="gzip", explode={"json_array": "items"})
    rows = [row_of(number) for number in range(12)]
    values = [f'{{"items": {json_of(rows[at : at + 3])}}}'.encode() for at in range(0, 12, 3)]
    live.kafka.send((live.topics[0], 0, b"k", gzip.compress(value)) for value in values)
    live.kafka.send([(live.topics[0], 0, b"k", values[0])])
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (1, 3)))
    found = [row for table in iceberg_tables(live.opened.ledger, "iceberg") for row in table.to_pylist()]
    assert by_id(found) == by_id(rows)
    assert sorted((row["_offset"], row["_index"]) for row in found) == [(at // 3, at % 3) for at in range(12)]
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()
    assert report.dead_letters == 1


@pytest.mark.full
def test_aggregates_by_a_key_of_these_types(make: Make, spark: SparkSession) -> None:
    """Days, decimals, times without a zone and floats name a key of HBase by their texts, and come back with their types."""
    live = make(TYPED)
    key = ("day", "amount", "wall", "f", "n")
    values = {"rows": "count", "ids": {"sum": "id"}}
    place = {"table": f"{live.name}_sums", "folder": f"{live.name}_sums"}
    live.rewrite(sinks=[{"type": "hbase_aggregates", **place, "key": [*key], "values": values}])
    rows = [{**row_of(number), **{name: row_of(number % 4)[name] for name in key}} for number in range(16)]
    live.kafka.send((live.topics[0], 0, b"k", json_of(row).encode()) for row in rows)
    live.ingest()
    wanted: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in rows:
        count, ids = wanted.get(at := tuple(row[name] for name in key), (0, 0))
        wanted[at] = count + 1, ids + row["id"]
    found = results(spark, live.opened, "hbase_aggregates").collect()
    assert {tuple(row[name] for name in key): (row["rows"], row["ids"]) for row in found} == wanted
    assert len(found) == len(wanted)
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()


# Random types and values


@pytest.mark.full
@pytest.mark.covers("N82")
@settings(
    deadline=None,
    phases=[Phase.explicit],
    suppress_health_check=[*HealthCheck],
)
@given(case=_cases())
@example(
    case=(
        {**KINDS, "deep": "map<string,array<struct<m:map<string,int>,d:double>>>"},
        [rich(number) for number in range(8)],
    )
)
def test_all_ways_agree(spark: SparkSession, tmp_path: Path, case: tuple[dict[str, str], list[dict[str, Any]]]) -> None:
    check_agreement(spark, tmp_path, *case)


@pytest.mark.full
@settings(max_examples=40, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
@given(case=_cases())
def test_all_ways_agree_on_many(
    spark: SparkSession, tmp_path: Path, case: tuple[dict[str, str], list[dict[str, Any]]]
) -> None:
    check_agreement(spark, tmp_path, *case)


# What fits no type

_JSON: list[tuple[str, str, str]] = [
    ("amount", "1.105", "amount is not decimal(12,2)"),
    ("amount", "12345678901", "amount is not decimal(12,2)"),
    ("amount", "1e2", "amount is not decimal(12,2)"),
    ("amount", '"1.10"', "amount is not decimal(12,2)"),
    ("amount", '"NaN"', "amount is not decimal(12,2)"),
    ("amount", "NaN", "not one JSON value, or a key stands twice in it"),
    ("more", '{"k": 1, "k": 2}', "not one JSON value, or a key stands twice in it"),
    ("more", '{"k": 1.0001}', "more[] is not decimal(9,3)"),
    ("wall", '"2026-11-27T01:02:03+05:00"', "wall is not a time without a zone"),
    ("day", '"2026-11-27T01:02:03"', "day is not a date"),
    ("day", '"2026-02-29"', "day is not a date"),
    ("n", "2147483648", "n is not an integer of 32 bits"),
    ("n", "1.0", "n is not an integer of 32 bits"),
    ("f", "1e39", "f is not a number of 32 bits"),
    ("f", "16777217", "f is not a number of 32 bits"),
    ("f", '"NaN"', "f is not a number of 32 bits"),
    ("raw", '"a"', "raw is not base64"),
    ("lines", '[{"price": 0.001}]', "lines[].price is not decimal(10,2)"),
    ("lines", '[{"on": "today"}]', "lines[].on is not a date"),
    ("tags", '[["a"]]', "tags[] is not a string"),
    # Half of a pair of surrogates is no character.
    ("tags", '["x\\ud83d"]', "not one JSON value, or a key stands twice in it"),
]
_TEXT: list[tuple[str, str, str]] = [
    ("amount", "1.105", "amount is not decimal(12,2)"),
    ("amount", "12345678901", "amount is not decimal(12,2)"),
    ("amount", "1e2", "amount is not decimal(12,2)"),
    ("amount", ".", "amount is not decimal(12,2)"),
    ("amount", "NaN", "amount is not decimal(12,2)"),
    ("day", "2026-11-27 00:00:00", "day is not a date"),
    ("day", "today", "day is not a date"),
    ("wall", "2026-11-27T01:02:03Z", "wall is not a time without a zone"),
    ("n", "2147483648", "n is not an integer of 32 bits"),
    ("f", "1e39", "f is not a number of 32 bits"),
    ("f", "0.123456789", "f is not a number of 32 bits"),
    ("raw", "a", "raw is not base64"),
]


def reasons(messages: DataFrame, stream: Stream) -> list[str | None]:
    rows = rows_of(messages, stream)
    found = [row[REASON] for row in rows.frame.orderBy(OFFSET).select(REASON).collect()]
    rows.close()
    return found


@pytest.mark.covers("N83")
def test_what_does_not_fit_is_a_dead_letter(spark: SparkSession) -> None:
    stream = stream_of(scheme={"type": "json", "fields": KINDS})
    values: list[bytes | None] = [f'{{"{name}": {json}}}'.encode() for name, json, _ in _JSON]
    fits = [b'{"amount": 1.100, "n": -2147483648}', b'{"amount": 9999999999.99}', b'{"amount": -0.00}']
    found = reasons(messages_of(spark, [*values, *fits]), stream)
    assert found == [*(reason for _, _, reason in _JSON), None, None, None]


@pytest.mark.full
@pytest.mark.covers("N83")
def test_a_text_that_does_not_fit_is_a_dead_letter(spark: SparkSession) -> None:
    fields = {name: KINDS[name] for name in ("amount", "day", "wall", "n", "f", "raw", "big")}
    stream = stream_of(scheme={"type": "delimited", "fields": fields})

    def line(**given: str) -> bytes:
        return ",".join(given.get(name, "") for name in fields).encode()

    whole = line(
        amount=" +0001.10 ", day="2026-11-27", wall="2026-11-27 01:02:03.5", n="-5", f="0.1", raw="AP8=", big="-.5"
    )
    messages = messages_of(spark, [*(line(**{name: text}) for name, text, _ in _TEXT), whole])
    assert reasons(messages, stream) == [*(reason for _, _, reason in _TEXT), None]
    (row,) = (row for row in rows_of(messages, stream).frame.where(F.col(REASON).isNull()).collect())
    assert (row["amount"], row["big"], row["n"]) == (Decimal("1.10"), Decimal("-0.5000000000"), -5)
    assert (row["day"], row["wall"]) == (date(2026, 11, 27), datetime(2026, 11, 27, 1, 2, 3, 500_000))


@pytest.mark.full
@pytest.mark.parametrize(
    ("given", "kind", "found"),
    [
        (
            "CAST(1.105 AS DECIMAL(12,3))",
            "decimal(12,2)",
            r"amount is decimal\(12,3\) in the result; expected decimal\(12,2\)",
        ),
        ("1.5D", "decimal(12,2)", "amount is double in the result"),
        ("1L", "int", "amount is bigint in the result; expected int"),
        ("current_timestamp()", "date", "amount is timestamp in the result"),
        ("named_struct('b', 1, 'a', 2)", "struct<a: int, b: int>", "amount is struct<b:int,a:int> in the result"),
    ],
)
def test_a_transform_gives_what_its_field_holds(spark: SparkSession, given: str, kind: str, found: str) -> None:
    sql = f"SELECT {GIVEN_BACK}, {given} AS amount FROM messages"
    stream = stream_of(transform={"sql": sql, "fields": {"amount": kind}})
    with pytest.raises(WrongUse, match=found):
        rows_of(messages_of(spark, [b"x"]), stream)


@pytest.mark.full
@pytest.mark.covers("N83")
def test_a_text_of_a_transform_that_is_not_utf8_is_a_dead_letter(spark: SparkSession) -> None:
    """Readers of files would fail at it, and JSON would have another text."""
    sql = (
        f"SELECT {GIVEN_BACK}, CAST(unhex(value) AS STRING) AS a, array(struct(CAST(unhex(value) AS STRING) AS t)) AS b "
        "FROM messages"
    )
    for fields, name in (({"a": "string"}, "a"), ({"b": "array<struct<t: string>>"}, "b")):
        stream = stream_of(transform={"sql": sql, "fields": fields})
        # Bytes that are none, half of a pair of surrogates, and a text.
        messages = messages_of(spark, [b"FF", b"61EDA0BD62", b"C3A9"])
        refused = f"{name} is not UTF-8"
        assert reasons(messages, stream) == [refused, refused, None]
        assert [*one_way(messages, stream)] == [2]


@pytest.mark.full
def test_a_message_whose_transform_overflows_is_a_dead_letter(spark: SparkSession) -> None:
    sql = f"SELECT {GIVEN_BACK}, CAST(value AS DECIMAL(5,2)) AS amount, array(length(value)) AS sizes FROM messages"
    stream = stream_of(transform={"sql": sql, "fields": {"amount": "decimal(5,2)", "sizes": "array<integer>"}})
    found = reasons(messages_of(spark, [b"1.25", b"12345", b"2"]), stream)
    assert [one is None for one in found] == [True, False, True]


# Fields that change

BEFORE = {"id": "integer", "n": "int", "d": "decimal(5,2)", "gone": "string", "same": "array<int>"}
AFTER = {"id": "integer", "n": "integer", "d": "decimal(12,2)", "same": "array<int>", "more": "date"}


def changing(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    for number in range(first, first + count):
        d = 99999999.25 if number >= 20 else 9.25
        n = 2**40 if number >= 20 else number
        row = {"id": number, "n": n, "d": d, "gone": "x", "same": [number], "more": "2026-11-27"}
        yield b"key", json.dumps(row).encode()


CHANGING = Example(
    "changing",
    {**STREAM, "scheme": {"type": "json", "fields": BEFORE}, "sinks": [{"type": "parquet", "folder": "-"}]},
    ("changing",),
    1,
    changing,
    lambda value: Outcome(None, None),
)


@pytest.mark.full
@pytest.mark.covers("N91")
def test_old_and_new_files_are_read_as_one(make: Make, spark: SparkSession) -> None:
    live = make(CHANGING)
    live.produce(20)
    live.ingest()
    live.rewrite(scheme={"type": "json", "fields": AFTER})
    live.produce(10)
    live.ingest()
    rows = {row["id"]: row for row in results(spark, live.opened, "parquet").collect()}
    assert [(rows[at]["n"], rows[at]["d"], rows[at]["more"]) for at in (3, 25)] == [
        (3, Decimal("9.25"), None),
        (2**40, Decimal("99999999.25"), date(2026, 11, 27)),
    ]
    # A field that is new has another digest in old rows: these are what they would be if they were read again.
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 20)))
    live.rewrite(scheme={"type": "json", "fields": {**AFTER, "n": "int", "d": "decimal(5,2)"}})
    live.produce(1)
    live.rewrite(scheme={"type": "json", "fields": AFTER})
    live.ingest()
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()
    table = pa.concat_tables(parquet_tables(live.opened.ledger, "parquet"))
    assert sorted(table.column("n").to_pylist())[:2] == [0, 1]
    assert (table.num_rows, str(table.schema.field("d").type)) == (31, "decimal128(12, 2)")


# A field that gets another name, while another one becomes wider within an array

NAMED = {"id": "integer", "client": "string", "lines": "array<struct<n:int>>"}
RENAMED = {"id": "integer", "customer": "string", "lines": "array<struct<n:integer>>"}


def renamed(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    for number in range(first, first + count):
        name = f"é{number}"
        yield b"key", json.dumps({"id": number, "client": name, "customer": name, "lines": [{"n": number}]}).encode()


NEWLY_NAMED = Example(
    "renamed",
    {**STREAM, "scheme": {"type": "json", "fields": NAMED}},
    ("renamed",),
    1,
    renamed,
    lambda value: Outcome(None, None),
)


@pytest.mark.full
@pytest.mark.covers("N91", "N108")
def test_a_field_gets_another_name(
    make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make(NEWLY_NAMED)
    parquet, _, iceberg = lakes(live, tmp_path, monkeypatch)
    latest = {
        "type": "hbase_latest",
        "table": f"{live.name}_latest",
        "folder": f"{live.name}_latest",
        "key": ["client", "id"],
    }
    packed = {"type": "hbase", "name": "packed", "table": f"{live.name}_packed", "packed": True}
    sinks = [{"type": "hbase", "table": live.name}, packed, latest, parquet, iceberg]
    live.rewrite(sinks=sinks)
    live.produce(8)
    live.ingest()
    sinks[2] = {**latest, "key": ["customer", "id"]}
    today: dict[str, Any] = {"scheme": {"type": "json", "fields": RENAMED}, "was": {"customer": "client"}}
    live.rewrite(sinks=sinks, **today)

    def assert_read(count: int, *places: str) -> None:
        wanted = {number: (f"é{number}", number) for number in range(count)}
        for place in places:
            rows = results(spark, live.opened, place).collect()
            assert {row["id"]: (row["customer"], row["lines"][0]["n"]) for row in rows} == wanted, place

    def assert_clean() -> None:
        report = audit(live.opened, live.new_run())
        assert report.clean, report.sentence()

    everywhere = [sink.name for sink in live.opened.stream.sinks]
    # Before any run has written the new name.
    assert_read(8, *everywhere)
    assert_clean()
    live.produce(4)
    live.ingest()
    # Files of both names, which are compacted below.
    assert_read(12, "parquet")
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (2, 4), (9, 10)))
    chosen = sink_to_compact(live.opened.stream.sinks, live.name, "parquet")
    compact(live.opened, chosen, live.new_run(), CompactionRequest())
    assert_read(12, *everywhere)
    assert_clean()
    # Programs without a stream file.
    for table in (*parquet_tables(live.opened.ledger, "parquet"), *iceberg_tables(live.opened.ledger, "iceberg")):
        assert {"customer", "client"} & {*table.column_names} == {"customer"}
    shown = asked("show", str(live.file), f"{live.topics[0]}/0@1")
    named = [row["fields"].get("customer") for row in shown["rows"]]
    assert named == ["é1"] * 5, shown["rows"]


@pytest.mark.full
@pytest.mark.covers("N91", "N108", "I3")
def test_another_name_a_compaction_and_a_replay_at_once(
    make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of both names become one while a replay writes some of their rows under the new one, and the other way round."""
    live = make(NEWLY_NAMED)
    parquet, _, iceberg = lakes(live, tmp_path, monkeypatch)
    live.rewrite(sinks=[parquet, iceberg])
    for _ in range(2):
        live.produce(4)
        live.ingest()
    live.rewrite(sinks=[parquet, iceberg], scheme={"type": "json", "fields": RENAMED}, was={"customer": "client"})
    live.produce(4)
    live.ingest()
    folder_sink, table_sink = (
        sink_to_compact(live.opened.stream.sinks, live.name, one) for one in ("parquet", "iceberg")
    )
    assert isinstance(table_sink, IcebergSink)
    times: list[object] = []

    def replays(step: CompactionStep) -> None:
        if step == CompactionStep.VERIFIED:
            times.append(step)
            live.select(LaneKind.REPLAY, live.ranges(0, 0, (1, 3), (9, 10)))

    compact(live.opened, folder_sink, live.new_run(), CompactionRequest(), replays)

    def compacts(step: Step) -> None:
        if step in (Step.SINK_STORED, Step.COMMITTED):
            times.append(step)
            compact_table(live.opened, table_sink, live.new_run(), CompactionRequest())
            compact(live.opened, folder_sink, live.new_run(), CompactionRequest())

    live.select(LaneKind.REPLAY, live.ranges(0, 0, (2, 6), (10, 11)), on_step=compacts)
    assert times == [CompactionStep.VERIFIED, Step.SINK_STORED, Step.SINK_STORED, Step.COMMITTED]
    wanted = {number: (f"é{number}", number) for number in range(12)}
    for place in ("parquet", "iceberg"):
        rows = results(spark, live.opened, place).collect()
        assert len(rows) == 12
        assert {row["id"]: (row["customer"], row["lines"][0]["n"]) for row in rows} == wanted, place
    tables = (*parquet_tables(live.opened.ledger, "parquet"), *iceberg_tables(live.opened.ledger, "iceberg"))
    assert {one for table in tables for one in ("customer", "client") if one in table.column_names} == {"customer"}
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()


REQUIRED = "id BIGINT NOT NULL, d DECIMAL(5,2) NOT NULL, note STRING"


def optional_later(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Four keys, each with a newer row of before the change and one of after it."""
    for number in range(first, first + count):
        row = {"id": number % 4, "d": number / 4, "note": f"é{number}"}
        if number >= 16:
            row["d"] = 12345.25 if number % 2 else None
        yield b"key", json.dumps(row).encode()


@pytest.mark.full
@pytest.mark.covers("N91", "L2")
@pytest.mark.parametrize("kind", ["delta_latest", "iceberg_latest"])
def test_newest_rows_of_a_field_that_becomes_optional_and_wider(
    make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Delta keeps the type, so a wider one is refused there; what is not required any more is null in either."""
    catalog = {"conn_type": "sqlite", "host": str(tmp_path / "catalog.db")}
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_DEFAULT", json.dumps(catalog))
    kinds = {"id": "integer", "d": "decimal(5,2)", "note": "string"}
    stream = {**STREAM, "scheme": {"type": "json", "schema": REQUIRED}, "sinks": [{"type": "parquet", "folder": "-"}]}
    live = make(Example("optional", stream, ("optional",), 1, optional_later, lambda value: Outcome(None, None)))
    more = {"table": f"lake.{live.name}"} if kind == "iceberg_latest" else {}
    sinks = [{"type": kind, "name": "newest", "folder": f"{live.name}_newest", "key": "id", "buckets": 2, **more}]
    live.rewrite(sinks=sinks)
    live.produce(16)
    live.ingest()
    wider = REQUIRED.replace("DECIMAL(5,2) NOT NULL", "DECIMAL(12,2)")
    if kind == "delta_latest":
        live.rewrite(sinks=sinks, scheme={"type": "json", "schema": wider})
        live.produce(1)
        with pytest.raises(WrongUse, match=r"has the column d as decimal\(5,2\), .* and Delta cannot widen it"):
            live.ingest()
        wider = REQUIRED.replace("DECIMAL(5,2) NOT NULL", "DECIMAL(5,2)")
    live.rewrite(sinks=sinks, scheme={"type": "json", "schema": wider})
    live.produce(4)
    live.ingest()

    def found() -> dict[int, Decimal | None]:
        rows = results(spark, live.opened, "newest").collect()
        assert len(rows) == 4
        return {row["id"]: row["d"] for row in rows}

    def assert_clean(dead: int) -> None:
        report = audit(live.opened, live.new_run())
        assert (report.clean, report.dead_letters) == (True, dead), report.sentence()

    large = Decimal("12345.25") if kind == "iceberg_latest" else None
    if large is not None:
        assert found() == {0: None, 1: large, 2: None, 3: large}
    else:
        # What is too large for the column's type is a dead letter, and the row before it stays.
        assert found() == {0: None, 1: Decimal("3.25"), 2: None, 3: Decimal("3.75")}
    dead = 0 if large is not None else 2
    assert_clean(dead)
    # With a code that leaves the newer ones out, the rows of before come back, in the wider type.
    live.rewrite(
        sinks=sinks,
        scheme={"type": "json", "schema": wider},
        transform={
            "sql": f"SELECT {GIVEN_BACK}, id, d, note FROM messages WHERE d < 4",
            "fields": {**kinds, "d": _decimal(wider)},
        },
    )
    until = live.positions()[live.topics[0], 0]
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, until)))
    assert found() == {at: Decimal(12 + at) / 4 for at in range(4)}
    assert_clean(dead)


def _decimal(schema: str) -> str:
    return "decimal(12,2)" if "DECIMAL(12,2)" in schema else "decimal(5,2)"


# Texts in many forms


def values_of(spark: SparkSession, scheme: dict[str, Any], texts: list[bytes]) -> list[Any]:
    """The fields of each message, or its reason."""
    stream = stream_of(scheme=scheme)
    rows = rows_of(messages_of(spark, [*texts]), stream)
    found = rows.frame.orderBy(OFFSET).select(REASON, *map(field, stream.fields)).collect()
    rows.close()
    return [row[0] or tuple(row[1:]) for row in found]


@pytest.mark.full
@pytest.mark.covers("N92")
def test_null_has_several_texts(spark: SparkSession) -> None:
    scheme = {"type": "delimited", "fields": {"a": "integer", "b": "string"}, "null": ["-", "\\N"]}
    texts = [b"-,x", b"5,-", b"\\N,\\N", b',""', b'"-","a,-"', b"--,x"]
    assert values_of(spark, scheme, texts) == [
        (None, "x"),
        (5, None),
        (None, None),
        (None, ""),
        (None, "a,-"),
        "a is not an integer",
    ]
    patterns = [{"name": "p", "regex": r"(\S+) (.*)", "fields": ["a", "b"]}]
    regex = {"type": "regex", "fields": {"a": "integer", "b": "string"}, "patterns": patterns, "null": ["-"]}
    assert values_of(spark, regex, [b"- -", b"7 x-"]) == [(None, None), (7, "x-")]


@pytest.mark.full
@pytest.mark.covers("N92")
def test_a_time_has_several_forms(spark: SparkSession) -> None:
    forms = ["yyyy-MM-dd'T'HH:mm:ssXXX", "dd/MM/yyyy HH:mm"]
    texts = ["2026-11-27T02:00:00+01:00", "27/11/2026 01:00", "2026-11-27"]
    wanted = [datetime(2026, 11, 27, 1, tzinfo=UTC)] * 2
    for scheme, messages in (
        ({"type": "delimited", "fields": {"a": "timestamp"}, "timestamp": forms}, [one.encode() for one in texts]),
        (
            {"type": "json", "fields": {"a": "timestamp"}, "timestamp": forms},
            [f'{{"a": "{one}"}}'.encode() for one in texts],
        ),
    ):
        *times, refused = values_of(spark, scheme, messages)
        assert ([at.astimezone(UTC) for (at,) in times], refused) == (wanted, "a is not a time")


@pytest.mark.full
@pytest.mark.covers("N92")
def test_every_line_is_matched_by_the_syntax_of_java(spark: SparkSession) -> None:
    patterns = [
        {"name": "letters", "regex": r"(?<a>\p{L}++)\Q|(\E(?<b>[a-z&&[^b]]*+)"},
        {"name": "any", "regex": r"(?s)(?<b>.)(?<a>.*)"},
    ]
    scheme = {"type": "regex", "fields": {"a": "string", "b": "string"}, "patterns": patterns}
    texts = ["é|(ac", "é|(b", "\x01x\x02", "\x00\n", "\x01", "😀\x02"]
    assert values_of(spark, scheme, [one.encode() for one in texts]) == [
        ("é", "ac"),
        ("|(b", "é"),
        ("x\x02", "\x01"),
        ("\n", "\x00"),
        ("", "\x01"),
        ("\x02", "😀"),
    ]
    wrong = {**scheme, "patterns": [{"name": "wrong", "regex": r"(?<a>\p{Nothing})(?<b>x)"}]}
    with pytest.raises(WrongUse, match=r"scheme.patterns.0.regex: Java cannot read it"):
        values_of(spark, wrong, [b"x"])


KEYED: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {"type": "json", "fields": {"id": "integer"}},
    "sinks": [{"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}


@pytest.mark.full
@pytest.mark.covers("N114")
@pytest.mark.usefixtures("spark")
def test_keys_that_no_field_has_are_counted(make: Make) -> None:
    """In one pass, and where Spark keeps the rows: of pieces of messages, and with a registry before each."""
    live = make(Example("keyed", KEYED, ("keyed",), 1, lambda *_: iter(()), lambda value: Outcome(None, None)))
    objects = [
        '{"id": 1}',
        '{"id": 2, "b c": null, "a": 1}',
        '{"a": {"id": 1}}',
        '{"id": "wrong", "a": 1}',
        "none",
        "{}",
    ]
    many = json.dumps({f"{'k' * 150}{number}": number for number in range(30)} | {"last": 1})
    forms: dict[str, Any] = {
        "drop": {"scheme": {**KEYED["scheme"], "unknown": "drop"}},
        "keep": {"scheme": {**KEYED["scheme"], "unknown": "keep"}},
        "fail": {"scheme": {**KEYED["scheme"], "unknown": "fail"}},
        "pieces": {"explode": {"lines": "\n"}},
    }
    for name, form in forms.items():
        live.rewrite(sinks=[{"type": "parquet", "folder": live.name}], **form)
        values = ["\n".join(objects[:3]), "\n".join(objects[1:3])] if name == "pieces" else [*objects, many]
        live.kafka.send((live.topics[0], 0, b"k", value.encode()) for value in values)
        live.kafka.send([(live.topics[0], 0, b"k", None)])
        (record,) = live.ingest()
        assert record.receipt is not None
        found = record.receipt.unknown
        if name == "pieces":
            assert found == UnknownFields(2, (("a", 2), ("b c", 2)))
            continue
        # Of one message twenty names, which are one where they are cut.
        assert found == UnknownFields(4, (("a", 3), ("b c", 1), ("k" * 100, 1))), name
        said = "4 messages have keys that the stream does not name: a (3), 'b c' (1)"
        assert said in answer_of({}, [record])
        assert {one.name: one.value for one in counts([record])}["unknown_fields"] == 4
        window = asked("window", str(live.file), f"ingest/{record.seq}")
        assert window["unknown_fields"].startswith(said)
    shown = asked("status", str(live.file))["unknown_fields"]
    assert shown.startswith(
        "of the last 4 windows of the ingest, 14 messages have keys that the stream does not name: a (11), "
    )


@pytest.mark.full
@pytest.mark.covers("N114")
@pytest.mark.usefixtures("spark")
def test_fields_that_are_added_while_an_ingest_runs_count_from_its_next_run_on(make: Make) -> None:
    """The run goes on as it began. A replay in lanes counts what it reads with the new file, each lane by itself."""
    live = make(Example("keyed", KEYED, ("keyed",), 1, lambda *_: iter(()), lambda value: Outcome(None, None)))
    live.rewrite(sinks=[{"type": "parquet", "folder": live.name}], limits={"max_records": 20})
    live.kafka.send((live.topics[0], 0, b"k", b'{"id": 1, "a": 2, "b": [3]}') for _ in range(40))
    before = live.file.read_text()

    def added(step: Step) -> None:
        if step == Step.READ and live.file.read_text() == before:
            CliRunner().invoke(app, ["streams", "add-fields", str(live.file), "--yes"], catch_exceptions=False)

    records = live.ingest(on_step=added)
    assert "a: integer" in live.file.read_text()
    # Of both windows, also of the one that was pinned after the change.
    assert [unknown_of(one) for one in records] == [UnknownFields(20, (("a", 20), ("b", 20)))] * 2
    assert live.ingest() == []
    report = audit(live.opened, live.new_run())
    # Today's code gives the new field, and the rows of before have none.
    assert (report.differences, report.unchanged) == (40, 0), report.sentence()
    lanes = divide_evenly(live.opened.ledger.authority().covered(), 2)
    replayed = [record for some in lanes for record in live.select(LaneKind.REPLAY, some)]
    assert [unknown_of(one) for one in replayed] == [UnknownFields(20, (("b", 20),))] * 2
    assert "40 messages have keys that the stream does not name: b (40)" in answer_of({}, replayed)
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.unchanged) == (True, 40), report.sentence()


def unknown_of(record: Record) -> UnknownFields | None:
    assert record.receipt is not None
    return record.receipt.unknown


@pytest.mark.full
@pytest.mark.covers("N92")
def test_a_key_that_no_field_has_may_make_a_message_invalid(spark: SparkSession) -> None:
    scheme = {"type": "json", "fields": {"a": "integer"}, "unknown": "fail"}
    texts = [
        b'{"a": 1}',
        b"{}",
        b'{"a": 1, "c": 2, "b": null}',
        b'{"A": 1}',
        b'{"' + b"k" * 500 + b'": 1}',
        b'{"a": "x", "b": 1}',
    ]
    assert values_of(spark, scheme, texts) == [
        (1,),
        (None,),
        "b is no field of the stream",
        "A is no field of the stream",
        f"{'k' * 100} is no field of the stream",
        "a is not an integer",
    ]
