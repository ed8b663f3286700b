"""Aggregates of rows as states that merge: what one window contributes to a key, and the total of several windows.

A state is text, as fields are in HBase. Aggregates skip nulls, so a state is absent if there was no value at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any, Literal, cast

from tidemark.sinks.double_texts import double_text
from tidemark.types.fields import FieldType
from tidemark.types.renamed_fields import Names

Function = Literal["count", "sum", "min", "max"]
# Aggregates as the mark of a table has them: see `Aggregate.described`.
Values = Mapping[str, Sequence[str | None]]

_TIME = re.compile(rb"([+-]?)(\d+)-(.*)")


@dataclass(frozen=True)
class Aggregate:
    """One value of a key: `count` of rows, or `sum`, `min` or `max` of a field; `kind` is the field's type."""

    name: str
    function: Function
    field: str | None
    kind: FieldType

    @property
    def sums_doubles(self) -> bool:
        """Whether the last digits of a state depend on the order of the rows."""
        return self.function == "sum" and self.kind == "double"

    def merged(self, states: Sequence[bytes]) -> bytes | None:
        """The state of all given ones together; None if there are none. A sum of integers is exact, however large."""
        if not states:
            return None
        if self.function in ("count", "sum"):
            if self.kind == "integer":
                return b"%d" % sum(int(state) for state in states)
            return double_text(sum(float(state) for state in states)).encode()
        choose: Callable[..., bytes] = min if self.function == "min" else max
        chosen = choose(states, key=partial(_rank, self.kind))
        # Which of two zeros is the least depends on their order.
        return b"0.0" if self.kind == "double" and chosen == b"-0.0" else chosen

    @property
    def type(self) -> FieldType:
        """The type of the value."""
        if self.function == "count":
            return "integer"
        return "decimal(38,0)" if self.function == "sum" and self.kind == "integer" else self.kind

    def described(self) -> list[str | None]:
        """The aggregate as the owner's mark of a table holds it."""
        return [self.function, self.field]


def aggregates_of(values: Values, fields: Mapping[str, FieldType], was: Names) -> tuple[Aggregate, ...]:
    """The aggregates that the mark of a table names, by today's fields."""
    made = []
    for name, (function, field) in values.items():
        # A history that has had both names has types of both.
        field = next((today for today, older in was.items() if field in older), field)
        made.append(Aggregate(name, cast("Function", function), field, "integer" if field is None else fields[field]))
    return tuple(made)


def same_values(was: Names, before: Values | None, now: Values | None) -> bool:
    """Whether aggregates are those of before, of fields that may have other names now. Their types may be wider."""
    if before is None or now is None:
        return before == now
    return before.keys() == now.keys() and all(
        before[name][0] == function and (before[name][1] == field or before[name][1] in was.get(str(field), ()))
        for name, (function, field) in now.items()
    )


def merged(aggregates: Iterable[Aggregate], contributions: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """The total of some contributions, by the names of the values; null values are absent."""
    states = {
        aggregate.name: aggregate.merged([each[aggregate.name] for each in contributions if aggregate.name in each])
        for aggregate in aggregates
    }
    return {name: state for name, state in states.items() if state is not None}


def _rank(kind: str, state: bytes) -> Any:
    """A sort key: it sorts states as Spark sorts their values."""
    if kind == "integer":
        return int(state)
    if kind == "double":
        # For Spark, NaN is larger than all numbers; in Python, NaN has no order.
        number = float(state)
        return (isnan(number), 0.0 if isnan(number) else number)
    if kind == "timestamp":
        parts = _TIME.fullmatch(state)
        if parts is None:
            raise ValueError(f"not a time: {state!r}")
        sign, year, rest = parts.groups()
        return (-int(year) if sign == b"-" else int(year), rest)
    # UTF-8 sorts as its bytes do.
    return state
