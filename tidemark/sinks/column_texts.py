"""Columns of files as the texts that HBase has: those whose values Python has not, or prints in another way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from tidemark.sinks.double_texts import float_text
from tidemark.sinks.json_texts import json_text
from tidemark.sinks.time_texts import date_text, time_text
from tidemark.types.fields import NESTED, of_arrow

_TEXTS: dict[str, Callable[[Any], str]] = {
    "timestamp": time_text,
    "timestamp_ntz": time_text,
    "date": date_text,
    "float": float_text,
    "decimal": lambda value: f"{value:f}",
}


def with_texts(table: pa.Table) -> pa.Table:
    """The same table, whose times, dates, decimals, floats and nested values are texts. Times are in UTC."""
    for number, field in enumerate(table.schema):
        try:
            of = of_arrow(field.type)
        except ValueError:
            # Of another program's files.
            continue
        text_of = partial(json_text, of) if of.name in NESTED else _TEXTS.get(of.name)
        if text_of is not None:
            values = table.column(number).cast(_in_micros(field.type)).cast(_counted(field.type)).to_pylist()
            texts = pa.array([None if value is None else text_of(value) for value in values], pa.string())
            table = table.set_column(number, field.name, texts)
    return table


def _in_micros(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds. A cast to whole numbers keeps the unit, and only flat times may have another."""
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind


def _counted(kind: pa.DataType) -> pa.DataType:
    """The type with numbers for times and dates: microseconds and days since 1970."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _counted(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_counted(kind.value_type))
    return pa.struct([(one.name, _counted(one.type)) for one in kind]) if pa.types.is_struct(kind) else kind
