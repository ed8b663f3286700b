"""Aggregates of rows as states that merge: what one window contributes to a key, and the total of several windows.

A state is text, as fields are in HBase. Aggregates skip nulls, so a state is absent if there was no value at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any, Literal

from tidemark.sinks.double_texts import double_text

Function = Literal["count", "sum", "min", "max"]

_TIME = re.compile(rb"([+-]?)(\d+)-(.*)")


@dataclass(frozen=True)
class Aggregate:
    """One value of a key: `count` of rows, or `sum`, `min` or `max` of a field; `kind` is the field's type."""

    name: str
    function: Function
    field: str | None
    kind: str

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
        # Which of two zeros is the least depends on their order. Older contributions have either.
        return b"0.0" if self.kind == "double" and chosen == b"-0.0" else chosen

    def described(self) -> list[str | None]:
        """The aggregate as the owner's mark of a table holds it."""
        return [self.function, self.field, self.kind]


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
