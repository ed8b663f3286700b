"""The settings of a sink with aggregates by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from tidemark.schemes.kinds import named_once
from tidemark.settings.parts import FieldName, Items, Name
from tidemark.sinks.contract import Surroundings
from tidemark.sinks.hbase.aggregates.states import Aggregate, Function
from tidemark.sinks.hbase.settings import HBaseTableSettings
from tidemark.types.fields import FieldType

_SUMMED: frozenset[FieldType] = frozenset({"integer", "double"})
_ORDERED: frozenset[FieldType] = frozenset({"integer", "double", "string", "timestamp"})

Of = Annotated[dict[Literal["sum", "min", "max"], FieldName], Field(min_length=1, max_length=1)]


def _kind(given: object) -> str:
    return "of" if isinstance(given, dict) else "count"


Value = Annotated[Annotated[Literal["count"], Tag("count")] | Annotated[Of, Tag("of")], Discriminator(_kind)]


# What a replay then reads beside what it was asked for is little, and a block of log lines has some ten keys of time.
BLOCK_OFFSETS = 1_000


class HBaseAggregatesSink(HBaseTableSettings):
    """A row for each key, with one contribution of each block of offsets.

    A table keeps the key, the values and the blocks that it was made with.
    """

    type: Literal["hbase_aggregates"]
    name: Name = Field(
        default="hbase_aggregates", description="The name of the sink. Two sinks of one type need names."
    )
    key: Annotated[
        Items[FieldName],
        Field(
            min_length=1,
            max_length=16,
            description="The field that is the key, or a list of fields. A key of time, such as the minute, is a field "
            "that a [transform](checks-and-transforms.md#transform) makes.",
        ),
    ]
    values: Annotated[
        dict[FieldName, Value],
        Field(
            min_length=1,
            max_length=64,
            description="Names, each with what it is: `count` of the rows; `sum` of a field (integer, double); `min` or `max` "
            "of a field (integer, double, string, timestamp).",
        ),
    ]

    block_offsets: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000_000,
            description="How many offsets of a partition have one contribution to each key. [A replay reads whole "
            "blocks](#replays-read-whole-blocks): smaller ones cost more cells.",
        ),
    ] = BLOCK_OFFSETS

    # A contribution cannot be rebuilt from a part of its block.
    contributions = "aggregates"

    @property
    def whole_blocks(self) -> int:
        return self.block_offsets

    @field_validator("key", mode="before", json_schema_input_type=FieldName | Items[FieldName])
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _named_once(self) -> HBaseAggregatesSink:
        named_once([*self.key, *self.values])
        return self

    def problem_with(self, others: Surroundings) -> str | None:
        fields = others.fields
        for name in [*self.key, *(field for _, field in self._over().values())]:
            if name not in fields:
                return f"sink {self.name} names the field {name}, which the stream does not have"
        if problem := others.no_key(self.name, self.key):
            return problem
        for name, (function, field) in self._over().items():
            taken = _SUMMED if function == "sum" else _ORDERED
            if fields[field] not in taken:
                known = ", ".join(sorted(taken))
                return (
                    f"sink {self.name}: {name} is the {function} of {field}, which is of type {fields[field]}; "
                    f"{function} takes {known}"
                )
        if others.guarantee == "none":
            return (
                f"sink {self.name}: with guarantee none windows read the same offsets again, and each would add to the "
                "aggregates; use at_least_once"
            )
        return None

    def aggregates(self, fields: Mapping[str, FieldType]) -> tuple[Aggregate, ...]:
        """The aggregates, for a stream with these fields."""
        over = self._over()
        return tuple(
            Aggregate(name, *over[name], fields[over[name][1]])
            if name in over
            else Aggregate(name, "count", None, "integer")
            for name in self.values
        )

    def _over(self) -> dict[str, tuple[Function, str]]:
        """The values that a function makes of a field: by name, the function and its field."""
        return {
            name: (function, field)
            for name, given in self.values.items()
            if isinstance(given, dict)
            for function, field in given.items()
        }
