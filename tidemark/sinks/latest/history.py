"""The history of a sink's windows: the rows that count, from which the newest of each key are taken.

    BASE/_history/_tidemark_owner.json
    BASE/_history/lane=LANE/seq=NUMBER/generation=GENERATION/part-*.parquet

These folders are those of the sink `parquet`: an attempt writes one, only the ledger's commit makes it count, and a
compaction puts several together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.errors import Unreachable
from tidemark.ledger.ordering import Epochs
from tidemark.offsets.authority import Authority
from tidemark.sinks.latest.rows import BUCKET, GENERATION, KEY_HASH, newest
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.compactions import WindowName
from tidemark.sinks.parquet.files import Counts, check_not_gone, dataset_at, uniform
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.types.renamed_fields import NEVER, Names, by_today

# This many rows of a history are compared at once, and more where more are the newest.
_AT_ONCE = 200_000


@dataclass(frozen=True)
class History:
    """The folders of a sink that belong to one table, and what counts of them.

    `forgets`: the ledger was restored, and may name folders that a compaction has removed since. These are passed over: the
    table has the rows of theirs that were the newest. `was`: the older names of fields.
    """

    parts: tuple[FolderPart, ...]
    authority: Authority
    forgets: bool = False
    was: Names = field(default_factory=dict)
    _counts: Counts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_counts", Counts(self.authority))

    @classmethod
    def of(
        cls, parts: Iterable[FolderPart], authority: Authority, base: str, *, forgets: bool, was: Names = NEVER
    ) -> History:
        """`base`: that of the table's history. Another one has the history of another table."""
        return cls(tuple(one for one in parts if one.base == base and one.holds), authority, forgets, was)

    def only(self, windows: Collection[WindowName]) -> History:
        """The folders with the rows of some windows."""
        wanted = {*windows}
        return replace(self, parts=tuple(one for one in self.parts if not wanted.isdisjoint(one.names)))

    def count(self, rows: pa.Table) -> np.ndarray:
        """Whether each row counts, by its generation."""
        return self._counts.of(rows, rows.column(GENERATION).to_numpy())

    def sizes(self) -> dict[int, int]:
        """The buckets with rows of these folders, and how many rows each has there."""
        sizes: dict[int, int] = {}
        for part in self.parts:
            for dataset in self._opened(part):
                counted = dataset.to_table(columns=[BUCKET]).column(BUCKET).value_counts().to_pylist()
                for one in counted:
                    if one["values"] is not None:
                        sizes[one["values"]] = sizes.get(one["values"], 0) + one["counts"]
        return sizes

    def rows(self, columns: pa.Schema, buckets: Collection[int], hashes: np.ndarray) -> pa.Table:
        """The rows that count in some buckets, of the keys with these hashes."""
        wanted = pc.field(BUCKET).isin(sorted(buckets)) & pc.field(KEY_HASH).isin(pa.array(hashes, pa.int64()))
        return pa.concat_tables([columns.empty_table(), *self.pieces(columns, wanted)])

    def newest(self, columns: pa.Schema, buckets: Collection[int], key: Sequence[str], epochs: Epochs) -> pa.Table:
        """The newest of the rows that count in some buckets. Holds these, and about as many others at a time."""
        newest, waiting, number = columns.empty_table(), list[pa.Table](), 0
        for piece in self.pieces(columns, pc.field(BUCKET).isin(sorted(buckets))):
            waiting.append(piece)
            number += piece.num_rows
            if number > max(newest.num_rows, _AT_ONCE):
                newest, waiting, number = _newest([newest, *waiting], key, epochs), [], 0
        return _newest([newest, *waiting], key, epochs)

    def pieces(self, columns: pa.Schema, wanted: pc.Expression | None, *, counting: bool = True) -> Iterator[pa.Table]:
        """The rows that count, or all, some at a time."""
        for part in self.parts:
            for dataset in self._opened(part):
                for batch in dataset.to_batches(filter=wanted):
                    rows = pa.Table.from_batches([batch])
                    rows = rows.rename_columns([*by_today(self.was, dict.fromkeys(rows.column_names))])
                    if not part.compacted:
                        generation = pa.scalar(part.windows[0].generation, pa.int64())
                        rows = rows.append_column(GENERATION, pa.repeat(generation, rows.num_rows))
                    yield conformed(rows.filter(pa.array(self.count(rows))) if counting else rows, columns)

    def _opened(self, part: FolderPart) -> Iterator[ds.Dataset]:
        """The files of a folder, unless it has none."""
        for place in part.paths:
            with folders.opened(place) as (filesystem, path):
                if self.forgets and filesystem.get_file_info(path).type == fs.FileType.NotFound:
                    continue
                check_not_gone(part, place, filesystem, path)
                dataset = dataset_at(filesystem, path)
                if dataset.files:
                    yield uniform(dataset)


def _newest(parts: Sequence[pa.Table], key: Sequence[str], epochs: Epochs) -> pa.Table:
    rows = pa.concat_tables(parts)
    return rows.take(pa.array(newest(rows, key, epochs)))


class BucketFileGone(Unreachable):
    """A file is gone that a version of a table names. The history has its rows."""


def rows_of_file(name: str, columns: pa.Schema) -> pa.Table:
    """The rows of a table's file with those of some columns that it has: one of before a column was added lacks it.

    Raises BucketFileGone.
    """
    with folders.opened(name) as (filesystem, path):
        if filesystem.get_file_info(path).type == fs.FileType.NotFound:
            raise BucketFileGone(
                f"{name} is gone, and the newest version of its table names it. The next window with a key of its bucket "
                "writes it again, from the history; so does a replay of any offsets"
            )
        with filesystem.open_input_file(path) as file:
            parquet = pq.ParquetFile(file)
            return parquet.read([one for one in columns.names if one in parquet.schema_arrow.names])


def conformed(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """The rows with exactly these columns; null where they lack one."""
    there = {*rows.column_names}
    made = [
        rows.column(one.name).cast(one.type) if one.name in there else pa.nulls(rows.num_rows, one.type)
        for one in columns
    ]
    return pa.table(made, schema=columns)
