"""Folders of Parquet results: one for each window and attempt, found by what the ledger's receipts name.

    BASE/_tidemark_owner.json
    BASE/lane=LANE/seq=NUMBER/generation=GENERATION/[by_FIELD=.../...]part-*.parquet

A folder is made by one attempt and never written again. Columns that begin with an underscore are Tidemark's. The files have
all columns, so that nothing is read from the names of folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from tidemark.authority import Authority
from tidemark.errors import LedgerContradiction
from tidemark.ledger.book import Committed
from tidemark.ledger.records import Record
from tidemark.ranges import TopicPartition
from tidemark.results.owners import check_owner

TYPE = "parquet"
COORDINATE_COLUMNS = ("_topic", "_incarnation", "_partition", "_offset", "_index")
_OWNER_FILE = "_tidemark_owner.json"
# Spark's times have microseconds; as nanoseconds those before 1678 and behind 2262 would become other times.
_FORMAT = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


def window_folder(base: str, lane: str, seq: int) -> str:
    return f"{base}/lane={lane}/seq={seq:09d}"


def attempt_folder(base: str, lane: str, seq: int, generation: int) -> str:
    return f"{window_folder(base, lane, seq)}/generation={generation}"


def exists(folder: str) -> bool:
    filesystem, path = fs.FileSystem.from_uri(folder)
    return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def own(base: str, stream: str, ledger: str) -> None:
    """Mark a base folder as this stream's. Raises what `check_owner` raises."""
    filesystem, path = fs.FileSystem.from_uri(base)
    mark = f"{path}/{_OWNER_FILE}"
    mine = {"stream": stream, "ledger": ledger}
    if filesystem.get_file_info(mark).type == fs.FileType.NotFound:
        filesystem.create_dir(path, recursive=True)
        with filesystem.open_output_stream(mark) as out:
            out.write(json.dumps(mine).encode())
    with filesystem.open_input_stream(mark) as stored:
        owner = json.loads(stored.read())
    check_owner(base, owner, stream, ledger)


def sweep(base: str, record: Record) -> None:
    """Remove the folders that older attempts at the same window left."""
    filesystem, path = fs.FileSystem.from_uri(window_folder(base, record.lane, record.seq))
    for found in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        name, _, number = found.base_name.partition("=")
        if name == "generation" and number.isdecimal() and int(number) < record.attempt.generation:
            filesystem.delete_dir(found.path)


def tables_that_count(windows: Iterable[Committed], authority: Authority, sink: str) -> Iterator[pa.Table]:
    """The rows that count, a table for each committed window that still has any, in the order of the windows.

    A window's folder minus the rows that a later window covers; `sink` is the sink's name in the stream file.
    Raises LedgerContradiction when a folder that a receipt names is missing.
    """
    for window in sorted(windows, key=lambda one: (one.record.lane, one.record.seq)):
        place = next((one.place for one in window.record.places if one.name == sink and one.type == TYPE), None)
        if place is None or not any(tally.rows.number for tally in window.record.tallies):
            continue
        filesystem, path = fs.FileSystem.from_uri(place["folder"])
        if filesystem.get_file_info(path).type == fs.FileType.NotFound:
            raise LedgerContradiction(
                f"{place['folder']} is gone, and window {window.record.lane}/{window.record.seq} has its results there. "
                "Replay the window's offsets to write them again."
            )
        table = ds.dataset(path, filesystem=filesystem, format=_FORMAT).to_table()
        kept = table.filter(pa.array(_counting(table, authority, window.generation)))
        if kept.num_rows:
            yield kept


def _counting(table: pa.Table, authority: Authority, generation: int) -> np.ndarray:
    """Whether each row's coordinate has this generation as its authority."""
    counting = np.zeros(table.num_rows, dtype=bool)
    offsets = table.column("_offset").to_numpy()
    incarnations = table.column("_incarnation").to_numpy()
    partitions = table.column("_partition").to_numpy()
    topics = table.column("_topic").to_numpy()
    for at in authority.partitions:
        here = (partitions == at.partition) & (incarnations == at.incarnation) & (topics == at.topic)
        if not here.any():
            continue
        counting |= here & _inside(offsets, authority, at, generation)
    return counting


def _inside(offsets: np.ndarray, authority: Authority, at: TopicPartition, generation: int) -> np.ndarray:
    segments = [one for one in authority.segments(at) if one.generation == generation]
    if not segments:
        return np.zeros(len(offsets), dtype=bool)
    starts = np.array([one.start for one in segments])
    untils = np.array([one.until for one in segments])
    found = np.searchsorted(starts, offsets, side="right") - 1
    inside: np.ndarray = (found >= 0) & (offsets < untils[np.maximum(found, 0)])
    return inside
