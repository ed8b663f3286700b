"""The scheme `json` with a schema in Spark's DDL: nested values, exactly, and stored as compact JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from tests.support.live_streams import Make
from tests.support.oracle import Example, Outcome
from tests.support.rows import assert_rows, messages_of, stream_of
from tests.support.schemas import SCHEMAS
from tidemark.spark.columns import OFFSET, REASON
from tidemark.spark.rows.pipeline import rows_of

SCHEMA = (
    "id BIGINT NOT NULL, small TINYINT, price DECIMAL(6,2), day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, ratio FLOAT, "
    "bytes BINARY, tags ARRAY<STRING>, counts MAP<STRING, INT>, anything VARIANT, "
    "lines ARRAY<STRUCT<sku: STRING NOT NULL, price: DECIMAL(6,2), at: TIMESTAMP, `more of it`: STRUCT<x: DOUBLE>>>"
)

TEXTS = ["price", "day", "wall", "tags", "counts", "lines"]

# A message, and its fields beside the id or why it is invalid.
CASES: list[tuple[str, dict[str, Any] | str]] = [
    ("{}", {"id": 1}),
    ('"small": 127, "price": 1234.50, "ratio": 0.1', {"small": 127, "price": "1234.50", "ratio": 0.1}),
    ('"price": 5', {"price": "5.00"}),
    ('"price": 0.5000', {"price": "0.50"}),
    ('"day": "2026-11-21", "bytes": "aGk="', {"day": "2026-11-21", "bytes": b"hi"}),
    ('"wall": "2026-11-21T07:10:00.120"', {"wall": "2026-11-21 07:10:00.12"}),
    (
        '"tags": ["a", null, "\\"é"], "counts": {"b": 2, "a": null}',
        {"tags": '["a",null,"\\"é"]', "counts": '{"a":null,"b":2}'},
    ),
    ('"tags": [], "counts": {}, "lines": []', {"tags": "[]", "counts": "{}", "lines": "[]"}),
    ('"tags": null, "anything": null, "lines": null', {}),
    ('"anything": {"b": [1, 2.50], "a": "x"}', {"anything": '{"a":"x","b":[1,2.50]}'}),
    (
        '"lines": [{"price": 1.5, "sku": "a", "unknown": 1, "more of it": {"x": 2}}, null, {"sku": "b", "at": '
        '"2026-11-21T09:10:00+02:00"}]',
        {
            "lines": '[{"sku":"a","price":1.50,"more of it":{"x":2.0}},null,{"sku":"b","at":"2026-11-21T07:10:00.000000Z"}]'
        },
    ),
    ('"id": null', "id is missing"),
    ('"small": 128', "small is not an integer of 8 bits"),
    ('"price": 1.505', "price is not decimal(6,2)"),
    ('"price": 12345.5', "price is not decimal(6,2)"),
    ('"price": "1.50"', "price is not decimal(6,2)"),
    ('"price": 1e2', "price is not decimal(6,2)"),
    ('"day": "2026-02-30"', "day is not a date"),
    ('"day": "2026-11-21T00:00:00"', "day is not a date"),
    ('"day": 20000', "day is not a date"),
    ('"at": 1795244400', "at is not a time"),
    ('"wall": "2026-11-21T07:10:00Z"', "wall is not a time without a zone"),
    ('"ratio": 1e39', "ratio is not a number of 32 bits"),
    ('"bytes": "a"', "bytes is not base64"),
    ('"tags": "a"', "tags is not an array"),
    ('"tags": {"a": 1}', "tags is not an array"),
    ('"tags": ["a", 1, true]', "tags[] is not a string"),
    ('"counts": []', "counts is not an object"),
    ('"counts": {"a": 2147483648}', "counts[] is not an integer of 32 bits"),
    ('"lines": [{"sku": "a"}, 5]', "lines[] is not an object"),
    ('"lines": [{"sku": "a"}, {"price": 1}]', "lines[].sku is missing"),
    ('"lines": [{"sku": "a", "price": 1.234}]', "lines[].price is not decimal(6,2)"),
    ('"lines": [{"sku": "a", "more of it": {"x": "1"}}]', "lines[].more of it.x is not a number"),
]


def text_of(case: str) -> bytes:
    return (
        b'{"id": 1}'
        if case == "{}"
        else f"{{{case}{'' if 'id' in case[:5] else ', ' + chr(34) + 'id' + chr(34) + ': 1'}}}".encode()
    )


def test_each_type(spark: SparkSession) -> None:
    """Those without a type of old are kept as text, as a stream file from before them needs it."""
    stream = stream_of(scheme={"type": "json", "schema": SCHEMA, "as_text": TEXTS})
    rows = rows_of(messages_of(spark, [text_of(case) for case, _ in CASES]), stream)
    names = list(stream.fields)
    for row, (case, wanted) in zip(rows.frame.orderBy(OFFSET).collect(), CASES, strict=True):
        found = {name: row[name] for name in names if row[name] is not None}
        if isinstance(wanted, str):
            assert row[REASON] == wanted, case
        else:
            assert (row[REASON], found) == (None, {"id": 1, **wanted}), case
    rows.close()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("ddl", SCHEMAS)
def test_spark_reads_a_schema_alike(ddl: str) -> None:
    assert T._parse_datatype_string(ddl).simpleString() == SCHEMAS[ddl]


# What is stored of them, checked and taken apart

ORDERS = {
    "source": {"topics": []},
    "scheme": {
        "type": "json",
        "schema": "id BIGINT NOT NULL, lines ARRAY<STRUCT<sku: STRING, price: DECIMAL(6,2)>>",
        "as_text": ["lines"],
    },
    "checks": [{"invalid_when": "get_json_object(lines, '$[0].sku') = ''", "reason": "no sku"}],
    "transform": {
        "sql": "SELECT *, aggregate(from_json(lines, 'array<struct<price: decimal(6,2)>>').price, 0D, (a, b) -> a + b) "
        "AS total FROM messages",
        "fields": {"id": "integer", "lines": "string", "total": "double"},
    },
    "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}


def order_messages(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    for number in range(first, first + count):
        lines = [{"price": one + 0.25, "sku": f"é{one}"} for one in range(number % 4)]
        if number % 7 == 0:
            lines = [{"price": 1, "sku": ""}]
        elif number % 11 == 0:
            lines = [{"price": 0.001, "sku": "x"}]
        yield b"key", None if number % 13 == 0 else json.dumps({"id": number, "lines": lines}).encode()


def order(value: bytes | None) -> list[dict[str, str]] | str:
    if value is None:
        return [{}]
    found = json.loads(value)
    lines = found["lines"]
    if lines and lines[0]["sku"] == "":
        return "no sku"
    if any(line["price"] == 0.001 for line in lines):
        return "lines[].price is not decimal(6,2)"
    text = ",".join(f'{{"sku":"{line["sku"]}","price":{line["price"]:.2f}}}' for line in lines)
    total = repr(float(sum(line["price"] for line in lines)))
    return [{"id": str(found["id"]), "lines": f"[{text}]", "total": total}]


@pytest.mark.full
@pytest.mark.covers("S7")
@pytest.mark.usefixtures("spark")
def test_nested_values_are_stored_checked_and_taken_apart(make: Make) -> None:
    live = make(Example("nested", ORDERS, ("nested",), 2, order_messages, lambda value: Outcome(None, None)))
    live.produce(60)
    (record,) = live.ingest()
    assert_rows(live, order, record)
