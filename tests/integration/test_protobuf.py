"""Messages of Protocol Buffers: with the descriptors in a file, and with those of a registry."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from services import control
from services.site import Site
from tests.support.command_line import asked
from tests.support.digests import expected_digest, kept_way, one_way
from tests.support.live_streams import Kafka, Make
from tests.support.oracle import Example
from tests.support.oracle import Outcome as RowOrReason
from tests.support.protobuf_generated import TOP, comparable, fill, row_of, schemas, top_of
from tests.support.protobuf_orders import ORDER, Schema, framed
from tests.support.registry import serving
from tests.support.rows import messages_of
from tests.support.truncated_logs import cut_log, send_one_by_one
from tidemark.audit.report import PlaceReport
from tidemark.clients.connections import Connection
from tidemark.errors import InvalidStreamFile, LogTruncated, Unreachable
from tidemark.schemes.protobuf_schema import drafted, message_of
from tidemark.sinks.kafka.messages import kafka_messages
from tidemark.spark.columns import OFFSET, REASON
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows.pipeline import check_rows, rows_of
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.types.fields import type_of

LINE = "struct<sku: string, price: double>"
FIELDS = {
    "id": "long",
    "name": "string",
    "size": "int",
    "large": "decimal(20,0)",
    "middle": "long",
    "kind": "string",
    "lines": f"array<struct<sku: string, parts: array<{LINE}>>>",
    "counts": "map<string, long>",
    "by_number": f"map<string, {LINE}>",
    "card": "string",
    "voucher": "long",
    "placed": "timestamp",
    "took": "decimal(12,3)",
    "rank": "long",
    "more": "string",
    "raw": "binary",
    "paid": "boolean",
    "share": "float",
    "first": LINE,
    "words": "array<string>",
}
# What a message gives that has nothing: what proto3 does not tell from its default, and null for all else.
NOTHING: dict[str, Any] = {
    **dict.fromkeys(FIELDS),
    "id": 0,
    "name": "",
    "large": Decimal(0),
    "middle": 0,
    "kind": "UNKNOWN",
    "raw": b"",
    "paid": False,
    "share": 0.0,
    "lines": [],
    "counts": {},
    "by_number": {},
    "words": [],
}
FULL: dict[str, Any] = {
    "id": str(-(2**63)),
    "name": "Zoë",
    "size": 0,
    "large": str(2**64 - 1),
    "middle": 2**32 - 1,
    "kind": "NEW",
    "lines": [{"sku": "a", "parts": [{"sku": "b", "price": 0.5, "parts": [{"sku": "c"}]}]}, {}],
    "counts": {"b": "2", "a": "1"},
    "byNumber": {str(2**64 - 1): {"sku": "x"}, "0": {}},
    "voucher": "0",
    "placed": "2026-11-27T01:02:03.456789Z",
    "took": "-1.500s",
    "rank": "0",
    "more": {"b": [1, 2.5, None, {"é": '"\n'}], "a": True},
    "raw": "AP8=",
    "paid": True,
    "share": 0.25,
    "first": {},
    "words": ["", "x"],
}
FOUND: dict[str, Any] = {
    "id": -(2**63),
    "name": "Zoë",
    "size": 0,
    "large": Decimal(2**64 - 1),
    "middle": 2**32 - 1,
    "kind": "NEW",
    "lines": [{"sku": "a", "parts": [{"sku": "b", "price": 0.5}]}, {"sku": "", "parts": []}],
    "counts": {"b": 2, "a": 1},
    "by_number": {str(2**64 - 1): {"sku": "x", "price": 0.0}, "0": {"sku": "", "price": 0.0}},
    "card": None,
    "voucher": 0,
    "placed": datetime(2026, 11, 27, 1, 2, 3, 456789),
    "took": Decimal("-1.500"),
    "rank": 0,
    "more": '{"a":true,"b":[1,2.5,null,{"é":"\\"\\u000a"}]}',
    "raw": b"\x00\xff",
    "paid": True,
    "share": 0.25,
    "first": {"sku": "", "price": 0.0},
    "words": ["", "x"],
}


def stream_of(folder: Path, data: bytes | None = None, **scheme: Any) -> Stream:
    if data is not None:
        (folder / "order.desc").write_bytes(data)
        scheme["schema_file"] = "order.desc"
    contents = {
        "stream": "orders",
        "source": {"topics": ["orders"]},
        "scheme": {"type": "protobuf", "message": "shop.Order", "fields": FIELDS, **scheme},
        "sinks": [{"type": "hbase", "table": "orders"}],
        "dead_letters": {"type": "hbase", "table": "dead"},
    }
    (path := folder / "orders.yaml").write_text(yaml.safe_dump(contents, sort_keys=False))
    return load(path).stream


def became(frame: DataFrame, stream: Stream) -> list[Any]:
    """What became of each message: its fields, or why it is invalid."""
    found = frame.orderBy(OFFSET).select(REASON, *stream.fields).collect()
    return [row[REASON] or {name: _plain(row[name]) for name in stream.fields} for row in found]


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def all_of(spark: SparkSession, stream: Stream, values: list[bytes | None], **more: Any) -> list[Any]:
    check_rows(spark, stream)
    rows = rows_of(messages_of(spark, values), stream, **more)
    try:
        return became(rows.frame, stream)
    finally:
        rows.close()


@pytest.mark.covers("N112")
def test_messages_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema()
    whole = schema.written(**FULL)
    cases: list[tuple[bytes | None, Any]] = [
        (whole, FOUND),
        (None, dict.fromkeys(FIELDS)),
        # No bytes are a message of which nothing is set.
        (b"", NOTHING),
        (whole[:-1], "not a message shop.Order"),
        (b"\xff" * 30, "not a message shop.Order"),
        # Field 2 is a text, and field 999 is not known.
        (b"\x12\x02\xff\xfe", "name is not UTF-8"),
        (b"\x3a\x04\x0a\x02\xff\xfe", "lines[].sku is not UTF-8"),
        (b"\x42\x04\x0a\x02\xff\xfe", "counts[] is not UTF-8"),
        (whole + b"\xba\x3e\x02hi", FOUND),
        # A number that the schema has no name for; of a field that is there twice, the last.
        (b"\x30\x07", {**NOTHING, "kind": "7"}),
        (b"\x08\x01\x08\x02", {**NOTHING, "id": 2}),
        (schema.written(card="x"), {**NOTHING, "card": "x"}),
        (
            schema.written(placed="2026-11-27T01:02:03.456789001Z"),
            "placed has nanoseconds, which a timestamp does not hold",
        ),
        (b"\x62\x09\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "placed is not a time"),
        (schema.written(took="0.0001s"), "took is not decimal(12,3)"),
        (b"\x7a\x07\x0a\x05\x0a\x01a\x12\x00", "more has a Value without a kind"),
        # An entry without its key and its value has the defaults of both. Of two with one key, the last counts.
        (b"\x42\x00\x42\x02\x10\x05", {**NOTHING, "counts": {"": 5}}),
        (b"\x4a\x02\x08\x03", {**NOTHING, "by_number": {"3": {"sku": "", "price": 0.0}}}),
        (schema.written(more={"a": -0.0, "b": 1e300}), {**NOTHING, "more": '{"a":-0.0,"b":1.0E300}'}),
        # Of a `oneof` and of a Value that are set twice the last counts; of a message that is there twice, all parts.
        (b"\x52\x01x\x58\x05", {**NOTHING, "voucher": 5}),
        (b"\x7a\x13\x0a\x11\x0a\x01a\x12\x0c\x1a\x01x\x11" + bytes(7) + b"\x40", {**NOTHING, "more": '{"a":2}'}),
        (b"\x62\x02\x08\x05\x62\x03\x10\xe8\x07", {**NOTHING, "placed": datetime(1970, 1, 1, 0, 0, 5, 1)}),
        # A field in the form of another type is none of the message's.
        (b"\x09" + bytes(8) + b"\x10\x03\x60\x01", NOTHING),
        # Numbers lose the bits that their type does not have, as in all of Google's libraries.
        (b"\x18\x81\x80\x80\x80\x20\x88\x01\x02", {**NOTHING, "size": 1, "paid": True}),
        (b"\x08" + b"\xff" * 9 + b"\x7f", {**NOTHING, "id": -1}),
        (b"\x08" + b"\xff" * 10 + b"\x01", "not a message shop.Order"),
        (b"\x08\xff", "not a message shop.Order"),
        (b"\x12" + b"\xff" * 9 + b"\x01", "not a message shop.Order"),
        (b"\x62\x0b\x10" + b"\xff" * 9 + b"\x01", "placed is not a time"),
        # Groups that no schema has: read over, not closed, closed by another, and too many.
        (b"\xbb\x3e\xbc\x3e", NOTHING),
        (b"\xbb\x3e", "not a message shop.Order"),
        (b"\xbb\x3e\xb4\x3e", "not a message shop.Order"),
        (b"\xbb\x3e" * 100_000 + b"\xbc\x3e" * 100_000, "not a message shop.Order"),
    ]
    stream = stream_of(tmp_path, schema.data)
    assert all_of(spark, stream, [value for value, _ in cases]) == [wanted for _, wanted in cases]
    # More levels than any reader of Google's goes down.
    nested = b""
    for _ in range(150):
        nested = b"\x1a" + _length(len(nested)) + nested
    deep = b"\x3a" + _length(len(nested)) + nested
    assert all_of(spark, stream, [deep, whole]) == ["not a message shop.Order", FOUND]
    # Of parts that nobody named, no reader goes down any level.
    others = stream_of(tmp_path, schema.data, fields={"lines": "array<struct<sku: string>>"})
    assert all_of(spark, others, [deep]) == [{"lines": [{"sku": ""}]}]


def _length(number: int) -> bytes:
    out = b""
    while number > 127:
        number, out = number >> 7, out + bytes([number & 127 | 128])
    return out + bytes([number])


OLD = """
syntax = "proto2";
package shop;
message Order {
  message Line { required string sku = 1; }
  required int64 id = 1;
  optional string name = 2 [default = "none"];
  optional int32 size = 3;
  repeated Line lines = 7;
  repeated group Part = 8 { optional bytes raw = 1; }
  map<string, string> words = 9;
}
"""


@pytest.mark.full
@pytest.mark.covers("N112")
def test_messages_of_proto2(spark: SparkSession, tmp_path: Path) -> None:
    """Required fields, defaults and groups; texts are UTF-8 there, too."""
    schema = Schema(OLD)
    fields = {
        "id": "long",
        "name": "string",
        "size": "int",
        "lines": "array<struct<sku: string>>",
        "part": "array<struct<raw: binary>>",
        "words": "map<string, string>",
    }
    stream = stream_of(tmp_path, schema.data, fields=fields)
    whole = schema.written(id="1", lines=[{"sku": "a"}], part=[{"raw": "AA=="}], words={"a": "b"})
    cases: list[tuple[bytes, Any]] = [
        (
            whole,
            {
                "id": 1,
                "name": "none",
                "size": None,
                "lines": [{"sku": "a"}],
                "words": {"a": "b"},
                "part": [{"raw": b"\0"}],
            },
        ),
        (b"", "id is missing"),
        (b"\x08\x01\x3a\x00", "lines[].sku is missing"),
        (b"\x08\x01\x12\x01\xff", "name is not UTF-8"),
        (b"\x08\x01\x4a\x03\x0a\x01\xff", "words[] is not UTF-8"),
    ]
    assert all_of(spark, stream, [value for value, _ in cases]) == [wanted for _, wanted in cases]


BESIDE = """
syntax = "proto2";
package shop;
enum Kind { OLD = 0; }
message Order {
  message Line { required string sku = 1; optional string note = 2 [default = "none"]; optional Line line = 3; }
  required int64 id = 1;
  required string name = 2;
  optional Kind kind = 3 [default = OLD];
  repeated Line lines = 4;
  map<string, Line> by_name = 5;
  oneof paid_by { string card = 6; int64 voucher = 7; Line by_line = 10; }
  repeated group Part = 8 { required string raw = 1; }
  repeated Kind kinds = 9 [packed = true];
}
"""


@pytest.mark.covers("N112", "N83")
def test_a_field_that_nobody_named_makes_no_message_invalid(spark: SparkSession, tmp_path: Path) -> None:
    """Texts that are not UTF-8, required fields that are missing, groups, and parts of a `oneof`, at any depth."""
    fields = {"id": "long", "voucher": "long", "lines": "array<struct<note: string>>"}
    stream = stream_of(tmp_path, Schema(BESIDE).data, fields=fields)
    row = {"id": 1, "voucher": None, "lines": []}
    cases: list[tuple[bytes, Any]] = [
        (b"\x08\x01", row),
        (b"\x08\x01\x12\x01\xff", row),
        (b"\x08\x01\x18\x09\x4a\x01\x09", row),
        (b"\x08\x01\x2a\x03\x0a\x01\xff", row),
        (b"\x08\x01\x43\x0a\x01\xff\x44\x43\x44", row),
        (b"\x08\x01\x38\x05", {**row, "voucher": 5}),
        # The last part of a `oneof` counts, whoever named it.
        (b"\x08\x01\x38\x05\x32\x01\xff", row),
        (b"\x08\x01\x38\x05\x52\x01\xff", row),
        # Within a message that is named: the line lacks its `sku`, or has a line that does.
        (b"\x08\x01\x22\x00", {**row, "lines": [{"note": "none"}]}),
        (b"\x08\x01\x22\x05\x12\x01a\x1a\x00", {**row, "lines": [{"note": "a"}]}),
        (b"\x08\x01\x22\x03\x12\x01\xff", "lines[].note is not UTF-8"),
        (b"\x12\x01a", "id is missing"),
    ]
    assert all_of(spark, stream, [value for value, _ in cases]) == [wanted for _, wanted in cases]


@pytest.mark.full
@pytest.mark.covers("N112", "E49")
def test_messages_of_a_registry(spark: SparkSession, tmp_path: Path) -> None:
    line = """syntax = "proto3"; package shop; message Line { string sku = 1; }"""
    order = """syntax = "proto3"; package shop; import "line.proto";
        message Order { int64 id = 1; Line line = 2; message Inner { message Most { int32 a = 1; } } }"""
    newer = order.replace("Line line = 2;", "Line line = 2; string note = 3; map<string, Line> by_name = 4;")
    other = order.replace("int64 id", "string id")
    # Serializers keep these from the registry.
    of_connect = """syntax = "proto3"; package shop; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
        import "google/type/date.proto";
        message Order { option (confluent.message_meta) = { doc: "x", params: [{ key: "a", value: "b" }] };
          int64 id = 1 [(confluent.field_meta).tags = "PII"]; string note = 3; confluent.type.Decimal amount = 4;
          google.type.Date day = 5; }"""
    refers = {"schemaType": "PROTOBUF", "references": [{"name": "line.proto", "subject": "line", "version": 1}]}
    schemas: dict[int, Any] = {
        1: {"schema": order, **refers},
        70_000: {"schema": newer, **refers},
        3: {"schema": other, **refers},
        4: {"schema": '"string"'},
        5: {"schema": "message {", "schemaType": "PROTOBUF"},
        6: {"schema": line, "schemaType": "PROTOBUF"},
        8: {"schema": of_connect, "schemaType": "PROTOBUF"},
        7: {"schema": order, "schemaType": "PROTOBUF", "references": [{"name": "x", "subject": "none", "version": 1}]},
    }
    first, second = Schema(order, line=line), Schema(newer, line=line)
    row = {"id": 5, "line": {"sku": "a"}, "note": None}
    cases: list[tuple[bytes | None, Any]] = [
        (framed(1, first.written(id="5", line={"sku": "a"})), row),
        (framed(1, first.written(id="5", line={"sku": "a"}), 0), row),
        (framed(70_000, second.written(id="5", line={"sku": "a"}, note="n")), {**row, "note": "n"}),
        (framed(8, Schema(of_connect).written(id="5", note="c")), {**row, "line": None, "note": "c"}),
        (framed(1, b"", 0, 0, 0), "a message shop.Order.Inner.Most, and not shop.Order"),
        (framed(1, b"", 1), "it has the index of a message that its schema does not have"),
        (b"\0\0\0\0\1\x01", "not in the wire format of a schema registry"),
        (b"\0\0\0\0\1\xff\xff\xff\xff\xff", "not in the wire format of a schema registry"),
        (b"\0\0\0\0\1", "not in the wire format of a schema registry"),
        (b"{}", "not in the wire format of a schema registry"),
        (framed(1, b"\x08"), "not a message shop.Order"),
        (framed(3, b""), "schema 3: id is string, and not integer"),
        (framed(4, b""), "schema 4 is not a Protobuf schema of the registry"),
        (framed(5, b""), "schema 5: protoc cannot read it: line 1:9: Expected message name."),
        (framed(6, b""), "schema 6: it has no message shop.Order; it has shop.Line"),
        (framed(7, b""), "schema 7: it refers to version 1 of 'none', which the registry does not have"),
        (framed(4_000_000_000, b""), "schema 4000000000 is not a Protobuf schema of the registry"),
        (None, dict.fromkeys(row)),
    ]
    fields = {"id": "long", "line": "struct<sku: string>", "note": "string"}
    stream = stream_of(tmp_path, registry="our_registry", fields=fields)
    values = [value for value, _ in cases]
    with serving(schemas) as served:
        served.versions["line/1"] = {"schema": line, "schemaType": "PROTOBUF"}
        connection = Connection("our_registry", served.url)
        assert all_of(spark, stream, values, connections=lambda _: connection) == [wanted for _, wanted in cases]
    # A registry that is away makes no message invalid.
    with pytest.raises(Unreachable):
        all_of(spark, stream, values, connections=lambda _: connection)


@pytest.mark.full
@pytest.mark.covers("N112")
def test_digests_agree_whatever_the_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """Messages, and the same with bytes that were changed, cut or put in: each is a row or a dead letter, on either way."""
    schema = Schema()
    stream = stream_of(tmp_path, schema.data)
    whole = schema.written(**FULL)

    @settings(max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
    @given(st.lists(_mutations(len(whole)), min_size=150, max_size=150))
    def check(mutations: list[Any]) -> None:
        values: list[bytes | None] = [whole, *(_mutated(whole, one) for one in mutations)]
        messages = messages_of(spark, values)
        rows = rows_of(messages, stream)
        found = became(rows.frame, stream)
        rows.close()
        expected = {
            offset: expected_digest(offset, dict(stream.fields), row)
            for offset, row in enumerate(found)
            if isinstance(row, dict)
        }
        assert len(found) == len(values)
        assert found[0] == FOUND
        assert one_way(messages, stream) == expected
        kept = kept_way(messages, stream)
        assert {offset: kept[offset] for offset in expected} == expected
        # Google's library for Python reads the same; few bytes are a message to one of the two alone.
        for value, row in zip(values, found, strict=True):
            other = _read(schema, value or b"")
            if other is not None and isinstance(row, dict):
                assert (row["id"], row["name"], row["middle"]) == (other.id, other.name, other.middle)
                assert [one["sku"] for one in row["lines"]] == [one.sku for one in other.lines]
                assert row["counts"] == dict(other.counts)

    check()


@st.composite
def _made(draw: st.DrawFn) -> tuple[bytes, list[Any]]:
    """A schema, and messages of it."""
    data = draw(schemas())
    kind = top_of(data)
    return data, [fill(draw, kind()) for _ in range(draw(st.integers(5, 15)))]


def check_made(spark: SparkSession, folder: Path, data: bytes, messages: list[Any]) -> None:
    """All values are those that Google's library has, and both ways give their digests."""
    fields = {name: kind for name, kind in drafted(message_of(data, TOP)).items() if kind is not None}
    if not fields:
        return
    stream = stream_of(folder, data, message=TOP, fields=fields)
    kinds = {name: type_of(kind) for name, kind in fields.items()}
    values = [message.SerializeToString() for message in messages]
    wanted = [row_of(message, kinds) for message in messages]
    found = all_of(spark, stream, values)
    assert [comparable(row) for row in found] == [comparable(row) for row in wanted]
    expected = {offset: expected_digest(offset, fields, row) for offset, row in enumerate(wanted)}
    frame = messages_of(spark, values)
    assert one_way(frame, stream) == kept_way(frame, stream) == expected


@pytest.mark.full
@pytest.mark.covers("N112")
@settings(
    max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck], derandomize=True
)
@given(case=_made())
def test_any_schema_gives_the_values_of_googles_library(
    spark: SparkSession, tmp_path: Path, case: tuple[bytes, list[Any]]
) -> None:
    check_made(spark, tmp_path, *case)


@pytest.mark.full
@settings(max_examples=40, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
@given(case=_made())
def test_many_schemas_give_the_values_of_googles_library(
    spark: SparkSession, tmp_path: Path, case: tuple[bytes, list[Any]]
) -> None:
    check_made(spark, tmp_path, *case)


def _read(schema: Schema, value: bytes) -> Any:
    try:
        return schema.message("shop.Order").FromString(value)
    except DecodeError:
        return None


def _mutations(length: int) -> st.SearchStrategy[tuple[int, int, bytes]]:
    return st.tuples(st.integers(0, length - 1), st.integers(0, 3), st.binary(max_size=4))


def _mutated(value: bytes, how: tuple[int, int, bytes]) -> bytes:
    at, gone, put = how
    return value[:at] + put + value[at + gone :]


@pytest.mark.full
@pytest.mark.covers("N112")
@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ({"fields": {"none": "long"}}, "fields: shop.Order has no field none; it has id, name,"),
        ({"fields": {"id": "int"}}, "fields: id is int64, and not int (order.desc)"),
        ({"fields": {"name": "array<string>"}}, "fields: name is string, and not array<string>"),
        ({"fields": {"lines": "array<struct<sku: long>>"}}, "fields: lines[].sku is string, and not integer"),
        ({"fields": {"counts": "map<string, string>"}}, "fields: counts[] is int64, and not string"),
        (
            {"fields": {"lines": "map<string, long>"}},
            "fields: lines is repeated shop.Order.Line, and not map<string,bigint>",
        ),
        ({"fields": {"placed": "timestamp_ntz"}}, "fields: placed is google.protobuf.Timestamp, and not timestamp_ntz"),
        ({"message": "shop.None"}, "order.desc: it has no message shop.None; it has shop.Refund, shop.Order"),
        ({"message": "no name"}, "the full name of a message, with its package, like shop.Order"),
    ],
)
def test_what_does_not_fit_is_said_when_the_file_is_read(tmp_path: Path, scheme: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidStreamFile) as problem:
        stream_of(tmp_path, Schema().data, **scheme)
    assert said in str(problem.value)


@pytest.mark.full
@pytest.mark.covers("N112")
def test_files_that_are_no_set_of_descriptors(tmp_path: Path) -> None:
    schema = Schema()
    without = descriptor_pb2.FileDescriptorSet.FromString(schema.data)
    del without.file[:-1]
    for data, said in (
        (b"\xff", "order.desc: it is no set of descriptors; make it with protoc --include_imports"),
        (ORDER.encode(), "order.desc: it is no set of descriptors"),
        (without.SerializeToString(), "which is not in it; protoc needs --include_imports"),
    ):
        with pytest.raises(InvalidStreamFile) as problem:
            stream_of(tmp_path, data)
        assert said in str(problem.value)


def orders(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Messages of `shop.Order`; each tenth is none."""
    schema = Schema()
    for number in range(first, first + count):
        whole = schema.written(**{**FULL, "id": str(number), "name": f"é{number}"})
        yield b"key", whole[:-1] if number % 10 == 9 else whole


ORDERS = Example(
    "orders",
    {
        "source": {"topics": []},
        "scheme": {"type": "protobuf", "message": "shop.Order", "fields": FIELDS, "schema_file": "order.desc"},
        "sinks": [],
        "dead_letters": {"type": "hbase", "table": "-"},
    },
    ("orders",),
    1,
    orders,
    lambda value: RowOrReason(None, None),
)


@pytest.mark.full
@pytest.mark.covers("N109", "N112", "N27", "E21")
def test_records_of_messages_in_logs_that_were_cut_and_had_an_erasure(
    make: Make,
    spark: SparkSession,
    other_kafka: tuple[Site, Kafka],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages of Protobuf become records of Avro. The source loses its newest messages, the target its oldest ones."""
    other, kafka = other_kafka
    topic = f"orders-{secrets.token_hex(3)}"
    kafka.create(topic, 1)
    (tmp_path / "order.desc").write_bytes(Schema().data)
    live = make(ORDERS, source={"topics": [topic], "kafka": "kafka_other"})
    out = f"{live.name}-out"
    live.kafka.create(out, 1)
    sink = {"type": "kafka", "topic": out, "value_format": "avro", "registry": "ours"}

    def write(**source: str) -> None:
        live.rewrite(sinks=[sink], source={"topics": [topic], "kafka": "kafka_other", **source})

    def sent(count: int, first: int) -> None:
        send_one_by_one(kafka, topic, 0, (value for _, value in orders(count, first) if value is not None))

    def counting_numbers() -> list[int]:
        """The ids in the records that count, each record with all of the message's values."""
        numbers = []
        for one in kafka_messages(live.opened.ledger, live.kafka.endpoint, (out,), "kafka"):
            assert one.value is not None
            row: Any = fastavro.schemaless_reader(BytesIO(one.value[5:]), reader, None)
            named = {
                name: row[name] for name in ("lines", "counts", "by_number", "large", "took", "more", "raw", "share")
            }
            assert named == {name: FOUND[name] for name in named}
            assert row["name"] == f"é{row['id']}"
            numbers.append(row["id"])
        return sorted(numbers)

    def assert_clean(erased: int, dead: int) -> PlaceReport:
        report = audit(live.opened, live.new_run())
        assert (report.clean, report.erased, report.dead_letters) == (True, erased, dead), report.sentence()
        (found,) = (one for one in report.places if one.name == "kafka")
        return found

    with serving({}) as served:
        connection = {"conn_type": "http", "host": "http://127.0.0.1", "port": served.port}
        monkeypatch.setenv("AIRFLOW_CONN_OURS", json.dumps(connection))
        write()
        sent(20, 0)
        live.ingest()
        (schema,) = served.subjects[f"{out}-value"]
        reader = fastavro.parse_schema(json.loads(schema))
        whole = [number for number in range(20) if number % 10 != 9]
        assert counting_numbers() == whole
        named = [part for offset in (3, 9) for part in ("--records", f"{topic}/0@{offset}")]
        asked("erase", "--yes", str(live.file), *named, "--reason", "request 4711")
        assert counting_numbers() == [one for one in whole if one != 3]
        shown = asked("results", str(live.file), "--sink", "kafka", "--limit", "100")
        assert {one["coordinate"] for one in shown} == {f"{topic}/0@{one}" for one in whole if one != 3}
        assert_clean(erased=2, dead=1)

        # The source loses what was read last, and other messages come in its place.
        control.down(other, ("kafka",), report=lambda line: None)
        cut_log(other, topic, 0, until=15)
        control.up(other, ("kafka",), report=lambda line: None)
        sent(10, 30)
        with pytest.raises(LogTruncated):
            live.ingest()
        write(on_truncated="accept")
        live.ingest()
        again = [*(one for one in whole if one != 3), *(one for one in range(30, 40) if one != 39)]
        found = counting_numbers()
        assert found == again
        # The audit reads what the source still has, and compares the rest with what was counted.
        assert_clean(erased=2, dead=1)

        # The target loses its oldest records, one of them erased: none is missing for it.
        live.kafka.delete_records(out, 0, 10)
        assert assert_clean(erased=2, dead=1).differences == 0
