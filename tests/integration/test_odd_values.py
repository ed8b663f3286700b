"""Values at the limits of their types, through each sink of files: every reader gives equal ones, and no stream stops."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.support.command_line import asked
from tests.support.foreign_readers import foreign_rows, lakes, lakes_by_key, named_files
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example, Outcome
from tests.support.rows import GIVEN_BACK
from tests.support.typed_values import json_of
from tidemark.ledger.records import LaneKind
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results
from tidemark.types.digests import digested
from tidemark.types.fields import canonical

DEEP = "array<map<string, struct<x: array<map<string, struct<y: array<map<string, struct<z: int>>>>>>>>>"
LIKE_OURS = (
    "struct<_topic: string, _offset: bigint, _deleted: boolean, _generation: bigint, `a.b`: int, `é ü`: int, `x``y`: int, "
    "key: string, key_value: map<string, int>, element: array<int>, list: array<string>, value: map<string, string>>"
)
KINDS = {
    "id": "integer",
    "seq": "integer",
    "lane": "string",
    "generation": "double",
    "key": "string",
    "value": "string",
    "order": "tinyint",
    "select": "smallint",
    "n": "int",
    "f": "float",
    "d": "double",
    "whole": "decimal(38,0)",
    "small": "decimal(38,38)",
    "one": "decimal(1,1)",
    "nine": "decimal(9,2)",
    "ten": "decimal(19,5)",
    "flag": "boolean",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "raw": "binary",
    "text": "string",
    "texts": "array<string>",
    "sums": "map<string, decimal(38,18)>",
    "days": "array<date>",
    "times": "array<timestamp>",
    "walls": "map<string, timestamp_ntz>",
    "bytes": "array<binary>",
    "flags": "map<string, array<boolean>>",
    "ours": LIKE_OURS,
    "lines": "array<struct<sku: string, price: decimal(10,2)>>",
    "deep": DEEP,
}
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999999)
ROWS: list[dict[str, Any]] = [
    {},
    {"n": 2**31 - 1, "seq": 2**63 - 1, "order": 127, "select": 2**15 - 1, "lane": "x", "generation": 1.5},
    {"n": -(2**31), "seq": -(2**63), "order": -128, "select": -(2**15), "lane": "", "generation": -0.0},
    {"f": -0.0, "d": -0.0},
    {"f": 1.401298464324817e-45, "d": 5e-324},
    {"f": 3.4028234663852886e38, "d": 1.7976931348623157e308},
    {"whole": Decimal(10**38 - 1), "small": Decimal("0." + "9" * 38), "one": Decimal("0.9")},
    {"whole": Decimal("-" + "9" * 38), "small": Decimal("-0." + "9" * 38), "one": Decimal("-0.9")},
    {"whole": Decimal(0), "small": Decimal("0." + "0" * 37 + "1"), "one": Decimal("0.0")},
    {"nine": Decimal("-9999999.99"), "ten": Decimal("-99999999999999.99999")},
    {"day": date(1, 1, 1), "at": datetime(1, 1, 1, tzinfo=UTC), "wall": datetime(1, 1, 1)},
    {"day": date(9999, 12, 31), "at": _LAST.replace(tzinfo=UTC), "wall": _LAST},
    {"day": date(1582, 10, 10), "at": datetime(1582, 10, 10, 1, tzinfo=UTC), "wall": datetime(1582, 10, 10, 1)},
    {"day": date(1677, 9, 20), "at": datetime(1677, 9, 20, tzinfo=UTC), "wall": datetime(2262, 4, 12)},
    {"at": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "wall": datetime(1969, 12, 31, 23, 59, 59, 999999)},
    {"text": "", "texts": [], "sums": {}, "raw": b"", "bytes": [], "days": [], "times": [], "walls": {}, "lines": []},
    {"texts": [None], "days": [None, None], "times": [None], "bytes": [None, b""], "lines": [None], "deep": [None]},
    {
        "texts": [
            "",
            "\x00",
            "\n",
            "e\u0301",
            "é",
            "\U0001f600",
            "\u200b",
            "\ufeff",
            "\ufffe",
            "__HIVE_DEFAULT_PARTITION__",
        ]
    },
    {"text": "\x00", "key": "\uffff", "value": "null"},
    {"text": "NULL", "key": "\U0010ffff" * 40, "value": "x" * 3000},
    {"sums": {"": None, " ": Decimal("1.000000000000000001"), "a.b": Decimal(0), "ключ": Decimal("-" + "9" * 20)}},
    {"walls": {"a": _LAST, "b": datetime(1, 1, 1), "c": None}, "days": [date(1, 1, 1), date(9999, 12, 31)]},
    {"times": [datetime(1, 1, 1, tzinfo=UTC), _LAST.replace(tzinfo=UTC)]},
    {"flags": {"a": [True, None, False], "b": None, "c": []}, "flag": False},
    {"ours": {}},
    {
        "ours": {
            "_topic": "t",
            "_offset": -1,
            "_deleted": True,
            "_generation": 7,
            "a.b": 1,
            "é ü": 2,
            "x`y": 3,
            "key": "k",
            "key_value": {"key": 1, "value": None},
            "element": [1, None],
            "list": ["element"],
            "value": {"value": "key", "": ""},
        }
    },
    {"lines": [{"sku": None, "price": None}, None, {"sku": "", "price": Decimal("-99999999.99")}]},
    {"deep": [{"a": {"x": [{"b": {"y": [{"c": {"z": 1}}, {}]}}, None]}, "n": None, "e": {"x": []}}, {}]},
    {"deep": [{"a": {"x": None}, "b": {"x": [{"": {"y": None}}]}}]},
    {"raw": bytes(range(256)), "bytes": [b"\xff\xfe", b"\x00"]},
]


def whole(number: int) -> dict[str, Any]:
    row = {**dict.fromkeys(KINDS), "id": number, **ROWS[number]}
    if row["ours"] is not None:
        names = ("_topic", "_offset", "_deleted", "_generation", "a.b", "é ü", "x`y", "key", "key_value", "element")
        row["ours"] = {**dict.fromkeys((*names, "list", "value")), **row["ours"]}
    return row


STREAM: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {"type": "json", "fields": KINDS},
    "sinks": [],
    "dead_letters": {"type": "hbase", "table": "-"},
}


def odd(kinds: Mapping[str, str] = KINDS) -> Example:
    stream = {**STREAM, "scheme": {"type": "json", "fields": dict(kinds)}}
    return Example("odd", stream, ("odd",), 1, lambda *_: iter(()), lambda value: Outcome(None, None))


def by_id(rows: list[dict[str, Any]], kinds: Mapping[str, str]) -> dict[int, dict[str, Any]]:
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: {name: digested(canonical(kind), row[name]) for name, kind in kinds.items()} for row in rows}


def differing(found: Mapping[int, Any], wanted: Mapping[int, Any]) -> dict[Any, Any]:
    return {
        (id_, name): (found.get(id_, {}).get(name), value)
        for id_, row in wanted.items()
        for name, value in row.items()
        if found.get(id_, {}).get(name, "no such row") != value
    }


def assert_everywhere(live: LiveStream, spark: SparkSession, wanted: dict[int, Any], kinds: Mapping[str, str]) -> None:
    problems = {}
    # pyiceberg 0.12 reads an absent list of structs as an empty one.
    empty = digested(canonical(kinds["lines"]), [])
    of_pyiceberg = {at: {**row, "lines": row["lines"] or empty} for at, row in wanted.items()}
    for reader, rows in foreign_rows(spark, live):
        expected = of_pyiceberg if reader.endswith("pyiceberg") else wanted
        if different := differing(by_id(rows, kinds), expected):
            problems[reader] = different
    for sink in live.opened.stream.sinks:
        rows = results(spark, live.opened, sink.name).toArrow().to_pylist()
        if different := differing(by_id(rows, kinds), wanted):
            problems[f"{sink.name} by Tidemark"] = different
    assert not problems, str(problems)
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()


@pytest.mark.full
@pytest.mark.covers("N81", "N107")
def test_odd_values_of_json(make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = make(odd())
    tables = [{"type": "hbase", "table": live.name}]
    live.rewrite(sinks=[*lakes(live, tmp_path, monkeypatch), *lakes_by_key(live, "id"), *tables])
    rows = [whole(number) for number in range(len(ROWS))]
    live.kafka.send((live.topics[0], 0, b"k", json_of(row).encode()) for row in rows)
    live.ingest()
    wanted = by_id(rows, KINDS)
    assert_everywhere(live, spark, wanted, KINDS)
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, len(ROWS) - 3)))
    # Until then, the folders of the windows have what was replaced, too.
    asked("compact", str(live.file), "--sink", "parquet", "--yes")
    asked("compact", str(live.file), "--sink", "iceberg", "--yes")
    assert_everywhere(live, spark, wanted, KINDS)


# What JSON cannot say: a transform gives it, as Avro, Protobuf and functions do

BEYOND = {
    "id": "integer",
    "d": "double",
    "f": "float",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "days": "array<date>",
    "times": "map<string, timestamp>",
    "numbers": "array<double>",
    "inner": "struct<f: float, wall: timestamp_ntz, at: timestamp>",
}
_NUMBERS = ("0.0", "-0.0", "NaN", "Infinity", "-Infinity", "1.5")
# Microseconds and days that Spark holds, and Python does not.
_TIMES = (0, -(2**62), 2**62, 253402300800 * 10**6, -62135596800 * 10**6 - 1)
_DAYS = (0, -800_000, 3_000_000, 2932897, -719163)


def beyond(live: LiveStream) -> dict[str, Any]:
    sql = (
        f"SELECT {GIVEN_BACK}, id, CAST(number AS DOUBLE) AS d, CAST(number AS FLOAT) AS f, date_from_unix_date(day) AS day, "
        "timestamp_micros(micros) AS at, CAST(timestamp_micros(micros) AS TIMESTAMP_NTZ) AS wall, "
        "array(date_from_unix_date(day), NULL) AS days, map('a', timestamp_micros(micros), 'b', NULL) AS times, "
        "array(CAST(number AS DOUBLE), NULL) AS numbers, named_struct('f', CAST(number AS FLOAT), 'wall', "
        "CAST(timestamp_micros(micros) AS TIMESTAMP_NTZ), 'at', timestamp_micros(micros)) AS inner FROM messages"
    )
    fields = {"id": "integer", "number": "string", "day": "int", "micros": "integer"}
    return {"scheme": {"type": "json", "fields": fields}, "transform": {"sql": sql, "fields": BEYOND}}


@pytest.mark.full
@pytest.mark.covers("N81", "N107")
def test_what_json_cannot_say(make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are none, and times that Python has none of: no stream stops, and the files have what Spark has."""
    live = make(odd())
    out = f"{live.name}-out"
    live.kafka.create(out, 1)
    others: list[dict[str, Any]] = [
        {"type": "hbase", "table": live.name},
        {"type": "hbase", "name": "packed", "table": f"{live.name}_packed", "packed": True},
        {"type": "kafka", "topic": out},
    ]
    live.rewrite(sinks=[*lakes(live, tmp_path, monkeypatch), *lakes_by_key(live, "id"), *others], **beyond(live))
    rows = [(number, day, micros) for number in _NUMBERS for day, micros in zip(_DAYS, _TIMES, strict=True)]
    live.kafka.send(
        (live.topics[0], 0, b"k", json.dumps({"id": at, "number": n, "day": day, "micros": micros}).encode())
        for at, (n, day, micros) in enumerate(rows)
    )
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 20)))
    wanted = [
        (at, n.replace("Infinity", "inf").lower(), day, *[micros] * 2) for at, (n, day, micros) in enumerate(rows)
    ]
    for again in (False, True):
        report = audit(live.opened, live.new_run())
        assert (report.clean, report.expected, report.dead_letters) == (True, len(rows), 0), report.sentence()
        for sink in ("parquet", "delta", "iceberg", "delta_latest", "iceberg_latest", "hbase", "packed"):
            assert len(asked("results", str(live.file), "--sink", sink, "--limit", "1000")) == len(rows), sink
            if again and sink in ("parquet", "iceberg", "delta_latest", "iceberg_latest"):
                asked("compact", str(live.file), "--sink", sink, "--yes")
        for name, paths in named_files(live).items():
            if name != "parquet" or again:
                assert duckdb.sql(_AS_NUMBERS, params=[paths]).fetchall() == wanted, name


_AS_NUMBERS = """
    SELECT id, CAST(d AS TEXT), day - DATE '1970-01-01', epoch_us("at"), epoch_us(wall)
    FROM read_parquet(?, hive_partitioning = false) ORDER BY id
"""
