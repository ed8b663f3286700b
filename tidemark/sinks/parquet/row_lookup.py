"""The rows of one message, or of some offsets, in files of Parquet, which are read as far as their statistics allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from tidemark.errors import LedgerContradiction
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import OffsetRange
from tidemark.sinks.column_texts import with_texts
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.files import GENERATION, Counts, check_not_gone, dataset_at, is_within, uniform
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.sinks.parquet.types import names_of
from tidemark.sinks.stored_rows import Mark, Place, StoredRow
from tidemark.sinks.texts import of_file
from tidemark.types.renamed_fields import NEVER, Names, by_today

# Of a window with more files, the coordinate alone does not say which has the message: each would have to be opened.
MAX_FILES = 1_000
# A message may have any number of rows, of any size.
MAX_ROWS = 20
# Rows that are in memory at once.
_BATCH_ROWS = 1_000


def rows_of_message(
    paths: Sequence[str], at: Coordinate, record: Record, *, compacted: bool, was: Names = NEVER
) -> list[StoredRow] | str:
    """The first rows of a message in the files or folders of its window; or, in a sentence, why they are not searched.

    Raises LedgerContradiction when one of them is gone or damaged, and OSError.
    """
    all_rows: list[StoredRow] = []
    for place in paths:
        with folders.opened(place) as (filesystem, path):
            if filesystem.get_file_info(path).type == fs.FileType.NotFound:
                raise LedgerContradiction(
                    f"{place} is gone, and the window {record.lane}/{record.seq} has its results there"
                )
            try:
                dataset = dataset_at(filesystem, path)
                if len(dataset.files) > MAX_FILES:
                    return f"the window has {len(dataset.files)} files there, and up to {MAX_FILES} are searched"
                if dataset.files:
                    rows = _rows(uniform(dataset), at, record, compacted=compacted)
                    all_rows += [replace(row, fields=by_today(was, dict(row.fields))) for row in rows]
            except pa.ArrowException as problem:
                raise LedgerContradiction(f"{place} cannot be read: {problem}") from problem
        if len(all_rows) >= MAX_ROWS:
            break
    return all_rows


def _rows(dataset: ds.Dataset, at: Coordinate, record: Record, *, compacted: bool) -> list[StoredRow]:
    wanted = is_within(OffsetRange(at.partition, at.offset, at.offset + 1))
    if compacted:
        wanted &= pc.field(GENERATION) == record.attempt.generation
    rows = with_texts(_scanner(dataset, wanted).head(MAX_ROWS)).sort_by("_index").to_pylist()
    return [_stored(row, at, record) for row in rows]


def _scanner(dataset: ds.Dataset, wanted: pc.Expression) -> ds.Scanner:
    """One file and one batch after the other: a file may be larger than the memory."""
    return dataset.scanner(
        filter=wanted, batch_size=_BATCH_ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False
    )


def rows_within(
    parts: Iterable[FolderPart], authority: Authority, within: OffsetRange, was: Names | None = None
) -> Iterator[dict[str, Any]]:
    """The rows that count at some offsets, ready for JSON: folder by folder, some at a time.

    `was`: the older names of fields; None: those that are noted in the folder. Raises LedgerContradiction when a folder is gone
    or damaged, and Unreachable.
    """
    counts, names = Counts(authority), lru_cache(names_of)
    counting = {segment.generation for segment in authority.within(within)}
    for part in parts:
        if not part.holds or counting.isdisjoint(window.generation for window in part.windows):
            continue
        for place in part.paths:
            with folders.opened(place) as (filesystem, path):
                check_not_gone(part, place, filesystem, path)
                for table in tables_within(place, filesystem, path, within):
                    if part.compacted:
                        generations = table.column(GENERATION).to_numpy()
                    else:
                        generations = np.full(table.num_rows, part.windows[0].generation)
                    kept = table.filter(pa.array(counts.of(table, generations)))
                    older = names(part.base) if was is None else was
                    yield from (of_file(by_today(older, row)) for row in with_texts(kept).to_pylist())


def tables_within(place: str, filesystem: fs.FileSystem, path: str, within: OffsetRange) -> Iterator[pa.Table]:
    """The rows of a file, or of the files of a folder, at some offsets, some rows at a time. `place`: what errors call it."""
    try:
        dataset = dataset_at(filesystem, path)
        if dataset.files:
            for batch in _scanner(uniform(dataset), is_within(within)).to_batches():
                if batch.num_rows:
                    yield pa.Table.from_batches([batch])
    except pa.ArrowException as problem:
        raise LedgerContradiction(f"{place} cannot be read: {problem}") from problem


def _stored(row: dict[str, Any], at: Coordinate, record: Record) -> StoredRow:
    mark = Mark(record.attempt.generation, unsigned(row["_digest"]), record.lane, record.seq, bool(row["_tombstone"]))
    fields = {
        name: row[name] if isinstance(row[name], bytes) else text.encode()
        for name, text in of_file(row)["fields"].items()
    }
    return StoredRow(Place(at.partition, at.offset, row["_index"]), mark, fields)
