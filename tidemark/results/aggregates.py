"""Aggregates of rows as states that merge: what one window contributes to a key, and the total of several windows.

A state is text, as a field's in HBase; one that is absent is of no value at all, since nulls are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any, Literal

Function = Literal["count", "sum", "min", "max"]

_TIME = re.compile(rb"([+-]?)(\d+)-(.*)")


@dataclass(frozen=True)
class Aggregate:
    """One value of a key: `count` of rows, or `sum`, `min` or `max` of a field, and the field's type in the stream file."""

    name: str
    function: Function
    field: str | None
    kind: str

    def merged(self, states: Sequence[bytes]) -> bytes | None:
        """The state of all of them together; None for none. A sum of integers is exact, however large."""
        if not states:
            return None
        if self.function in ("count", "sum"):
            if self.kind == "integer":
                return b"%d" % sum(int(state) for state in states)
            return repr(sum(float(state) for state in states)).encode()
        choose: Callable[..., bytes] = min if self.function == "min" else max
        return choose(states, key=partial(_rank, self.kind))

    def described(self) -> list[str | None]:
        """As the mark of a table's owner has it."""
        return [self.function, self.field, self.kind]


def merged(aggregates: Iterable[Aggregate], contributions: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """The total of some contributions, by the values' names; what would be null is absent."""
    found = {one.name: one.merged([each[one.name] for each in contributions if one.name in each]) for one in aggregates}
    return {name: state for name, state in found.items() if state is not None}


def _rank(kind: str, state: bytes) -> Any:
    """Sorts states as Spark sorts the values that they are."""
    if kind == "integer":
        return int(state)
    if kind == "double":
        # Spark takes NaN for larger than all numbers, Python for neither.
        number = float(state)
        return (isnan(number), 0.0 if isnan(number) else number)
    if kind == "timestamp":
        found = _TIME.fullmatch(state)
        if found is None:
            raise ValueError(f"not a time: {state!r}")
        sign, year, rest = found.groups()
        return (-int(year) if sign == b"-" else int(year), rest)
    # UTF-8 sorts as its bytes do.
    return state
