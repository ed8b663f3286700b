"""The Avro schema of the values that a sink in Kafka writes, and what a stream file may say of them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.model.planting import planted
from tests.support.stream_text import MINIMAL
from tidemark.errors import InvalidStreamFile
from tidemark.sinks.kafka.avro import schema_of
from tidemark.streams.loading import load

FIELDS = {
    "id": "integer",
    "small": "tinyint",
    "f": "float",
    "amount": "decimal(38,10)",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "raw": "binary",
    "of": "struct<a:map<string,struct<b:int>>,c:array<struct<b:string>>>",
    "a": "struct<b:array<array<struct<b:date>>>>",
}
ROW = {
    "id": 2**40,
    "small": -5,
    "f": 0.5,
    "amount": Decimal("-1234567890123456789012345678.0123456789"),
    "day": date(2026, 11, 27),
    "at": datetime(2026, 11, 27, 1, 2, 3, 4, tzinfo=UTC),
    "wall": datetime(2026, 11, 27, 1, 2, 3, 4),
    "raw": b"\xff",
    "of": {"a": {"k": {"b": 1}, "n": None}, "c": [{"b": "é"}, None]},
    "a": {"b": [[{"b": date(2026, 1, 1)}], None]},
}


def test_a_schema_has_every_type_and_takes_null() -> None:
    """Records that have one name in the stream file have names of their own in Avro."""
    schema = fastavro.parse_schema(json.loads(schema_of("orders", FIELDS)))
    for row in (ROW, dict.fromkeys(FIELDS)):
        out = BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        assert fastavro.schemaless_reader(BytesIO(out.getvalue()), schema, None) == row


# What the test itself says, and what the writer does of values that the schema lacks.
_FOUND = (AssertionError, ValueError, TypeError, ArithmeticError, fastavro.schema.SchemaParseException)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"precision": kind.precision, "scale": kind.scale', '"precision": kind.scale, "scale": kind.scale'),
        ('"precision": kind.precision, "scale": kind.scale', '"precision": kind.precision'),
        ('"type": ["null", _avro(kind, one, own)], "default": None', '"type": _avro(kind, one, own)'),
        ('of = ["null", _avro(kind.of, name, within)]', "of = [_avro(kind.of, name, within)]"),
        # Two records of one name, of which readers take the first for both.
        ('own = f"{within}.{name}"', 'own = "tidemark"'),
        ('"items": of} if kind.name == "array" else', '"items": of} if kind.name != "struct" else'),
    ],
)
def test_planted_bugs_of_the_schema_are_found(old: str, new: str) -> None:
    with planted("tidemark.sinks.kafka.avro", old, new), pytest.raises(_FOUND):
        test_a_schema_has_every_type_and_takes_null()


@pytest.mark.parametrize(
    ("sink", "fields", "said"),
    [
        ("value_format: avro", "id: integer", "value_format: avro and registry go together"),
        ("registry: ours", "id: integer", "value_format: avro and registry go together"),
        ("value_format: avro\n    registry: ours\n    value: id", "id: integer", "a value is the record of all fields"),
        ("value_format: avro\n    registry: ours", "order-id: integer", "sink kafka: order-id is no name in Avro"),
        (
            "value_format: avro\n    registry: ours",
            "of: 'array<struct<`a b`: int>>'",
            "sink kafka: a b is no name in Avro",
        ),
    ],
)
def test_what_a_stream_file_cannot_ask_for(tmp_path: Path, sink: str, fields: str, said: str) -> None:
    text = MINIMAL.replace("type: hbase\n    table: orders", f"type: kafka\n    topic: out\n    {sink}")
    path = tmp_path / "orders.yaml"
    path.write_text(text.replace("id: integer", fields))
    with pytest.raises(InvalidStreamFile, match=said):
        load(path)


def test_the_registry_is_one_of_the_connections(tmp_path: Path) -> None:
    sink = "type: kafka\n    topic: out\n    value_format: avro\n    registry: ours"
    path = tmp_path / "orders.yaml"
    path.write_text(MINIMAL.replace("type: hbase\n    table: orders", sink))
    stream: Any = load(path).stream
    assert "ours" in stream.connections()
    assert stream.sinks[0].needs_avro
