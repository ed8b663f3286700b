"""The rows of one message in files of Parquet: those of one window, which are read as far as their statistics allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from tidemark.errors import LedgerContradiction
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.hashing import unsigned
from tidemark.sinks.column_texts import with_texts
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.files import FORMAT, GENERATION, alike
from tidemark.sinks.stored import Mark, Place, StoredRow
from tidemark.sinks.texts import of_file
from tidemark.types.renamed import NEVER, Names, by_today

# Of a window with more files, the coordinate alone does not say which has the message: each would have to be opened.
MOST_FILES = 1_000
# A message may have any number of rows, of any size.
MOST_ROWS = 20
# Rows that are in memory at once.
_BATCH_ROWS = 1_000


def rows_of_message(
    paths: Sequence[str], at: Coordinate, record: Record, *, compacted: bool, was: Names = NEVER
) -> list[StoredRow] | str:
    """The first rows of a message in the files or folders of its window; or, in a sentence, why they are not searched.

    Raises LedgerContradiction when one of them is gone or damaged, and OSError.
    """
    found: list[StoredRow] = []
    for place in paths:
        with folders.opened(place) as (filesystem, path):
            if filesystem.get_file_info(path).type == fs.FileType.NotFound:
                raise LedgerContradiction(
                    f"{place} is gone, and the window {record.lane}/{record.seq} has its results there"
                )
            try:
                dataset = ds.dataset(path, filesystem=filesystem, format=FORMAT)
                if len(dataset.files) > MOST_FILES:
                    return f"the window has {len(dataset.files)} files there, and up to {MOST_FILES} are searched"
                if dataset.files:
                    schema = alike(dataset)
                    plain = ds.dataset(dataset.files, schema=schema, filesystem=filesystem, format=FORMAT)
                    rows = _rows(plain, at, record, compacted=compacted)
                    found += [replace(row, fields=by_today(was, dict(row.fields))) for row in rows]
            except pa.ArrowException as problem:
                raise LedgerContradiction(f"{place} cannot be read: {problem}") from problem
        if len(found) >= MOST_ROWS:
            break
    return found


def _rows(dataset: ds.Dataset, at: Coordinate, record: Record, *, compacted: bool) -> list[StoredRow]:
    wanted = (
        (pc.field("_topic") == at.partition.topic)
        & (pc.field("_incarnation") == at.partition.incarnation)
        & (pc.field("_partition") == at.partition.partition)
        & (pc.field("_offset") == at.offset)
    )
    if compacted:
        wanted &= pc.field(GENERATION) == record.attempt.generation
    # One file and one batch after the other: a file may be larger than the memory.
    scanner = dataset.scanner(
        filter=wanted, batch_size=_BATCH_ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False
    )
    rows = with_texts(scanner.head(MOST_ROWS)).sort_by("_index").to_pylist()
    return [_stored(row, at, record) for row in rows]


def _stored(row: dict[str, Any], at: Coordinate, record: Record) -> StoredRow:
    mark = Mark(record.attempt.generation, unsigned(row["_digest"]), record.lane, record.seq, bool(row["_tombstone"]))
    fields = {
        name: row[name] if isinstance(row[name], bytes) else text.encode()
        for name, text in of_file(row)["fields"].items()
    }
    return StoredRow(Place(at.partition, at.offset, row["_index"]), mark, fields)
