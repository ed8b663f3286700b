"""The files of a version of a Delta table, with what the version says of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from tidemark.ledger.ledger import now_ms
from tidemark.offsets.ranges import MAX_OFFSET, RangeSet

GENERATION = "_generation"


@dataclass(frozen=True)
class TableFile:
    """A file by its name below the table's folder, and the least and most of its rows' offsets."""

    name: str
    generation: int
    offsets: tuple[int, int]

    def may_have(self, wanted: RangeSet) -> bool:
        """Whether it may hold rows of some of these offsets."""
        first, last = self.offsets
        return any((offset := wanted.at_or_above(at, first)) is not None and offset <= last for at in wanted.partitions)

    def removed(self) -> RemoveAction:
        return RemoveAction(self.name, True, now_ms(), partition_values={GENERATION: str(self.generation)})


def has_generation(table: DeltaTable, generation: int) -> bool:
    """Whether a version has a file of a generation, without a look at each file in Python."""
    generations = pa.table(table.get_add_actions(flatten=True)).column(f"partition.{GENERATION}")
    return bool(pc.any(pc.equal(generations, generation)).as_py())


def live_files(table: DeltaTable) -> Sequence[TableFile]:
    """The files that readers of this version see. One without statistics may have any row."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        TableFile(
            row["path"],
            row[f"partition.{GENERATION}"],
            (_known(row.get("min._offset"), 0), _known(row.get("max._offset"), MAX_OFFSET - 1)),
        )
        for row in rows
        # Rows of no generation are of another program.
        if row[f"partition.{GENERATION}"] is not None
    ]


def _known(bound: int | None, otherwise: int) -> int:
    return otherwise if bound is None else bound
