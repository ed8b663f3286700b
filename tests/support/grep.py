"""Which files below a folder hold a value, as a stranger finds it: in their bytes, and in what is packed within them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq


def holding(folder: Path, value: str | int) -> set[str]:
    """The names below the folder. A number is looked for in files that say of which type a value is."""
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file() and _holds(one, value)}


def _holds(path: Path, value: str | int) -> bool:
    contents = path.read_bytes()
    if isinstance(value, str) and value.encode() in contents:
        return True
    if path.suffix == ".gz":
        return isinstance(value, str) and value.encode() in gzip.decompress(contents)
    wanted = value.encode() if isinstance(value, str) else struct.pack("<q", value)
    found = _packed(path)
    return any(wanted in one if isinstance(value, str) else one == wanted for one in found)


def _packed(path: Path) -> Iterator[bytes]:
    if path.suffix == ".avro":
        with path.open("rb") as file:
            for record in fastavro.reader(file):
                yield from _within(record)
    if path.suffix == ".parquet":
        parquet = pq.ParquetFile(path)
        for group in range(parquet.metadata.num_row_groups):
            for column in range(parquet.metadata.num_columns):
                statistics = parquet.metadata.row_group(group).column(column).statistics
                if statistics is not None and statistics.has_min_max:
                    yield from _within([statistics.min, statistics.max])
        for batch in parquet.iter_batches():
            yield from _within(batch.to_pylist())


def _within(value: Any) -> Iterator[bytes]:
    match value:
        case dict():
            for key, one in value.items():
                yield from _within(key)
                yield from _within(one)
        case list() | tuple():
            for one in value:
                yield from _within(one)
        case bytes():
            yield value
        case str():
            yield value.encode()
        case bool():
            return
        case int() if -(1 << 63) <= value < 1 << 63:
            yield struct.pack("<q", value)
