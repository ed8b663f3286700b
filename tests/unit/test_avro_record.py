"""An Avro message as JSON, for people who look at one: by a file, by a registry, and within limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import avro_orders, registry
from tests.support.stream_text import MINIMAL
from tidemark.clients.connections import Connection
from tidemark.clients.kafka.slots import KafkaMessage
from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.views.browsing.filters import parse
from tidemark.views.browsing.items import Item
from tidemark.views.browsing.matching import Matcher
from tidemark.views.messages.avro_record import MOST_BYTES, AvroRecord, avro_record
from tidemark.views.messages.message import record_shown


def stream(tmp_path: Path, scheme: dict[str, Any]) -> Stream:
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(MINIMAL), "scheme": scheme}, sort_keys=False))
    return load(file).stream


def by_file(tmp_path: Path, *fields: dict[str, Any]) -> Stream:
    schema = {"type": "record", "name": "Many", "fields": [{"name": "id", "type": "int"}, *fields]}
    (tmp_path / "many.avsc").write_text(json.dumps(schema))
    return stream(tmp_path, {"type": "avro", "schema_file": "many.avsc", "fields": {"id": "integer"}})


def nowhere(name: str) -> Connection:
    raise AssertionError(name)


def read(of: Stream, value: bytes | None, connections: Any = nowhere) -> AvroRecord | None:
    return avro_record(of, connections, KafkaMessage(0, False, None, value, ()))


def problem(of: Stream, value: bytes, connections: Any = nowhere) -> str:
    record = read(of, value, connections)
    assert record is not None
    assert record.json is None
    return record.problem


@pytest.mark.covers("U14")
def test_avro_by_a_file_and_by_a_registry(tmp_path: Path) -> None:
    wanted = {**avro_orders.ROW, "at": "2026-11-21 07:10:00.120000+00:00", "raw": "\0\\xff\x01\\xfe"}
    (tmp_path / "order.avsc").write_text(json.dumps(avro_orders.ORDER))
    fields = {"id": "integer", "name": "string"}
    filed = stream(tmp_path, {"type": "avro", "schema_file": "order.avsc", "fields": fields})
    record = read(filed, avro_orders.written(avro_orders.ORDER, avro_orders.ROW))
    assert record is not None
    assert (record.by, record.problem, json.loads(record.json or "")) == ("order.avsc", "", wanted)
    assert problem(filed, b"\x02").startswith("not a record of the schema")

    registered = stream(tmp_path, {"type": "avro", "registry": "registry_default", "fields": fields})
    with registry.serving({17: {"schema": json.dumps(avro_orders.ORDER)}}) as server:
        there = Connection("registry_default", server.url)
        message = avro_orders.written(avro_orders.ORDER, avro_orders.ROW, 17)
        record = read(registered, message, lambda _: there)
        assert record is not None
        assert (record.by, json.loads(record.json or "")) == ("schema 17 of the registry", wanted)
        problems = [problem(registered, value, lambda _: there) for value in (b"x", b"\0\0\0\0\1")]
    assert problems[0] == "not in the wire format of a schema registry"
    assert problems[1].startswith("schema 1 is not")
    assert "Unreachable: " in problem(registered, message, lambda _: there)


def test_only_values_of_avro_streams_are_read(tmp_path: Path) -> None:
    assert read(by_file(tmp_path), None) is None
    assert read(stream(tmp_path, {"type": "string"}), b"text") is None
    assert avro_record(by_file(tmp_path), nowhere, None) is None
    assert record_shown(None) is None


@pytest.mark.covers("U14")
def test_a_list_of_a_billion_nothings_is_ended(tmp_path: Path) -> None:
    """Two dozen bytes that say so: the items of such a list take no bytes."""
    nothings = by_file(tmp_path, {"name": "many", "type": {"type": "array", "items": "null"}})
    assert "too much memory" in problem(nothings, b"\x02" + b"\x80\x80\x80\x80\x80\x80\x40")
    # A million of them are read, and are more text than is handed on: one block of 1,000,000, and its end.
    assert problem(nothings, b"\x02\x80\x89\x7a\x00") == "the record takes more than 1 000 000 characters as JSON"


@pytest.mark.covers("U14")
def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    large = b"x" * (MOST_BYTES + 1)
    assert problem(by_file(tmp_path), large) == "a value of more than 1 000 000 bytes is read by runs alone"


@pytest.mark.covers("U14")
def test_a_record_is_shown_as_text_that_hides_nothing(tmp_path: Path) -> None:
    named = by_file(tmp_path, {"name": "name", "type": "string"})
    text = "\u202eZoë".encode()
    found = record_shown(read(named, b"\x02" + bytes([2 * len(text)]) + text))
    assert found is not None
    assert found.record.text == '{\n  "id": 1,\n  "name": "\\u202eZoë"\n}'


def judged(of: Stream, filter_: str, values: list[bytes], connections: Any = nowhere) -> tuple[list[int], int]:
    """The places of the values that fit a filter, and how many could not be judged."""
    matcher = Matcher(parse(filter_), of, connections)
    items = [Item(Coordinate(TopicPartition("t", 0), number), value=value) for number, value in enumerate(values)]
    return [one.at.offset for one in matcher.matching(items)], matcher.not_read


@pytest.mark.covers("U28")
def test_a_value_that_ends_its_reader_hides_none_beside_it(tmp_path: Path) -> None:
    nothings = by_file(tmp_path, {"name": "many", "type": {"type": "array", "items": "null"}})
    bomb, plain = b"\x02" + b"\x80\x80\x80\x80\x80\x80\x40", b"\x04\x00"
    assert judged(nothings, "$.id = 2", [plain, plain, bomb, plain, b"\x06\x00", plain]) == ([0, 1, 3, 5], 1)


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
def test_a_path_looks_behind_the_number_of_a_json_schema_and_not_into_what_is_compressed(tmp_path: Path) -> None:
    framed = stream(tmp_path, {"type": "json", "wire_format": "confluent", "fields": {"id": "integer"}})
    assert judged(framed, "$.id = 1", [b'\0\0\0\0\1{"id": 1}', b'{"id": 1}', b"\0", b""]) == ([0], 0)
    file = tmp_path / "orders.yaml"
    text = {**yaml.safe_load(MINIMAL), "scheme": {"type": "json", "fields": {"id": "integer"}}, "decompress": "gzip"}
    file.write_text(yaml.safe_dump(text, sort_keys=False))
    compressed = load(file).stream
    assert judged(compressed, "value contains 'x'", [b"x"]) == ([0], 0)
    with pytest.raises(WrongUse, match=r"are compressed \(gzip\)"):
        judged(compressed, "$.id = 1", [b"x"])
