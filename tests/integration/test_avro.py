"""Avro records, written by fastavro: with a schema in a file, and with those of a registry."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from tests.support.avro_orders import AT, ORDER, ROW, written
from tests.support.live_streams import Make
from tests.support.oracle import Example, Outcome
from tests.support.registry import serving
from tests.support.servers import free_ports
from tidemark.clients.connections import Connection
from tidemark.errors import EXIT_UNREACHABLE, Unreachable, WrongUse
from tidemark.spark.columns import INDEX, OFFSET, REASON
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows.pipeline import check_rows, rows_of
from tidemark.spark.rows.reading import no_messages
from tidemark.streams.loading import load
from tidemark.streams.model import Stream

FIELDS = {
    "id": "integer",
    "name": "string",
    "kind": "string",
    "share": "double",
    "at": "timestamp",
    "paid": "boolean",
    "raw": "binary",
}
FOUND = (5, "Zoë", "OLD", 0.25, AT.replace(tzinfo=None), True, b"\x00\xff\x01\xfe")
NOTHING = (None,) * len(FOUND)
MILLISECONDS = int(AT.timestamp() * 1000)


def messages_of(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [("orders", 1, 0, offset, b"key", value, None, 0, None, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, no_messages(spark).schema)


def stream_of(folder: Path, schema: dict[str, Any] | None = None, **scheme: Any) -> Stream:
    (folder / "order.avsc").write_text(json.dumps(schema or ORDER))
    path = folder / "orders.yaml"
    contents = {
        "stream": "orders",
        "source": {"topics": ["orders"]},
        "scheme": {"type": "avro", "fields": FIELDS, **scheme},
        "sinks": [{"type": "hbase", "table": "orders"}],
        "dead_letters": {"type": "hbase", "table": "dead"},
    }
    path.write_text(yaml.safe_dump(contents, sort_keys=False))
    return load(path).stream


def became(frame: DataFrame, stream: Stream) -> list[Any]:
    """What became of each message: its fields, or why it is invalid."""
    found = frame.orderBy(OFFSET).select(REASON, INDEX, *stream.fields).collect()
    assert {row[INDEX] for row in found} == {0}
    return [row[REASON] or tuple(bytes(one) if isinstance(one, bytearray) else one for one in row[2:]) for row in found]


def _length(number: int) -> bytes:
    """A length as Avro writes it."""
    number, out = number << 1, b""
    while number > 127:
        number, out = number >> 7, out + bytes([number & 127 | 128])
    return out + bytes([number])


@pytest.mark.covers("S7")
def test_records_of_a_schema_file(spark: SparkSession, tmp_path: Path) -> None:
    stream = stream_of(tmp_path, schema_file="order.avsc")
    good = written(ORDER, ROW)
    refused = "not a record of the schema"
    cases: list[tuple[bytes | None, Any]] = [
        (good, FOUND),
        (None, NOTHING),
        (good[:-1], refused),
        (b"", refused),
        (b"\xff" * 30, refused),
        # A length that no memory has room for: of an array, and of a text.
        (_length(5) + _length(2**31 - 10) + b"abc", refused),
        (_length(5) + _length(0) + _length(1) + _length(2**31 - 10) + b"abc", refused),
        (good.replace("Zoë".encode(), b"Zo\xff\xfe"), "name is not UTF-8"),
        # Milliseconds of which no 64 bits count the microseconds.
        (good.replace(_length(MILLISECONDS), _length(2**62)), "at is not a time"),
        (written(ORDER, {**ROW, "name": None}), (FOUND[0], None, *FOUND[2:])),
    ]
    check_rows(spark, stream)
    rows = rows_of(messages_of(spark, [value for value, _ in cases]), stream)
    assert became(rows.frame, stream) == [wanted for _, wanted in cases]
    rows.close()

    # A schema that does not have the fields in their types is said before any message is read.
    text = {**ORDER, "fields": [{**one, "type": "string"} if one["name"] == "id" else one for one in ORDER["fields"]]}
    with pytest.raises(WrongUse, match=r"order\.avsc: id is string, and not integer"):
        check_rows(spark, stream_of(tmp_path, text, schema_file="order.avsc"))


@pytest.mark.covers("S7", "E49")
def test_records_of_a_registry(spark: SparkSession, tmp_path: Path) -> None:
    newer = {
        **ORDER,
        "fields": [
            {"name": "more", "type": "string"},
            *(
                {**one, "type": "long"} if one["name"] == "id" else one
                for one in ORDER["fields"]
                if one["name"] != "paid"
            ),
        ],
    }
    other = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    schemas: dict[int, Any] = {
        1: {"schema": json.dumps(ORDER)},
        70_000: {"schema": json.dumps(newer)},
        3: {"schema": json.dumps(other)},
        4: {"schema": "message Order {}", "schemaType": "PROTOBUF"},
        5: {"schema": '"string"'},
    }
    row = {**ROW, "more": "x", "id": 2**40}
    cases: list[tuple[bytes | None, Any]] = [
        (written(ORDER, ROW, 1), FOUND),
        (written(newer, row, 70_000), (2**40, *FOUND[1:5], None, FOUND[6])),
        (written(ORDER, ROW, 1)[:-1], "not a record of the schema 1"),
        (written(other, {"id": "5"}, 3), "schema 3: id is string, and not integer"),
        (struct.pack(">bI", 0, 4) + b"\x02", "schema 4 is not an Avro schema of the registry"),
        (struct.pack(">bI", 0, 5) + b"\x02a", "schema 5: the schema is not one of a record"),
        (written(ORDER, ROW, 4_000_000_000), "schema 4000000000 is not an Avro schema of the registry"),
        (written(ORDER, ROW), "not in the wire format of a schema registry"),
        (b"\x00\x00\x00\x01", "not in the wire format of a schema registry"),
        (b"", "not in the wire format of a schema registry"),
        (None, NOTHING),
        (written(ORDER, {**ROW, "id": -1}, 1), (-1, *FOUND[1:])),
    ]
    stream = stream_of(tmp_path, registry="our_registry")
    check_rows(spark, stream)
    with serving(schemas) as served:
        connection = Connection("our_registry", served.url)
        rows = rows_of(
            messages_of(spark, [value for value, _ in cases]),
            stream,
            connections={"our_registry": connection}.__getitem__,
        )
        assert became(rows.frame, stream) == [wanted for _, wanted in cases]
        rows.close()
    # Each of them once, however many messages name it.
    assert sorted(served.asked) == sorted(f"/schemas/ids/{number}" for number in (*schemas, 4_000_000_000))


@pytest.mark.full
@pytest.mark.covers("E49")
def test_a_registry_that_is_away_makes_no_message_invalid(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_ports()
    connection = {"conn_type": "http", "host": "http://127.0.0.1", "port": port}
    monkeypatch.setenv("AIRFLOW_CONN_AVRO_REGISTRY", json.dumps(connection))
    stream: dict[str, Any] = {
        "source": {"topics": []},
        "scheme": {"type": "avro", "registry": "avro_registry", "fields": {"id": "integer", "name": "string"}},
        "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
        "dead_letters": {"type": "hbase", "table": "-"},
    }
    live = make(Example("avro", stream, ("avro",), 1, lambda count, first: iter(()), lambda value: Outcome(None, None)))
    topic = live.topics[0]
    live.kafka.send([(topic, 0, b"k", written(ORDER, ROW, 1)), (topic, 0, b"k", None), (topic, 0, b"k", b"\x00")])
    with pytest.raises(Unreachable, match=f"http://127.0.0.1:{port}/schemas/ids/1") as away:
        live.ingest()
    assert away.value.exit_code == EXIT_UNREACHABLE
    assert live.positions() == {(topic, 0): 0}
    with serving({1: {"schema": json.dumps(ORDER)}}, port):
        (record,) = live.ingest(take_over=True)
        assert (record.tallies[0].stored.number, record.tallies[0].invalid.number) == (2, 1)
        assert live.independent.hbase().by_place() == {
            (topic, 0, 0, 0): {"id": "5", "name": "Zoë"},
            (topic, 0, 1, 0): {},
        }
        report = audit(live.opened, "an audit")
        assert report.clean, report.sentence()


TYPED = {
    "amount": (
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        "decimal(12,2)",
        Decimal("-1.10"),
    ),
    "day": ({"type": "int", "logicalType": "date"}, "date", date(2026, 11, 27)),
    "wall": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        "timestamp_ntz",
        datetime(2026, 11, 27, 1, 2, 3, 4),
    ),
    "clock": (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        "timestamp_ntz",
        datetime(2026, 11, 27, 1, 2, 3, 4000),
    ),
    # Spark has no nanoseconds, and no time of a day in milliseconds: these are the numbers that the record has.
    "nanos": ({"type": "long", "logicalType": "timestamp-nanos"}, "long", 1_795_244_400_123_456_789),
    "local_nanos": ({"type": "long", "logicalType": "local-timestamp-nanos"}, "long", 1_795_244_400_123_456_789),
    "noon": ({"type": "int", "logicalType": "time-millis"}, "int", 43_200_000),
    "uuid": ({"type": "string", "logicalType": "uuid"}, "string", "6f5ee1b2-6a0b-4d9c-9a8d-1d0c9f3a4b5c"),
    "n": ("int", "int", -7),
    "f": ("float", "float", 0.5),
    "tags": ({"type": "array", "items": ["null", "string"]}, "array<string>", ["a", None]),
    "more": ({"type": "map", "values": "int"}, "map<string, long>", {"b": 2}),
    "of": (
        {"type": "record", "name": "Of", "fields": [{"name": "x", "type": "int"}]},
        "struct<x: int>",
        {"x": 5},
    ),
}


@pytest.mark.full
@pytest.mark.covers("N81")
def test_logical_types_and_nested_ones(spark: SparkSession, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Typed",
        "fields": [{"name": name, "type": one[0]} for name, one in TYPED.items()],
    }
    fields = {name: kind for name, (_, kind, _) in TYPED.items()}
    stream = stream_of(tmp_path, schema, schema_file="order.avsc", fields=fields)
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {name: value for name, (*_, value) in TYPED.items()})
    (row,) = rows_of(messages_of(spark, [out.getvalue()]), stream).frame.select(REASON, *fields).collect()
    assert row.asDict(recursive=True) == {REASON: None, **{name: value for name, (*_, value) in TYPED.items()}}
    for name, wrong, said in (
        ("amount", "decimal(12,1)", r"amount is decimal\(10,2\), and not decimal\(12,1\)"),
        ("amount", "decimal(9,2)", r"and not decimal\(9,2\)"),
        ("more", "map<string, smallint>", r"more is map<string,int>, and not map<string,smallint>"),
        ("of", "struct<y: int>", "of has no member y; it has x"),
        ("of", "struct<x: date>", r"of is struct<x:int>, and not struct<x:date>"),
        ("of", "map<string, int>", "of is a record, and not map<string,int>"),
        ("day", "timestamp", "day is date, and not timestamp"),
    ):
        other = stream_of(tmp_path, schema, schema_file="order.avsc", fields={**fields, name: wrong})
        with pytest.raises(WrongUse, match=said):
            check_rows(spark, other)


@pytest.mark.full
@pytest.mark.covers("N83")
def test_values_that_no_type_has_are_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """A decimal of more digits than its schema says, and bytes where a text is."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}

    def record(amount: Any, text: str) -> dict[str, Any]:
        of = [{"name": "x", "type": {"type": "map", "values": text}}]
        fields = [
            {"name": "amount", "type": amount},
            {"name": "tags", "type": {"type": "array", "items": text}},
            {"name": "of", "type": {"type": "record", "name": "Of", "fields": of}},
        ]
        return {"type": "record", "name": "R", "fields": fields}

    fields = {"amount": "decimal(4,2)", "tags": "array<string>", "of": "struct<x: map<string, string>>"}
    stream = stream_of(tmp_path, record(decimal, "string"), schema_file="order.avsc", fields=fields)
    raw = fastavro.parse_schema(record("bytes", "bytes"))
    messages: list[bytes | None] = []
    for number, tag, value in (
        (9999, b"a", b"b"),
        (10_000, b"a", b"b"),
        (2**64 + 5, b"a", b"b"),
        (-(10**30), b"a", b"b"),
        (1, b"\xff", b"b"),
        (1, b"a", b"\xff"),
    ):
        out = BytesIO()
        digits = number.to_bytes(16, "big", signed=True)
        fastavro.schemaless_writer(out, raw, {"amount": digits, "tags": [tag], "of": {"x": {"k": value}}})
        messages.append(out.getvalue())
    # A key that stands twice in a map, which no writer of Avro refuses.
    entries = b"".join(_length(1) + b"k" + _length(1) + value for value in (b"x", b"y"))
    tags = _length(1) + _length(1) + b"a" + b"\x00"
    messages.append(_length(1) + b"\x05" + tags + _length(2) + entries + b"\x00")
    *found, twice = became(rows_of(messages_of(spark, messages), stream).frame, stream)
    assert twice == (Decimal("0.05"), ["a"], ({"k": "y"},))
    assert found[0] == (Decimal("99.99"), ["a"], ({"k": "b"},))
    too_large = "amount is not decimal(4,2)"
    assert found[1:] == [too_large, too_large, too_large, "tags is not UTF-8", "of is not UTF-8"]


# Fields that nobody named, each of which stopped a window or made all of its messages dead letters.
BESIDE: dict[str, tuple[Any, bytes]] = {
    "flag": ("boolean", b"\x01"),
    "amount": ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 10}, b"\x04\x01\xf4"),
    "number": ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 127}, b"\x04\x01\xf4"),
    "text": ("string", b"\x04\xff\xfe"),
    "order-id": ("long", b"\x02"),
    "node": (
        {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"], "default": None}]},
        b"\x02\x00",
    ),
    "odd": ({"type": "fixed", "name": "Odd", "size": 2, "logicalType": "decimal", "precision": 30}, b"ab"),
    "span": ({"type": "long", "spark.sql.catalyst.type": "interval year"}, b"\x02"),
    "none": ({"type": "array", "items": "null"}, b"\x06\x00"),
    "place": ({"type": "enum", "name": "Place", "symbols": ["A", "b-c"]}, b"\x02"),
}


def record_of(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": [*fields]}


@pytest.mark.full
@pytest.mark.covers("N83")
@pytest.mark.parametrize("by_registry", [True, False])
def test_a_field_that_nobody_named_stops_and_empties_nothing(
    spark: SparkSession, tmp_path: Path, by_registry: bool
) -> None:
    schemas, values = {}, []
    for number, (name, (kind, value)) in enumerate(BESIDE.items()):
        beside = {"name": name, "type": kind, "default": "of another type"}
        last = {"name": "name", "type": "string", "default": 7}
        schemas[number] = record_of({"name": "id", "type": "long"}, beside, last)
        values.append(b"\x02" + value + b"\x04ab")
    fields = {"id": "integer", "name": "string"}
    if not by_registry:
        for number, schema in schemas.items():
            stream = stream_of(tmp_path, schema, schema_file="order.avsc", fields=fields)
            check_rows(spark, stream)
            rows = rows_of(messages_of(spark, [values[number]]), stream)
            assert became(rows.frame, stream) == [(1, "ab")], schema
            rows.close()
        return
    stream = stream_of(tmp_path, registry="our_registry", fields=fields)
    framed: list[bytes | None] = [struct.pack(">bI", 0, number) + value for number, value in enumerate(values)]
    with serving({number: {"schema": json.dumps(one)} for number, one in schemas.items()}) as served:
        connection = Connection("our_registry", served.url)
        rows = rows_of(messages_of(spark, framed), stream, connections={"our_registry": connection}.__getitem__)
        assert became(rows.frame, stream) == [(1, "ab")] * len(BESIDE)
        rows.close()


@pytest.mark.full
@pytest.mark.covers("N83")
def test_decimals_within_values_that_have_more_digits_than_their_schema_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    of = {
        "type": "record",
        "name": "Of",
        "fields": [{"name": "a-b", "type": ["null", decimal]}, {"name": "n", "type": "int"}],
    }
    schema = record_of(
        {"name": "all", "type": {"type": "array", "items": ["null", decimal]}},
        {"name": "by", "type": {"type": "map", "values": of}},
    )
    fields = {"all": "array<decimal(4,2)>", "by": "map<string, struct<n: int, `a-b`: decimal(5,2)>>"}
    stream = stream_of(tmp_path, schema, schema_file="order.avsc", fields=fields)
    small, large = b"\x04\x01\xf4", b"\x08\x00\x98\x96\x80"
    values: list[bytes | None] = [
        b"\x02" + b"\x02" + all_ + b"\x00" + b"\x02\x02k\x02" + by + b"\x02" + b"\x00"
        for all_, by in ((small, small), (large, small), (small, large))
    ]
    assert became(rows_of(messages_of(spark, values), stream).frame, stream) == [
        ([Decimal("5.00")], {"k": (1, Decimal("5.00"))}),
        "all is not array<decimal(4,2)>",
        "by is not map<string,struct<n:int,`a-b`:decimal(5,2)>>",
    ]


@pytest.mark.full
@pytest.mark.covers("N83")
def test_members_that_nobody_named_are_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    """Within records too, which may hold themselves, in any order, and by a registry without some of them."""
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "left-over", "type": {"type": "bytes", "logicalType": "decimal", "precision": 64}, "default": 1},
            {"name": "label", "type": "string"},
            {"name": "next", "type": ["null", "Node"], "default": None},
        ],
    }
    schema = record_of({"name": "first", "type": node}, {"name": "all", "type": {"type": "map", "values": "Node"}})
    leaf, inner = b"\x02\x01\x02c\x00", b"\x02\x01\x02b\x02"
    value = b"\x02\x01\x02a\x02" + inner + leaf + b"\x02\x02k" + leaf + b"\x00"
    one = "struct<next: struct<next: struct<label: string>, label: string>, label: string>"
    stream = stream_of(
        tmp_path, schema, schema_file="order.avsc", fields={"first": one, "all": "map<string, struct<label: string>>"}
    )
    check_rows(spark, stream)
    assert became(rows_of(messages_of(spark, [value]), stream).frame, stream) == [
        ((((("c",), "b")), "a"), {"k": ("c",)})
    ]
    with pytest.raises(WrongUse, match="first is a record, and not string"):
        check_rows(spark, stream_of(tmp_path, schema, schema_file="order.avsc", fields={"first": "string"}))
    # A member that an older schema lacks is null, as a field is.
    lacking = {"first": "struct<label: string, added: struct<n: int>, many: array<tinyint>>"}
    with pytest.raises(WrongUse, match="first has no member added; it has left-over, label, next"):
        check_rows(spark, stream_of(tmp_path, schema, schema_file="order.avsc", fields=lacking))
    stream = stream_of(tmp_path, registry="our_registry", fields=lacking)
    with serving({1: {"schema": json.dumps(schema)}}) as served:
        connection = Connection("our_registry", served.url)
        rows = rows_of(
            messages_of(spark, [struct.pack(">bI", 0, 1) + value]),
            stream,
            connections={"our_registry": connection}.__getitem__,
        )
        assert became(rows.frame, stream) == [(("a", None, None),)]
        rows.close()


@pytest.mark.full
@pytest.mark.covers("N83")
def test_a_decimal_of_too_many_digits_is_named_or_read_as_bytes(spark: SparkSession, tmp_path: Path) -> None:
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 10}
    schema = record_of({"name": "amount", "type": ["null", wide], "default": None})
    stream = stream_of(tmp_path, schema, schema_file="order.avsc", fields={"amount": "binary"})
    assert became(rows_of(messages_of(spark, [b"\x02\x04\x01\xf4"]), stream).frame, stream) == [(b"\x01\xf4",)]
    with pytest.raises(WrongUse, match=r"amount is decimal\(64,10\), and not decimal\(38,10\): binary has"):
        check_rows(spark, stream_of(tmp_path, schema, schema_file="order.avsc", fields={"amount": "decimal(38,10)"}))
