"""Rows as `tidemark results` shows them: coordinates and values as texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark.offsets.ranges import TopicPartition
from tidemark.settings.own_names import is_own
from tidemark.sinks.double_texts import double_text
from tidemark.sinks.stored_rows import Place


def place(of: Place) -> dict[str, Any]:
    return {"coordinate": f"{of.partition}@{of.offset}", "index": of.index}


def text(value: bytes | None) -> str | None:
    return None if value is None else _decoded(value)


def texts(fields: Mapping[str, bytes]) -> dict[str, str]:
    return {name: _decoded(value) for name, value in fields.items()}


def of_file(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a file, without the fields that are null."""
    at = TopicPartition(row["_topic"], row["_partition"], row["_incarnation"])
    fields = {name: value_text(value) for name, value in row.items() if not is_own(name) and value is not None}
    return {**place(Place(at, row["_offset"], row["_index"])), "fields": fields}


def _decoded(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def value_text(value: str | bytes | bool | int | float) -> str:
    """A value of a file as the text that HBase has for it."""
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, bool):
        return str(value).lower()
    return double_text(value) if isinstance(value, float) else str(value)
