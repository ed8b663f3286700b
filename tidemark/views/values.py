"""The base of the values of views, and how they are written as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainSerializer, TypeAdapter, WithJsonSchema

from tidemark.ledger.incarnations import Topics, written_partition
from tidemark.offsets.ranges import OffsetRange, RangeSet

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# An offset, or a count of offsets. In JSON it is a text: JavaScript loses digits above 2^53.
Number = Annotated[
    int,
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+$", "description": "a number of any size, as a text"}),
]
# `from` is no name in Python.
From = Annotated[Number, Field(serialization_alias="from")]


@dataclass(frozen=True)
class PartitionRanges:
    """Offsets [from, until) of a partition, which has its incarnation where the ranges would mean other offsets without it."""

    partition: str
    start: From
    until: Number


def part_of(topics: Topics, range_: OffsetRange) -> PartitionRanges:
    return PartitionRanges(written_partition(topics, RangeSet([range_])), range_.start, range_.until)


def as_plain(value: DataclassInstance) -> dict[str, Any]:
    """The value of a view, a dataclass, as plain values for JSON."""
    plain: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json", by_alias=True)
    return plain


@cache
def _adapter(kind: type[DataclassInstance]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
