"""The settings of all sinks with aggregates by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tidemark.schemes.kinds import named_once
from tidemark.settings.parts import FieldName
from tidemark.sinks.aggregates.states import Aggregate, Function
from tidemark.sinks.contract import SettingsContext
from tidemark.sinks.latest.settings import HistorySettings
from tidemark.types.fields import FieldType

_SUMMED: frozenset[FieldType] = frozenset({"integer", "double"})
_ORDERED: frozenset[FieldType] = frozenset({"integer", "double", "string", "timestamp"})

Of = Annotated[dict[Literal["sum", "min", "max"], FieldName], Field(min_length=1, max_length=1)]


def _kind(given: object) -> str:
    return "of" if isinstance(given, dict) else "count"


Value = Annotated[Annotated[Literal["count"], Tag("count")] | Annotated[Of, Tag("of")], Discriminator(_kind)]


class AggregatesSettings(HistorySettings):
    """A row for each key, with aggregates of all its rows. A table keeps the key and the values that it was made with."""

    values: Annotated[
        dict[FieldName, Value],
        Field(
            min_length=1,
            max_length=64,
            description="Names, each with its aggregate: `count` of the rows; `sum` of a field (integer, double); `min` or "
            "`max` "
            "of a field (integer, double, string, timestamp).",
        ),
    ]

    @model_validator(mode="after")
    def _named_once(self) -> AggregatesSettings:
        named_once([*self.key, *self.values])
        return self

    @property
    def fields_named(self) -> tuple[str, ...]:
        return (*self.key, *(field for _, field in self._over().values()))

    def problem_with(self, others: SettingsContext) -> str | None:
        if problem := super().problem_with(others):
            return problem
        for name, (function, field) in self._over().items():
            taken = _SUMMED if function == "sum" else _ORDERED
            if others.fields[field] not in taken:
                known = ", ".join(sorted(taken))
                return (
                    f"sink {self.name}: {name} is the {function} of {field}, which is of type {others.fields[field]}; "
                    f"{function} takes {known}"
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

    def described(self, fields: Mapping[str, FieldType]) -> dict[str, list[str | None]]:
        """The aggregates as the mark of a table has them."""
        return {one.name: one.described() for one in self.aggregates(fields)}

    def _over(self) -> dict[str, tuple[Function, str]]:
        """The values that a function makes of a field: by name, the function and its field."""
        return {
            name: (function, field)
            for name, given in self.values.items()
            if isinstance(given, dict)
            for function, field in given.items()
        }
