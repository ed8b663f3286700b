"""How a table holds a row's fields: a cell for each, under its own or another name, or one cell for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemark.errors import WrongUse
from tidemark.sinks.hbase.netstrings import pack_columns, unpack
from tidemark.sinks.hbase.rows import DATA_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa


# No field's name begins with an underscore.
PACKED = DATA_PREFIX + b"_packed"


@dataclass(frozen=True)
class CellLayout:
    """`columns`: field to qualifier, if their names differ. A table keeps the layout that it was made with."""

    columns: Mapping[str, str] = field(default_factory=dict)
    packed: bool = False

    def cells(self, fields: Sequence[str], contents: Sequence[pa.Array]) -> list[tuple[bytes, pa.Array]]:
        """The columns (with family) and cells of fields, of many rows at once. A null is no cell."""
        if self.packed:
            return [(PACKED, pack_columns(fields, contents))]
        columns = [DATA_PREFIX + self.columns.get(name, name).encode() for name in fields]
        return list(zip(columns, contents, strict=True))

    def fields(self, cells: Mapping[bytes, bytes]) -> dict[str, bytes]:
        """The fields that are not null, from all cells of a row.

        A damaged packed cell shows its bytes under a name that no field has, so that an audit sees the difference.
        """
        if self.packed:
            packed = cells.get(PACKED, b"")
            try:
                return unpack(packed)
            except ValueError:
                return {PACKED.decode(): packed}
        names = {column: name for name, column in self.columns.items()}
        columns = ((column[len(DATA_PREFIX) :].decode(), value) for column, value in cells.items())
        return {names.get(column, column): value for column, value in columns}

    def marked(self) -> dict[str, Any]:
        """The layout as the owner's mark of the table holds it: empty for one cell each, under the field's own name."""
        return {
            **({"columns": dict(self.columns)} if self.columns else {}),
            **({"packed": True} if self.packed else {}),
        }

    @classmethod
    def of_mark(cls, owner: Mapping[str, Any]) -> CellLayout:
        return cls(owner.get("columns", {}), owner.get("packed", False))

    def check(self, place: str, owner: Mapping[str, Any]) -> None:
        """Raises WrongUse, naming the setting, for a table that was made with another layout."""
        made = self.of_mark(owner)
        for name in ("columns", "packed"):
            if getattr(made, name) != getattr(self, name):
                raise WrongUse(
                    f"{place} was made with {name} {getattr(made, name) or 'unset'}, the stream file says "
                    f"{getattr(self, name) or 'unset'}. Name another table, and fill it by a replay of everything"
                )
