"""What a stream file may say of a sink with aggregates by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from tidemark.results.aggregates import Aggregate, Function
from tidemark.streams.parts import (
    MOST_CELL_BYTES,
    CellBytes,
    ConnectionName,
    FieldName,
    Items,
    Name,
    Part,
    Regions,
    Table,
)
from tidemark.streams.schemes import FieldType, named_once

_SUMMED: frozenset[FieldType] = frozenset({"integer", "double"})
_ORDERED: frozenset[FieldType] = frozenset({"integer", "double", "string", "timestamp"})

Of = Annotated[dict[Literal["sum", "min", "max"], FieldName], Field(min_length=1, max_length=1)]


def _kind(given: object) -> str:
    return "of" if isinstance(given, dict) else "count"


Value = Annotated[Annotated[Literal["count"], Tag("count")] | Annotated[Of, Tag("of")], Discriminator(_kind)]


class HBaseAggregatesSink(Part):
    """A row for each key, with one contribution of each window. A table keeps the key and the values that it was made with.

    `regions` counts when the table is made.
    """

    type: Literal["hbase_aggregates"]
    name: Name = "hbase_aggregates"
    hbase: ConnectionName = "hbase_default"
    table: Table
    key: Annotated[Items[FieldName], Field(min_length=1, max_length=16)]
    values: Annotated[dict[FieldName, Value], Field(min_length=1, max_length=64)]
    regions: Regions = 1
    max_cell_bytes: CellBytes = MOST_CELL_BYTES

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _named_once(self) -> HBaseAggregatesSink:
        named_once([*self.key, *self.values])
        return self

    def problem_with(self, fields: Mapping[str, FieldType]) -> str | None:
        """Why these fields cannot be aggregated so, in words."""
        for name in [*self.key, *(field for _, field in self._over().values())]:
            if name not in fields:
                return f"sink {self.name} names the field {name}, which the stream does not have"
        for name, (function, field) in self._over().items():
            taken = _SUMMED if function == "sum" else _ORDERED
            if fields[field] not in taken:
                known = ", ".join(sorted(taken))
                return (
                    f"sink {self.name}: {name} is the {function} of {field}, which is of type {fields[field]}; "
                    f"{function} takes {known}"
                )
        return None

    def aggregates(self, fields: Mapping[str, FieldType]) -> tuple[Aggregate, ...]:
        """The values, of a stream with these fields."""
        over = self._over()
        return tuple(
            Aggregate(name, *over[name], fields[over[name][1]])
            if name in over
            else Aggregate(name, "count", None, "integer")
            for name in self.values
        )

    def _over(self) -> dict[str, tuple[Function, str]]:
        """The values that are made of a field: by name, the function and its field."""
        return {
            name: (function, field)
            for name, given in self.values.items()
            if isinstance(given, dict)
            for function, field in given.items()
        }
