"""Rows of a history as the aggregates of their keys, many rows at once.

The aggregates of two sets of rows merge to those of both. So a history of any size takes the memory of its keys, and rows can
be added to what a table has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.sinks.aggregates.states import Aggregate
from tidemark.sinks.latest.rows import as_key, columns
from tidemark.types.fields import FieldType, arrow_type

_SUM = pa.decimal128(38, 0)
# This many rows are held before they are folded, and more where more are the keys.
_AT_ONCE = 200_000


@dataclass(frozen=True)
class Folding:
    """The aggregates of a sink, by the types that its history has. `kept`: what else the result has, of one row of a key."""

    fields: Mapping[str, FieldType]
    key: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    kept: tuple[str, ...]

    @property
    def columns(self) -> pa.Schema:
        """The columns of a history that are read."""
        wanted = {*self.kept, *self.key, *(one.field for one in self.aggregates)}
        return pa.schema([one for one in columns(self.fields) if one.name in wanted])

    @property
    def shown(self) -> dict[str, FieldType]:
        """The fields of a row of the table, with their types: the key's, and the aggregates."""
        return {**{name: self.fields[name] for name in self.key}, **{one.name: one.type for one in self.aggregates}}

    @property
    def result(self) -> pa.Schema:
        """The columns of the result."""
        kept = (self.columns.field(name) for name in self.kept)
        return pa.schema([*((name, arrow_type(kind)) for name, kind in self.shown.items()), *kept])

    def folded(self, pieces: Iterable[pa.Table], before: pa.Table | None = None) -> pa.Table:
        """A row for each key of some rows of a history, as in `result`. `before`: such rows, to which they come."""
        made = self._states(self.columns.empty_table()) if before is None else self._states_of(before)
        waiting, number = list[pa.Table](), 0
        for piece in pieces:
            waiting.append(self._states(piece))
            number += piece.num_rows
            if number > max(made.num_rows, _AT_ONCE):
                made, waiting, number = self._merged([made, *waiting]), [], 0
        return self._shown(self._merged([made, *waiting]))

    def _states(self, rows: pa.Table) -> pa.Table:
        """Each row as the aggregates of it alone."""
        return self._with_states(rows, _of_row)

    def _states_of(self, rows: pa.Table) -> pa.Table:
        """Rows of the result as they were merged."""
        return self._with_states(rows, _of_total)

    def _with_states(
        self, rows: pa.Table, state: Callable[[Aggregate, pa.Table], pa.ChunkedArray | pa.Array]
    ) -> pa.Table:
        kept = {_kept(name): rows.column(name) for name in self.kept}
        kept |= {_kept(name): _without_sign(rows.column(name)) for name in self.key}
        return pa.table({**kept, **{_state(number): state(one, rows) for number, one in enumerate(self.aggregates)}})

    def _merged(self, parts: Sequence[pa.Table]) -> pa.Table:
        states = pa.concat_tables(parts)
        keys = {f"key_{number}": as_key(states.column(_kept(name))) for number, name in enumerate(self.key)}
        numbered = states.select([_state(number) for number, _ in enumerate(self.aggregates)])
        # Any row of a key says where it is from.
        for name, values in [*keys.items(), ("number", pa.array(np.arange(states.num_rows)))]:
            numbered = numbered.append_column(name, values)
        merges = [(_state(number), _MERGES[one.function]) for number, one in enumerate(self.aggregates)]
        groups = numbered.group_by([*keys], use_threads=False).aggregate([*merges, ("number", "max")])
        made = states.take(groups.column("number_max"))
        for name, merge in merges:
            values = groups.column(f"{name}_{merge}")
            made = made.set_column(made.schema.get_field_index(name), name, values.cast(states.schema.field(name).type))
        return made

    def _shown(self, states: pa.Table) -> pa.Table:
        kept = {name: states.column(_kept(name)) for name in (*self.kept, *self.key)}
        values = {one.name: _value(one, states.column(_state(number))) for number, one in enumerate(self.aggregates)}
        return pa.table({**kept, **values})


_MERGES = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}


# A stream's field may have any name.
def _kept(name: str) -> str:
    return f"kept {name}"


def _state(number: int) -> str:
    return f"state {number}"


def _without_sign(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same, where -0.0 is 0.0."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _of_row(one: Aggregate, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    if one.field is None:
        return pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    values = rows.column(one.field)
    if one.function == "sum":
        return values.cast(_SUM) if one.kind == "integer" else values.cast(pa.float64())
    return _ordered(values) if one.kind == "double" else values


def _of_total(one: Aggregate, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    values = rows.column(one.name)
    return _ordered(values) if one.kind == "double" and one.function in ("min", "max") else values


def _value(one: Aggregate, states: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    return _numbers(states) if one.kind == "double" and one.function in ("min", "max") else states


def comparable(rows: pa.Table) -> pa.Table:
    """The same rows, where equal values are equal in Arrow too, and have an order: NaN, and both zeros."""
    return pa.table(
        {
            name: _ordered(values.cast(pa.float64())) if pa.types.is_floating(values.type) else values
            for name, values in zip(rows.column_names, rows.columns, strict=True)
        }
    )


_SIGN = np.int64(0x7FFF_FFFF_FFFF_FFFF)


def _ordered(values: pa.ChunkedArray) -> pa.Array:
    """Doubles as whole numbers in Spark's order, where NaN is above all numbers, and -0.0 is 0.0."""
    numbers = pc.fill_null(values, 0.0).combine_chunks().to_numpy(zero_copy_only=False) + 0.0
    numbers = np.where(np.isnan(numbers), np.nan, numbers)
    bits = numbers.view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ _SIGN, bits), mask=values.is_null().to_numpy(zero_copy_only=False))


def _numbers(states: pa.ChunkedArray) -> pa.Array:
    """What `_ordered` was made of."""
    bits = pc.fill_null(states, 0).to_numpy()
    numbers = np.where(bits < 0, bits ^ _SIGN, bits).astype(np.int64).view(np.float64)
    return pa.array(numbers, mask=states.is_null().to_numpy())
