"""The property of N83, in each scheme: a reader gets exactly what a message says, or a dead letter names the field.

Whatever the value is: at the limits of its type, beyond them, of more digits, of another form. Messages with one value each.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.avro_orders import written
from tests.support.protobuf_orders import Schema
from tests.support.rows import messages_of
from tidemark.offsets.tallies import Outcome
from tidemark.spark.columns import OFFSET, OUTCOME, REASON, field
from tidemark.spark.rows.pipeline import rows_of
from tidemark.streams.loading import load

EPOCH, DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
CHANCE = random.Random(83)
# A message: its bytes, the name of the field that it has, and whether a value is what it says.
Said = tuple[bytes, str, Callable[[Any], bool]]


def found_in(
    spark: SparkSession, folder: Path, scheme: dict[str, Any], messages: Sequence[bytes]
) -> list[tuple[dict[str, Any], str | None]]:
    """The fields of each message's row, times and dates as numbers, and why it is none."""
    path = folder / "orders.yaml"
    contents = {
        "stream": "orders",
        "source": {"topics": ["orders"]},
        "scheme": scheme,
        "sinks": [{"type": "hbase", "table": "orders"}],
        "dead_letters": {"type": "hbase", "table": "dead"},
    }
    path.write_text(yaml.safe_dump(contents, sort_keys=False))
    stream = load(path).stream
    # As numbers: Python has fewer years than Spark.
    numbers: dict[str, Callable[[Any], Any]] = {
        "timestamp": F.unix_micros,
        "timestamp_ntz": lambda column: F.unix_micros(column.cast("timestamp")),
        "date": F.unix_date,
    }
    columns = [numbers.get(kind, lambda one: one)(field(name)).alias(name) for name, kind in stream.fields.items()]
    made = rows_of(messages_of(spark, [*messages]), stream)
    try:
        rows = made.frame.orderBy(OFFSET).select(OUTCOME, REASON, *columns).collect()
    finally:
        made.close()
    return [
        (row.asDict(), None if row[OUTCOME] == Outcome.STORED.value else (row[REASON] or "no reason")) for row in rows
    ]


def assert_exact(spark: SparkSession, folder: Path, scheme: dict[str, Any], said: Sequence[Said]) -> None:
    found = found_in(spark, folder, scheme, [message for message, *_ in said])
    wrong = [
        (message, name, row[name] if why is None else why)
        for (message, name, is_what), (row, why) in zip(said, found, strict=True)
        if (not is_what(row[name]) if why is None else not why.startswith(name))
    ]
    assert wrong == []
    # It is no property of dead letters alone, nor of rows.
    rows = sum(why is None for _, why in found)
    assert len(said) // 10 < rows < len(said)


# Text


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text.strip(" \t\r\n"))
    except InvalidOperation:
        return None


def _holds(text: str, value: float) -> bool:
    """Whether a number is the one in a text, to as many digits as that has."""
    number = _number(text)
    assert number is not None
    digits = max(1, len(number.normalize(Context(prec=5_000)).as_tuple().digits))
    return Context(prec=digits).create_decimal(value) == number


def _micros(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at.replace(tzinfo=at.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)


def _is_decimal(text: str, value: Decimal) -> bool:
    return value == _number(text) and -value.as_tuple().exponent == 2


IS: dict[str, Callable[[str, Any], bool]] = {
    "integer": lambda text, value: value == _number(text),
    "tinyint": lambda text, value: value == _number(text),
    "int": lambda text, value: value == _number(text),
    "double": _holds,
    "float": _holds,
    "decimal(12,2)": _is_decimal,
    "boolean": lambda text, value: text.strip().lower() == str(value).lower(),
    "string": lambda text, value: bool(value == text),
    "binary": lambda text, value: bytes(value) == base64.b64decode(text + "=" * (-len(text) % 4), validate=True),
    "timestamp": lambda text, value: value == _micros(text),
    "timestamp_ntz": lambda text, value: value == _micros(text),
    "date": lambda text, value: DAY + timedelta(days=value) == date.fromisoformat(text),
}
EDGES = [2**power + more for power in (7, 15, 24, 31, 53, 63, 64) for more in (-1, 0, 1)]
NUMBERS = [
    *(str(sign * one) for one in EDGES for sign in (1, -1)),
    *(
        "0",
        "-0",
        "1.0",
        "1.10",
        "0.005",
        "1e2",
        "1E-3",
        "1e400",
        "1e-400",
        "1e39",
        "-1e308",
        "9999999999.99",
        "10000000000",
    ),
    *("0.1", "0.1234567", "0.123456789", "0.10000000000000001", "0.30000000000000004", "123456.789012345678901"),
    *(f"{CHANCE.uniform(-1, 1) * 10 ** CHANCE.randrange(-20, 20):.{CHANCE.randrange(1, 17)}g}" for _ in range(20)),
]
TEXTS = [
    *("", "a", "é\u0301", "true", "FALSE", "null", "NaN", "Infinity", "YWJj", "YQ==", "YQ", "=", "12", "0x10", "1d"),
    *("2026-11-29", "2026-02-29", "0001-01-01", "9999-12-31", "2026-11-29T07:10:00", "2026-11-29 07:10:00.1234560"),
    *("2026-11-29T07:10:00Z", "2026-11-29T07:10:00+02:00", "2026-11-29T07:10:00.1234567Z", "2026-11-29T24:00:00Z"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1582-10-10T00:00:00Z", "2026-13-01T00:00:00Z"),
]
NAMES = {kind: kind.partition("(")[0] for kind in IS}


def _of(kind: str, text: str, message: str) -> Said:
    return message.encode(), NAMES[kind], lambda value: IS[kind](text, value)


@pytest.mark.covers("N83")
def test_json(spark: SparkSession, tmp_path: Path) -> None:
    fields = {name: kind for kind, name in NAMES.items()}
    said = [_of(kind, text, f'{{"{NAMES[kind]}": {text}}}') for kind in IS for text in [*NUMBERS, "true", "false"]]
    said += [_of(kind, text, f'{{"{NAMES[kind]}": {json.dumps(text)}}}') for kind in IS for text in TEXTS]
    # A number is none of a text's, and the other way round.
    assert_exact(spark, tmp_path, {"type": "json", "fields": fields}, said)


@pytest.mark.full
@pytest.mark.covers("N83")
def test_delimited(spark: SparkSession, tmp_path: Path) -> None:
    # The form of its times is the stream file's.
    kinds = [kind for kind in IS if kind != "timestamp"]
    said = [
        _of(kind, text, ";".join(text if one == kind else "" for one in kinds))
        for kind in kinds
        for text in [*NUMBERS, *filter(None, TEXTS)]
    ]
    scheme = {"type": "delimited", "separator": ";", "fields": {NAMES[kind]: kind for kind in kinds}}
    assert_exact(spark, tmp_path, scheme, said)


# Bytes

# By field: the type in the schema, that in the stream file, the values as they are written, and what each says.
AVRO: dict[str, tuple[Any, str, list[Any], Callable[[Any, Any], bool]]] = {
    "whole": ("int", "integer", [0, -1, 2**31 - 1, -(2**31)], lambda given, value: value == given),
    "long": ("long", "integer", [0, 2**53 + 1, 2**63 - 1, -(2**63)], lambda given, value: value == given),
    "single": (
        "float",
        "double",
        [0.1, -0.0, 3.4e38],
        lambda given, value: struct.pack("<f", given) == struct.pack("<f", value),
    ),
    "both": ("double", "double", [0.1, -0.0, 1e308, 5e-324], lambda given, value: repr(given) == repr(value)),
    "text": ("string", "string", ["", "é\u0301", "\0"], lambda given, value: bool(value == given)),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        "timestamp",
        [0, -1, 253_402_300_799_999, 10**15, 9_223_372_036_854_775, 9_223_372_036_854_776, 2**62, -(2**63)],
        lambda given, value: value == given * 1000,
    ),
    "micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        "timestamp",
        [0, -1, 10**15, 2**63 - 1, -(2**63)],
        lambda given, value: value == given,
    ),
    "wall": (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        "timestamp_ntz",
        [0, -1, 10**15, 2**62],
        lambda given, value: value == given * 1000,
    ),
    "day": ({"type": "int", "logicalType": "date"}, "date", [0, -1, 2**31 - 1], lambda given, value: value == given),
    "amount": (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        "decimal(5,2)",
        [number.to_bytes(20, "big", signed=True) for number in (0, -1, 99_999, 100_000, 2**70, 10**38, -(10**40))],
        lambda given, value: value == Decimal(int.from_bytes(given, "big", signed=True)).scaleb(-2),
    ),
}


@pytest.mark.full
@pytest.mark.covers("N83", "S7")
def test_avro(spark: SparkSession, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Top",
        "fields": [{"name": name, "type": ["null", kind], "default": None} for name, (kind, *_) in AVRO.items()],
    }
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    # As it is written: a logical type is a number or bytes.
    plain = {
        **schema,
        "fields": [
            {"name": name, "type": ["null", kind["type"] if isinstance(kind, dict) else kind]}
            for name, (kind, *_) in AVRO.items()
        ],
    }
    said: list[Said] = [
        (
            written(plain, {**dict.fromkeys(AVRO), name: one}),
            name,
            lambda value, one=one, is_what=is_what: is_what(one, value),
        )  # type: ignore[misc]
        for name, (_, _, given, is_what) in AVRO.items()
        for one in given
    ]
    # A text that is none.
    bad = written(plain, {**dict.fromkeys(AVRO), "text": "ab"}).replace(b"ab", b"\xff\xfe")
    said.append((bad, "text", lambda value: False))
    fields = {name: kind for name, (_, kind, *_) in AVRO.items()}
    assert_exact(spark, tmp_path, {"type": "avro", "schema_file": "order.avsc", "fields": fields}, said)


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Top {
  int32 whole = 1; int64 long = 2; uint64 large = 3; float single = 4; double both = 5; string text = 6; bytes raw = 7;
  google.protobuf.Timestamp placed = 8; google.protobuf.Duration took = 9; bool paid = 10;
}
"""


@pytest.mark.full
@pytest.mark.covers("N83", "N112")
def test_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(PROTO)
    (tmp_path / "top.desc").write_bytes(schema.data)
    fields = {
        "whole": "integer",
        "long": "integer",
        "large": "decimal(20,0)",
        "single": "double",
        "both": "double",
        "text": "string",
        "raw": "binary",
        "placed": "timestamp",
        "took": "decimal(12,3)",
        "paid": "boolean",
    }
    simple: dict[str, list[Any]] = {
        "whole": [1, -1, 2**31 - 1, -(2**31)],
        "long": [1, 2**53 + 1, 2**63 - 1, -(2**63)],
        "large": [1, 2**63, 2**64 - 1],
        "both": [0.1, -0.5, 1e308, 5e-324],
        "text": ["a", "é\u0301", "\0"],
        "raw": [b"a", b"\xff"],
        "paid": [True],
    }
    said: list[Said] = []
    for name, given in simple.items():
        for one in given:
            top = schema.message("shop.Top")
            setattr(top, name, one)
            said.append((top.SerializeToString(), name, lambda value, one=one: bool(value == one)))  # type: ignore[misc]
    for number in (0.1, -2.5, 3.4e38):
        top = schema.message("shop.Top")
        top.single = number
        said.append((top.SerializeToString(), "single", lambda value, top=top: bool(value == top.single)))  # type: ignore[misc]
    for seconds, nanos in [
        (0, 1_000),
        (1, 1),
        (-1, 999_999_000),
        (253_402_300_799, 0),
        (253_402_300_800, 0),
        (2**62, 0),
        (0, -5),
    ]:
        top = schema.message("shop.Top")
        top.placed.seconds, top.placed.nanos = seconds, nanos
        exact = seconds * 10**6 + Decimal(nanos) / 1000
        said.append((top.SerializeToString(), "placed", lambda value, exact=exact: bool(value == exact)))  # type: ignore[misc]
    for seconds, nanos in [(0, 1_000_000), (1, 1), (-1, -500_000_000), (999_999_999, 0), (10**9, 0), (1, -5)]:
        top = schema.message("shop.Top")
        top.took.seconds, top.took.nanos = seconds, nanos
        exact = seconds + Decimal(nanos) / 10**9
        said.append((top.SerializeToString(), "took", lambda value, exact=exact: bool(value == exact)))  # type: ignore[misc]
    said.append((b"\x32\x02\xff\xfe", "text", lambda value: False))
    scheme = {"type": "protobuf", "message": "shop.Top", "schema_file": "top.desc", "fields": fields}
    assert_exact(spark, tmp_path, scheme, said)
