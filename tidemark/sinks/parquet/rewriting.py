"""Copies of files without some of their rows: for tables whose files never change, and folders of dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.errors import TidemarkError
from tidemark.sinks.parquet import folders

log = logging.getLogger(__name__)

# How many rows of a file are in memory at a time.
AT_A_TIME = 20_000
# What Parquet calls files that are not compressed, and Arrow.
_PLAIN = {"UNCOMPRESSED": "none"}

_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}

# Whether each row of a batch goes.
Dropped = Callable[[pa.RecordBatch], np.ndarray]


def without_views(kind: pa.DataType) -> pa.DataType:
    """A type without views, which files have that delta-rs has rewritten; Arrow hardly supports them yet."""
    if pa.types.is_map(kind):
        return pa.map_(without_views(kind.key_type), without_views(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(without_views(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(without_views(one.type)) for one in kind])
    return _VIEWS.get(kind, kind)


def batches(filesystem: fs.FileSystem, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a file, some at a time, without Arrow's views."""
    with filesystem.open_input_file(path) as file, pq.ParquetFile(file) as parquet:
        yield from _batches(parquet, columns)


def _batches(parquet: pq.ParquetFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    for batch in parquet.iter_batches(AT_A_TIME, columns=columns):
        plain = pa.schema([one.with_type(without_views(one.type)) for one in batch.schema])
        yield batch if plain == batch.schema else batch.cast(plain)


def copied_without(
    original: str,
    columns: Sequence[str],
    dropped: Dropped,
    name: Callable[[], str],
    create: Callable[[str], AbstractContextManager[Any]],
    today: Callable[[str], str] = lambda column: column,
) -> str | None:
    """Copy a file without some of its rows, by these columns of them. Returns the copy's name.

    It is empty where no row is left, and None where all rows stay. `name` gives the name of a copy, `create` opens it for
    writing, and `today` gives a column's name there.
    """
    with (
        folders.opened(original) as (filesystem, path),
        filesystem.open_input_file(path) as file,
        pq.ParquetFile(file) as parquet,
    ):
        gone = np.concatenate([np.zeros(0, dtype=bool), *map(dropped, _batches(parquet, columns))])
        if not gone.any():
            return None
        if gone.all():
            return ""
        schema = pa.schema([pa.field(today(one.name), without_views(one.type)) for one in parquet.schema_arrow])
        copy, at = name(), 0
        with create(copy) as out, pq.ParquetWriter(out, schema, compression=compression(parquet.metadata)) as writer:
            for batch in _batches(parquet):
                kept = ~gone[at : at + batch.num_rows]
                at += batch.num_rows
                if kept.any():
                    columns_kept = batch.filter(pa.array(kept)).columns
                    writer.write_batch(pa.RecordBatch.from_arrays(columns_kept, schema=schema))
    return copy


def without_what_is_lost(
    name: str, copied: Callable[[], str | None], *, is_newest: Callable[[], bool], may_count: Callable[[], bool]
) -> str | None:
    """What `copied` gives, as `copied_without`, of a file that a table names. A file that is gone stops nothing.

    Its rows are lost: they are missing until a replay writes them again. It goes out of the table, so that all others can be
    read, once nothing counts that it may have had (`may_count`). Until then it stays: no reader is to take the table for
    whole. `is_newest`: no newer version may have others in its place. Raises what `copied` does if one may.
    """
    try:
        return copied()
    except (OSError, TidemarkError):
        if _is_there(name) or not is_newest():
            raise
    stays = may_count()
    log.warning("%s is gone, with its rows; %s", name, "a replay writes them again" if stays else "none of them counts")
    return None if stays else ""


def _is_there(name: str) -> bool:
    with folders.opened(name) as (filesystem, path):
        return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def compression(footer: pq.FileMetaData) -> str:
    """How a file is compressed, as Arrow names it."""
    codec = str(footer.row_group(0).column(0).compression)
    return _PLAIN.get(codec, codec.lower())
