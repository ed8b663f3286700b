"""Orders as Avro records."""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime
from typing import Any

import fastavro

KIND = {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop.orders",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "name", "type": ["null", "string"]},
        {"name": "kind", "type": KIND},
        {"name": "before", "type": ["null", "Kind"]},
        {"name": "share", "type": "float"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": "boolean"},
        {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4}},
    ],
}
AT = datetime(2026, 11, 21, 7, 10, 0, 120_000, UTC)
ROW: dict[str, Any] = {
    "id": 5,
    "tags": ["a", "b"],
    "name": "Zoë",
    "kind": "OLD",
    "before": "NEW",
    "share": 0.25,
    "at": AT,
    "paid": True,
    "raw": b"\x00\xff\x01\xfe",
}


def written(schema: dict[str, Any], row: dict[str, Any], number: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue() if number is None else struct.pack(">bI", 0, number) + out.getvalue()
