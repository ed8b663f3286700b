"""Data files of an Iceberg table, made by hand: those that Spark has written, and copies of them without some rows.

Parquet files have no field ids here. The table's name mapping says which column is which, also after a new name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
from tidemark.sinks.iceberg.catalog import LakeIO
from tidemark.sinks.iceberg.partitions import partition_of
from tidemark.sinks.iceberg.schema import GENERATION, names_today, older_names
from tidemark.sinks.parquet import folders, rewriting
from tidemark.sinks.parquet.files import COORDINATE, are_in


def in_folder(folder: str) -> list[str]:
    """The files that an attempt has written, by the names that receipts give them."""
    with folders.opened(folder) as (filesystem, path):
        listed = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        return sorted(f"{folder}{entry.path.removeprefix(path)}" for entry in listed if folders.is_read(entry))


def described(metadata: TableMetadata, name: str, partition: Record | None = None) -> DataFile | None:
    """A file as a manifest has it, with bounds of its columns; None for one without rows.

    `partition`: where that is known; else the file is asked.
    """
    with folders.opened(name) as (filesystem, path):
        size = filesystem.get_file_info(path).size
        with filesystem.open_input_file(path) as file:
            footer = pq.read_metadata(file)
    if not footer.num_rows:
        return None
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=name,
        file_format=FileFormat.PARQUET,
        partition=partition_of(metadata, name) if partition is None else partition,
        file_size_in_bytes=size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **_statistics(metadata, footer),
    )


def _statistics(metadata: TableMetadata, footer: pq.FileMetaData) -> Mapping[str, Any]:
    """The bounds of a file's columns in a manifest. Readers open each file without bounds of the column they look for.

    A column has none where the library cannot write them: it knows no day or time that Python has none of, no text that ends
    in the middle of what is UTF-8, and no number that was stored before its column got more digits than 18.
    """
    ids = _ids(metadata)

    def of(plan: dict[int, StatisticsCollector]) -> Mapping[str, Any] | None:
        try:
            return data_file_statistics_from_parquet_metadata(footer, plan, ids).to_serialized_dict()
        except Exception:
            return None

    wanted = compute_statistics_plan(metadata.schema(), metadata.properties)
    if (value := of(wanted)) is not None:
        return value
    counted = {field: replace(one, mode=MetricsMode(MetricModeTypes.COUNTS)) for field, one in wanted.items()}
    fit = {field: one for field, one in wanted.items() if of({**counted, field: one}) is not None}
    return data_file_statistics_from_parquet_metadata(footer, {**counted, **fit}, ids).to_serialized_dict()


def _ids(metadata: TableMetadata) -> dict[str, int]:
    """The field of each path in a file, which may have the names of before."""
    ids = parquet_path_to_id_mapping(metadata.schema())
    for name, before in older_names(metadata).items():
        inner = {path: field for path, field in ids.items() if path == name or path.startswith(f"{name}.")}
        ids |= {old + path.removeprefix(name): field for old in before for path, field in inner.items()}
    return ids


def without(base: str, metadata: TableMetadata, original: str, wanted: RangeSet, below: int) -> str | None:
    """Copy a file without its rows of lower generations at some offsets. Returns the copy's name.

    It is empty where no row is left, and None where the file has no such row.
    """
    today = names_today(metadata)
    return rewriting.copied_without(
        original,
        [*COORDINATE, GENERATION],
        lambda batch: taken_out(batch, wanted, below),
        lambda: f"{base}/data/rewritten/{uuid4()}.parquet",
        lambda name: LakeIO().new_output(name).create(),
        lambda column: today.get(column, column),
    )


def hold(name: str, wanted: RangeSet, below: int = MAX_OFFSET) -> bool:
    """Whether a file has rows of lower generations at some offsets. One that is gone has none."""
    return bool(hold_if_there(name, wanted, below))


def hold_if_there(name: str, wanted: RangeSet, below: int = MAX_OFFSET) -> bool | None:
    """As `hold`; None of a file that is gone."""
    with folders.opened(name) as (filesystem, path):
        if filesystem.get_file_info(path).type == fs.FileType.NotFound:
            return None
        batches = rewriting.batches(filesystem, path, [*COORDINATE, GENERATION])
        return any(taken_out(batch, wanted, below).any() for batch in batches)


def generations(name: str) -> set[int]:
    """The generations whose rows a file has."""
    with folders.opened(name) as (filesystem, path):
        batches = rewriting.batches(filesystem, path, [GENERATION])
        return {int(one) for batch in batches for one in np.unique(batch.column(GENERATION).to_numpy())}


def rows_beside(name: str, known: Collection[int]) -> int:
    """How many rows of a file have another generation than some, or none."""
    wanted, found = pa.array(sorted(known), pa.int64()), 0
    with folders.opened(name) as (filesystem, path):
        for batch in rewriting.batches(filesystem, path, [GENERATION]):
            ours = GENERATION in batch.schema.names
            mine = pc.sum(pc.is_in(batch.column(GENERATION), wanted)).as_py() if ours and len(batch) else 0
            found += len(batch) - (mine or 0)
    return found


def batches_of(metadata: TableMetadata, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with the names that its columns have today."""
    today = names_today(metadata)
    with folders.opened(name) as (filesystem, path):
        for batch in rewriting.batches(filesystem, path):
            yield batch.rename_columns([today.get(column, column) for column in batch.schema.names])


def compression_of(name: str) -> str:
    """How a file is compressed, as Arrow names it."""
    with folders.opened(name) as (filesystem, path), filesystem.open_input_file(path) as file:
        return rewriting.compression(pq.read_metadata(file))


def taken_out(batch: pa.RecordBatch, wanted: RangeSet, below: int) -> np.ndarray:
    """Whether each row is at one of the offsets, and of a lower generation."""
    gone = are_in(batch, wanted)
    gone &= batch.column(GENERATION).to_numpy(zero_copy_only=False) < below
    return gone
