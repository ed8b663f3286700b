"""Messages of Avro and Protobuf as JSON, and compressed ones as text, for people who look at one: within limits."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import snappy
import yaml
import zstandard
from kafka.codec import snappy_encode

from tests.support import avro_orders, registry
from tests.support.protobuf_orders import ORDER, Schema, framed
from tests.support.stream_text import MINIMAL
from tidemark.clients.connections import Connection
from tidemark.clients.kafka.slots import KafkaMessage
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.views.browsing import matching
from tidemark.views.browsing.filters import parse
from tidemark.views.browsing.items import Item
from tidemark.views.browsing.matching import Matcher
from tidemark.views.messages.message import record_shown
from tidemark.views.messages.record import MAX_BYTES, RecordRead, record_of
from tidemark.views.messages.sandbox import cells_with_limits


def stream(tmp_path: Path, scheme: dict[str, Any], **parts: Any) -> Stream:
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(MINIMAL), "scheme": scheme, **parts}, sort_keys=False))
    return load(file).stream


def by_file(tmp_path: Path, *fields: dict[str, Any]) -> Stream:
    schema = {"type": "record", "name": "Many", "fields": [{"name": "id", "type": "int"}, *fields]}
    (tmp_path / "many.avsc").write_text(json.dumps(schema))
    return stream(tmp_path, {"type": "avro", "schema_file": "many.avsc", "fields": {"id": "integer"}})


def nowhere(name: str) -> Connection:
    raise AssertionError(name)


def read(of: Stream, value: bytes | None, connections: Any = nowhere) -> RecordRead | None:
    return record_of(of, connections, KafkaMessage(0, False, None, value, ()))


def problem(of: Stream, value: bytes, connections: Any = nowhere) -> str:
    record = read(of, value, connections)
    assert record is not None
    assert record.text is None
    return record.problem


@pytest.mark.covers("U14")
def test_avro_by_a_file_and_by_a_registry(tmp_path: Path) -> None:
    wanted = {**avro_orders.ROW, "at": "2026-11-21 07:10:00.120000+00:00", "raw": "\0\\xff\x01\\xfe"}
    (tmp_path / "order.avsc").write_text(json.dumps(avro_orders.ORDER))
    fields = {"id": "integer", "name": "string"}
    filed = stream(tmp_path, {"type": "avro", "schema_file": "order.avsc", "fields": fields})
    record = read(filed, avro_orders.written(avro_orders.ORDER, avro_orders.ROW))
    assert record is not None
    assert (record.by, record.problem, json.loads(record.text or "")) == ("order.avsc", "", wanted)
    assert problem(filed, b"\x02").startswith("not a record of the schema")

    registered = stream(tmp_path, {"type": "avro", "registry": "registry_default", "fields": fields})
    with registry.serving({17: {"schema": json.dumps(avro_orders.ORDER)}}) as server:
        there = Connection("registry_default", server.url)
        message = avro_orders.written(avro_orders.ORDER, avro_orders.ROW, 17)
        record = read(registered, message, lambda _: there)
        assert record is not None
        assert (record.by, json.loads(record.text or "")) == ("schema 17 of the registry", wanted)
        problems = [problem(registered, value, lambda _: there) for value in (b"x", b"\0\0\0\0\1")]
    assert problems[0] == "not in the wire format of a schema registry"
    assert problems[1].startswith("schema 1 is not")
    assert "Unreachable: " in problem(registered, message, lambda _: there)


def test_only_values_of_avro_streams_are_read(tmp_path: Path) -> None:
    assert read(by_file(tmp_path), None) is None
    assert read(stream(tmp_path, {"type": "string"}), b"text") is None
    assert record_of(by_file(tmp_path), nowhere, None) is None
    assert record_shown(None) is None


@pytest.mark.slow
@pytest.mark.covers("U14")
def test_a_list_of_a_billion_nothings_is_ended(tmp_path: Path) -> None:
    """Two dozen bytes that say so: the items of such a list take no bytes."""
    nothings = by_file(tmp_path, {"name": "many", "type": {"type": "array", "items": "null"}})
    assert "too much memory" in problem(nothings, b"\x02" + b"\x80\x80\x80\x80\x80\x80\x40")
    # A million of them are read, and are more text than is handed on: one block of 1,000,000, and its end.
    assert problem(nothings, b"\x02\x80\x89\x7a\x00") == "it takes more than 1 000 000 characters"


@pytest.mark.covers("U14")
def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    large = b"x" * (MAX_BYTES + 1)
    assert problem(by_file(tmp_path), large) == "a value of more than 1 000 000 bytes is read by runs alone"


@pytest.mark.covers("U14")
def test_a_record_is_shown_as_text_that_hides_nothing(tmp_path: Path) -> None:
    named = by_file(tmp_path, {"name": "name", "type": "string"})
    text = "\u202eZoë".encode()
    found = record_shown(read(named, b"\x02" + bytes([2 * len(text)]) + text))
    assert found is not None
    assert found.text.text == '{\n  "id": 1,\n  "name": "\\u202eZoë"\n}'


@pytest.mark.covers("N112")
def test_protobuf_by_a_file_and_by_a_registry(tmp_path: Path) -> None:
    schema = Schema()
    (tmp_path / "order.desc").write_bytes(schema.data)
    scheme = {"type": "protobuf", "message": "shop.Order", "fields": {"id": "long"}}
    filed = stream(tmp_path, {**scheme, "schema_file": "order.desc"})
    value = schema.written(id="5", lines=[{"sku": "é"}], more={"a": [1, None]}, placed="2026-11-27T01:02:03.000000001Z")
    record = read(filed, value)
    assert record is not None
    assert (record.by, record.problem) == ("order.desc", "")
    found = json.loads(record.text or "")
    assert found["lines"] == [{"sku": "é", "price": 0.0, "parts": []}]
    assert (found["id"], found["more"]) == ("5", {"a": [1.0, None]})
    assert found["placed"] == "2026-11-27T01:02:03.000000001Z"
    assert problem(filed, value[:-1]).startswith("not a record of the schema")

    registered = stream(tmp_path, {**scheme, "registry": "registry_default"})
    with registry.serving({17: {"schema": ORDER, "schemaType": "PROTOBUF"}, 18: {"schema": '"string"'}}) as server:
        there = Connection("registry_default", server.url)
        record = read(registered, framed(17, value, 1), lambda _: there)
        assert record is not None
        assert (record.by, json.loads(record.text or "")) == ("schema 17 of the registry", found)
        # People see what a message says also where it is another than the stream's.
        record = read(registered, framed(17, schema.written("shop.Refund", id="7")), lambda _: there)
        assert record is not None
        assert json.loads(record.text or "") == {"id": "7"}
        problems = [problem(registered, one, lambda _: there) for one in (framed(18, b""), framed(17, b"", 9), b"x")]
    assert problems == [
        "schema 18 is not a Protobuf schema of the registry",
        "it has the index of a message that its schema does not have",
        "not in the wire format of a schema registry",
    ]


ODD = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
message Order {
  int64 id = 1;
  google.protobuf.Any any = 2;
  map<string, google.protobuf.Timestamp> times = 3;
  repeated Order inner = 4;
  google.protobuf.Value more = 5;
  google.protobuf.FieldMask mask = 6;
  float share = 7;
}
"""


@pytest.mark.covers("N112")
def test_a_message_with_values_that_json_lacks_is_shown_by_its_fields(tmp_path: Path) -> None:
    """An `Any` of another schema, a time after the year 9999, a number that is none: all else is as it always is."""
    schema = Schema(ODD)
    (tmp_path / "order.desc").write_bytes(schema.data)
    of = stream(
        tmp_path,
        {"type": "protobuf", "message": "shop.Order", "schema_file": "order.desc", "fields": {"id": "long"}},
    )
    message = schema.message("shop.Order", id="5", share=0.1, times={"a": "1970-01-01T00:00:01Z"})
    message.any.type_url, message.any.value = "x/y.Z", b"\xff"
    message.times["b"].seconds = 10**13
    message.inner.add(id=7).more.number_value = float("nan")
    message.mask.paths.append("a_Bc")
    value = message.SerializeToString(deterministic=True)
    record = read(of, value)
    assert record is not None
    found = json.loads(record.text or "")
    assert found == {
        "id": "5",
        "any": {"type_url": "x/y.Z", "value": "/w=="},
        "times": {"a": "1970-01-01T00:00:01Z", "b": {"seconds": "10000000000000", "nanos": "0"}},
        "inner": [{"id": "7", "times": {}, "inner": [], "more": {"number_value": "nan"}, "share": 0.0}],
        "mask": {"paths": ["a_Bc"]},
        "share": 0.1,
    }
    # A filter finds it, too.
    assert judged(of, "$.inner[0].id = 7", [value]) == ([0], 0)


@pytest.mark.slow
@pytest.mark.covers("N113")
@pytest.mark.parametrize(
    ("how", "compress"),
    [
        ("gzip", gzip.compress),
        ("gzip", lambda value: gzip.compress(value[:5]) + gzip.compress(value[5:])),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("snappy", snappy.compress),
        ("snappy", lambda value: snappy.StreamCompressor().compress(value)),
        ("snappy", snappy_encode),
    ],
)
def test_compressed_values_are_shown_as_what_they_were(
    tmp_path: Path, how: str, compress: Callable[[bytes], bytes]
) -> None:
    of = stream(tmp_path, {"type": "json", "fields": {"id": "integer"}}, decompress=how)
    value = b'{"id": 5, "name": "' + 1_000 * b"x" + b'"}'
    record = read(of, compress(value))
    assert record == RecordRead(f"decompressed by {how}", value.decode())
    for other in (value, compress(value)[:-9], b""):
        assert problem(of, other) == f"not {how}, or too long when it is decompressed"
    # Small as it is, it becomes more than is shown, or than any value may be.
    assert problem(of, compress(bytes(1_500_000))) == "it takes more than 1 000 000 characters"
    assert problem(of, compress(bytes(17 << 20))) == f"not {how}, or too long when it is decompressed"


def test_a_compressed_record_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(avro_orders.ORDER))
    scheme = {"type": "avro", "schema_file": "order.avsc", "fields": {"id": "integer"}}
    of = stream(tmp_path, scheme, decompress="gzip")
    record = read(of, gzip.compress(avro_orders.written(avro_orders.ORDER, avro_orders.ROW)))
    assert record is not None
    assert (record.by, json.loads(record.text or "")["id"]) == (
        "order.avsc, decompressed by gzip",
        avro_orders.ROW["id"],
    )


@pytest.mark.covers("N112", "N113")
def test_filters_see_what_a_value_says(tmp_path: Path) -> None:
    """Of a batch, the values that cannot be read fit no filter, and cost the others nothing."""
    schema = Schema()
    (tmp_path / "order.desc").write_bytes(schema.data)
    protobuf = {"type": "protobuf", "message": "shop.Order", "schema_file": "order.desc", "fields": {"id": "long"}}
    compressed = [gzip.compress(b'{"id": %d, "lines": [{"sku": "a%d"}]}' % (one, one)) for one in range(4)]
    written = [schema.written(id=str(one), lines=[{"sku": f"a{one}"}]) for one in range(4)]
    cases = [
        (stream(tmp_path, {"type": "json", "fields": {"id": "integer"}}, decompress="gzip"), compressed, "$.id >= 2"),
        (stream(tmp_path, protobuf), written, '$.lines[0].sku > "a1"'),
        (stream(tmp_path, protobuf, decompress="gzip"), [gzip.compress(one) for one in written], "$.kind = 'UNKNOWN'"),
    ]
    for of, values, asked in cases:
        items = [
            Item(Coordinate(TopicPartition("orders", 0, 1), offset), value=value)
            for offset, value in enumerate([*values, b"\xff", None])
        ]
        matcher = Matcher(parse(asked, ()), of, nowhere)
        found = [item.at.offset for item in matcher.matching(items)]
        assert found == ([0, 1, 2, 3] if "kind" in asked else [2, 3])
        shown = matcher.with_records(items)
        assert b'"a3"' in (shown[3].record or b"")
        assert shown[4].record is None


def judged(of: Stream, filter_: str, values: list[bytes], connections: Any = nowhere) -> tuple[list[int], int]:
    """The places of the values that fit a filter, and how many could not be judged."""
    matcher = Matcher(parse(filter_), of, connections)
    items = [Item(Coordinate(TopicPartition("t", 0), number), value=value) for number, value in enumerate(values)]
    return [one.at.offset for one in matcher.matching(items)], matcher.not_read


@pytest.mark.slow
@pytest.mark.covers("U28")
def test_a_long_schema_is_handed_on_once_and_not_with_each_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each of some thousand values, it would take all memory of the pages' process, and all time of the reader."""
    others = "".join(f"message M{one} {{ string a_name_of_some_length = 1; }}" for one in range(2_000))
    schema = Schema(ORDER + others)
    (tmp_path / "order.desc").write_bytes(schema.data)
    protobuf = {"type": "protobuf", "message": "shop.Order", "schema_file": "order.desc", "fields": {"id": "long"}}
    avro = by_file(tmp_path, *({"name": f"f{one}", "type": ["null", "int"]} for one in range(2_000)))
    sizes, real = [], cells_with_limits

    def measured(question: dict[str, Any], most_deaths: int) -> tuple[list[Any], int]:
        sizes.append(len(json.dumps(question)))
        return real(question, most_deaths)

    monkeypatch.setattr(matching, "cells_with_limits", measured)
    monkeypatch.setattr(matching, "_AT_ONCE", 500)
    values = [schema.written(id=str(one)) for one in range(1_200)]
    assert judged(stream(tmp_path, protobuf), "$.id < 2", values) == ([0, 1], 0)
    assert len(sizes) == 3
    assert judged(avro, "$.id = 1", [b"\x02" + bytes(2_000)] * 3) == ([0, 1, 2], 0)
    assert max(sizes) < 500_000


@pytest.mark.slow
@pytest.mark.covers("U28")
def test_a_value_that_ends_its_reader_hides_none_beside_it(tmp_path: Path) -> None:
    nothings = by_file(tmp_path, {"name": "many", "type": {"type": "array", "items": "null"}})
    bomb, plain = b"\x02" + b"\x80\x80\x80\x80\x80\x80\x40", b"\x04\x00"
    assert judged(nothings, "$.id = 2", [plain, plain, bomb, plain, b"\x06\x00", plain]) == ([0, 1, 3, 5], 1)


@pytest.mark.slow
@pytest.mark.covers("U28")
def test_whether_a_value_fits_is_not_known_while_its_schema_is_not(tmp_path: Path) -> None:
    fields = {"id": "integer"}
    registered = stream(tmp_path, {"type": "avro", "registry": "registry_default", "fields": fields})
    good = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
    wrong = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "no such type"}]}
    schemas = {1: {"schema": json.dumps(good)}, 2: {"schema": json.dumps(wrong)}}
    values = [b"\0\0\0\0\1\2", b"\0\0\0\0\2\2", b"\0\0\0\0\3\2", b"no frame", b"\0\0\0\0\1\4"]
    with registry.serving(schemas) as server:
        there = Connection("registry_default", server.url)
        assert judged(registered, "$.id = 1", values, lambda _: there) == ([0], 2)
        assert judged(registered, "$.id is null", values, lambda _: there) == ([3], 2)
    # While it is away, nobody knows of any: that nothing fits would be a lie.
    assert judged(registered, "$.id = 1", values, lambda _: there) == ([], 4)


@pytest.mark.covers("U28")
def test_a_path_looks_behind_the_number_of_a_json_schema_and_into_what_is_compressed(tmp_path: Path) -> None:
    framed = stream(tmp_path, {"type": "json", "wire_format": "confluent", "fields": {"id": "integer"}})
    assert judged(framed, "$.id = 1", [b'\0\0\0\0\1{"id": 1}', b'{"id": 1}', b"\0", b""]) == ([0], 0)
    file = tmp_path / "orders.yaml"
    text = {**yaml.safe_load(MINIMAL), "scheme": {"type": "json", "fields": {"id": "integer"}}, "decompress": "gzip"}
    file.write_text(yaml.safe_dump(text, sort_keys=False))
    compressed = load(file).stream
    assert judged(compressed, "value contains 'x'", [b"x"]) == ([0], 0)
    assert judged(compressed, "$.id = 1", [b"x", gzip.compress(b'{"id": 1}')]) == ([1], 0)
