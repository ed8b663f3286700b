"""Values at the edges of their types: how a message writes them, and how HBase has them; None where a message is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.avro_orders import written

FIELDS = {"i": "integer", "d": "double", "b": "boolean", "t": "timestamp", "s": "string"}
FORM = "yyyy-MM-dd HH:mm:ss[.SSSSSS]"

_SAME = {"i": ["0", "-1", str(2**63 - 1), str(-(2**63))], "b": ["true", "false"]}
# By field: as text, and as HBase has it.
_OF_NUMBERS: dict[str, dict[str, str | None]] = {
    "i": {**{one: one for one in _SAME["i"]}, "-0": "0", str(2**63): None, "1.0": None, "1e3": None},
    "d": {
        "0.0": "0.0",
        "-0.0": "-0.0",
        "-0": "-0.0",
        "5e-324": "4.9E-324",
        "2.2250738585072014e-308": "2.2250738585072014E-308",
        "1e308": "1.0E308",
        "1.7976931348623157e308": "1.7976931348623157E308",
        "1e309": None,
        # A double would be another number.
        "1e-400": None,
        "0.1": "0.1",
        "1e7": "1.0E7",
        "9007199254740993": None,
        "9007199254740992": "9.007199254740992E15",
        "1e-3": "0.001",
        "123456789.5": "1.234567895E8",
    },
    "b": {one: one for one in _SAME["b"]},
}
# Texts, which are the same everywhere.
_TEXTS = [
    "",
    " ",
    "null",
    "NaN",
    "\x00",
    "a\x00b",
    "\ufeffmark",
    "a\r\nb\n",
    "\u2028\u0085",
    "\U0010ffff\ufffd",
    "e\u0301 \u00e9",
    "x" * 40_000,
    "../..",
    "a=b/c%20",
    "__HIVE_DEFAULT_PARTITION__",
    "1.0",
    "'\"`\\",
    "\x7f\x1b[31m",
]
# In the form of FORM.
_TIMES: dict[str, str | None] = {
    "1970-01-01 00:00:00": "1970-01-01 00:00:00",
    "1969-12-31 23:59:59.999999": "1969-12-31 23:59:59.999999",
    "0001-01-01 00:00:00": "0001-01-01 00:00:00",
    "0000-12-31 23:59:59": "0000-12-31 23:59:59",
    "-0001-01-01 00:00:00": "-0001-01-01 00:00:00",
    "1582-10-10 00:00:00": "1582-10-10 00:00:00",
    "1900-01-01 00:00:00": "1900-01-01 00:00:00",
    "2026-03-29 02:30:00": "2026-03-29 02:30:00",
    "9999-12-31 23:59:59.999999": "9999-12-31 23:59:59.999999",
    "+10000-01-01 00:00:00": "+10000-01-01 00:00:00",
    "+294247-01-10 04:00:54.775807": "+294247-01-10 04:00:54.775807",
    "+294247-01-10 04:00:54.775808": None,
    "+300000-01-01 00:00:00": None,
    "2016-12-31 23:59:60": None,
    "2026-11-21 24:00:00": None,
    "2026-02-29 00:00:00": None,
}
Edge = tuple[str, str, str | None]


def edges() -> Iterator[Edge]:
    """The field, its text, and what HBase has of it."""
    for name, values in _OF_NUMBERS.items():
        for text, stored in values.items():
            yield name, text, stored
    yield from (("s", text, text) for text in _TEXTS)
    yield from (("t", text, stored) for text, stored in _TIMES.items())


def in_json(edge: Edge) -> bytes:
    name, text, _ = edge
    return f'{{"{name}": {json.dumps(text) if name in "st" else text}}}'.encode()


def in_lines(edge: Edge) -> bytes:
    """With a separator that no text has, and quotes around strings."""
    name, text, _ = edge
    written = '"' + text.replace('"', '""') + '"' if name == "s" else text
    return "|".join(written if one == name else "" for one in FIELDS).encode()


# What only Avro can write: any double, and any time of 64 bits.
_OF_AVRO: list[Edge] = [
    ("d", "NaN", "NaN"),
    ("d", "inf", "Infinity"),
    ("d", "-inf", "-Infinity"),
    ("t", str(2**63 - 1), "+294247-01-10 04:00:54.775807"),
    ("t", str(-(2**63)), "-290308-12-21 19:59:05.224192"),
    ("t", "-1", "1969-12-31 23:59:59.999999"),
    ("t", "0", "1970-01-01 00:00:00"),
]
_AVRO_TYPES = {
    "i": "long",
    "d": "double",
    "b": "boolean",
    "t": {"type": "long", "logicalType": "timestamp-micros"},
    "s": "string",
}
SCHEMA = {
    "type": "record",
    "name": "Edges",
    "fields": [{"name": name, "type": ["null", kind]} for name, kind in _AVRO_TYPES.items()],
}
# Without the logical type: fastavro's times are Python's, which hold no year 300000.
_PLAIN = json.loads(json.dumps(SCHEMA).replace(json.dumps(_AVRO_TYPES["t"]), '"long"'))


def in_avro(edge: Edge) -> bytes:
    name, text, _ = edge
    made: dict[str, Any] = {"i": int, "d": float, "b": "true".__eq__, "t": int, "s": str}
    return written(_PLAIN, {one: made[name](text) if one == name else None for one in FIELDS})


def edges_of(scheme: str) -> list[Edge]:
    if scheme != "avro":
        return list(edges())
    return [*((name, text, stored) for name, text, stored in edges() if stored is not None and name != "t"), *_OF_AVRO]


SCHEMES: dict[str, dict[str, Any]] = {
    "avro": {"type": "avro", "schema_file": "edges.avsc", "fields": FIELDS},
    "json": {"type": "json", "fields": FIELDS, "timestamp": FORM},
    "delimited": {"type": "delimited", "fields": FIELDS, "separator": "|", "timestamp": FORM},
}
WRITTEN = {"avro": in_avro, "json": in_json, "delimited": in_lines}
