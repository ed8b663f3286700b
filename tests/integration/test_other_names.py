"""Fields with names as messages have them, and with others than those, in each scheme whose messages have names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.avro_orders import written
from tests.support.protobuf_orders import Schema
from tests.support.rows import messages_of, stream_of
from tidemark.spark.columns import REASON
from tidemark.spark.rows.pipeline import check_rows, rows_of
from tidemark.streams.model import Stream

NAMES: dict[str, Any] = {
    "_id": "long",
    "__deleted": "string",
    "größe": "long",
    "topic": {"type": "string", "from": "_topic"},
    "at_time": {"type": "timestamp", "from": "@timestamp"},
    "user": {"type": "struct<_id: long>", "from": "user.name"},
}


def beside(folder: Path, scheme: dict[str, Any]) -> Stream:
    """A stream whose scheme has a file in a folder."""
    parts = {
        "stream": "orders",
        "source": {"topics": ["orders"]},
        "scheme": scheme,
        "sinks": [{"type": "hbase", "table": "orders"}],
        "dead_letters": {"type": "hbase", "table": "dead"},
    }
    return Stream.model_validate(parts, context={"folder": folder})


def fields_of(spark: SparkSession, stream: Stream, value: bytes) -> list[Any]:
    check_rows(spark, stream)
    rows = rows_of(messages_of(spark, [value]), stream)
    (row,) = rows.frame.select(REASON, *(f"`{name}`" for name in stream.fields)).collect()
    rows.close()
    return [*row]


@pytest.mark.covers("S7")
def test_keys_of_json(spark: SparkSession) -> None:
    message = {
        "_id": 1,
        "__deleted": "true",
        "größe": 2,
        "_topic": "a",
        "@timestamp": "2026-11-21T07:10:00Z",
        "user.name": {"_id": 3},
        "unknown": 4,
        "more": 5,
    }
    fields = {**NAMES, "unknown_2": {"type": "long", "from": "unknown"}}
    stream = stream_of(scheme={"type": "json", "fields": fields, "unknown": "keep"})
    why, *found = fields_of(spark, stream, json.dumps(message).encode())
    at = found.pop(4)
    assert (why, found) == (None, [1, "true", 2, "a", (3,), 4, '{"more":5}'])
    assert at.isoformat() == "2026-11-21T07:10:00"
    why, *_ = fields_of(spark, stream, json.dumps({**message, "@timestamp": 5}).encode())
    assert why == "at_time is not a time"
    stream = stream_of(scheme={"type": "json", "fields": {"id": {"type": "long", "from": "@id"}}, "unknown": "fail"})
    assert fields_of(spark, stream, b'{"@id": 1}') == [None, 1]
    assert fields_of(spark, stream, b'{"@id": 1, "id": 2}')[0] == "id is no field of the stream"


@pytest.mark.full
@pytest.mark.covers("S7")
def test_fields_of_avro(spark: SparkSession, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": "long"} for name in ("_id", "__deleted", "_topic", "id")],
    }
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    fields = {
        "topic": {"type": "long", "from": "_topic"},
        "__deleted": "long",
        "id": {"type": "long", "from": "_id"},
        "_id": {"type": "long", "from": "id"},
    }
    stream = beside(tmp_path, {"type": "avro", "schema_file": "order.avsc", "fields": fields})
    value = written(schema, {"_id": 1, "__deleted": 2, "_topic": 3, "id": 4})
    assert fields_of(spark, stream, value) == [None, 3, 2, 1, 4]


@pytest.mark.full
@pytest.mark.covers("S7")
def test_fields_of_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(
        'syntax = "proto3"; package shop; message Order { int64 _topic = 1; string __op = 2; int64 id = 3; }'
    )
    (tmp_path / "orders.desc").write_bytes(schema.data)
    scheme = {
        "type": "protobuf",
        "message": "shop.Order",
        "schema_file": "orders.desc",
        "fields": {
            "topic": {"type": "long", "from": "_topic"},
            "__op": "string",
            "_id": {"type": "long", "from": "id"},
        },
    }
    stream = beside(tmp_path, scheme)
    assert fields_of(spark, stream, b"\x08\x01\x12\x01d\x18\x03") == [None, 1, "d", 3]


@pytest.mark.full
@pytest.mark.covers("S7")
def test_groups_of_a_regex(spark: SparkSession) -> None:
    pattern = {"name": "all", "regex": "(?<statusCode>[0-9]+) (?<host>.*)"}
    fields = {"host": "string", "status_code": {"type": "integer", "from": "statusCode"}}
    stream = stream_of(scheme={"type": "regex", "fields": fields, "patterns": [pattern]})
    assert fields_of(spark, stream, b"200 a") == [None, "a", 200]
