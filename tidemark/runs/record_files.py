"""Records out of a file of any size: CSV, JSON lines or Parquet, by its suffix, with the columns topic, partition, offset.

A form names such a file. So it has to lie below the one folder that whoever runs Tidemark has set for this.
"""

from __future__ import annotations

import csv
import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tidemark.errors import WrongUse
from tidemark.offsets.parquet_folders import files_in
from tidemark.offsets.ranges import MAX_OFFSET, Interval, RangeSet, TopicPartition

# The environment variable that names the folder: of this machine, or a URI of a lake.
FOLDER = "TIDEMARK_SELECTIONS"
_LOCAL = "file://"

# The first names are those of people and of the scheme `message_metadata`, the second those of Tidemark's own files.
_COLUMNS = (("topic", "partition", "offset"), ("_topic", "_partition", "_offset"))
# Kafka's own rule (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_MAX_PARTITION = 2**31 - 1
_MOST_SHOWN = 100

# Where each row stands, as `FILE:LINE`, and its topic, partition and offset.
Rows = Iterator[tuple[str, Sequence[Any]]]


def records_in(name: str) -> RangeSet:
    """The records in a file, or in a folder of Parquet files or a Delta table, below the folder that TIDEMARK_SELECTIONS names.

    Nobody writes incarnations into files, so all of them are the first. Raises WrongUse naming the file, and the line of
    what is wrong in it; Unreachable for a lake that does not answer.
    """
    folder = os.environ.get(FOLDER, "")
    if not folder:
        raise WrongUse(
            f"records_file {name}: no folder is set for such files. Set {FOLDER} where Tidemark runs, and put the file there"
        )
    if "://" not in folder or folder.startswith(_LOCAL):
        return records_of(name, _rows(_allowed(Path(folder.removeprefix(_LOCAL)), name)))
    with TemporaryDirectory() as temporary:
        # Without symbolic links, which are refused.
        local = Path(temporary).resolve()
        copy = _copied(folder, name, local)
        try:
            return records_of(name, _rows(copy))
        except WrongUse as problem:
            raise WrongUse(str(problem).replace(str(local), folder.rstrip("/"))) from problem


def _copied(folder: str, name: str, local: Path) -> Path:
    """A copy of a file or folder below a folder of a lake, such as `s3a://lake/selections`.

    Raises WrongUse where there is none, Unreachable where Arrow cannot read it.
    """
    path = posixpath.normpath(name)
    if path.startswith(("/", "../")) or path in (".", ".."):
        raise _outside(name)
    # The import takes a third of a second, so only this function pays for it.
    from pyarrow import fs

    from tidemark.sinks.parquet import folders

    with folders.opened(f"{folder.rstrip('/')}/{path}") as (filesystem, there):
        if filesystem.get_file_info(there).type not in (fs.FileType.File, fs.FileType.Directory):
            raise _missing(name)
        here = local / path
        here.parent.mkdir(parents=True, exist_ok=True)
        fs.copy_files(there, str(here), source_filesystem=filesystem, destination_filesystem=fs.LocalFileSystem())
        return here


def records_of(name: str, rows: Rows, columns: Sequence[str] = ("", "", "")) -> RangeSet:
    """The records in some rows. `columns`: what an error says after the place, for topic, partition and offset."""
    records: dict[TopicPartition, list[Interval]] = {}
    of_topic, of_partition, of_offset = columns
    for place, (topic, partition, offset) in rows:
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
            raise _wrong(f"{place}{of_topic}", "the name of a topic", topic)
        number, at = _number(partition), _number(offset)
        if number is None or number > _MAX_PARTITION:
            raise _wrong(f"{place}{of_partition}", "a partition from 0 to 2^31-1", partition)
        if at is None or at >= MAX_OFFSET:
            raise _wrong(f"{place}{of_offset}", "an offset from 0 to 2^63-2", offset)
        records.setdefault(TopicPartition(topic, number), []).append((at, at + 1))
    if not records:
        raise WrongUse(f"records_file {name}: it has no records")
    return RangeSet.of_intervals(records.items())


def _allowed(folder: Path, name: str) -> Path:
    """Where the file is. Raises WrongUse unless it is below the folder, without a symbolic link on the way."""
    root = folder.resolve()
    path = Path(os.path.normpath(root / name))
    if root not in path.parents:
        raise _outside(name)
    try:
        if path.resolve() != path:
            raise WrongUse(f"records_file {name}: a symbolic link is on the way to the file. Name the file itself")
        if not path.is_file() and not path.is_dir():
            raise _missing(name)
    except (OSError, ValueError) as problem:
        raise WrongUse(f"records_file {name}: cannot be read: {problem}") from problem
    return path


def _outside(name: str) -> WrongUse:
    return WrongUse(f"records_file {name}: expected a file below the folder of {FOLDER}")


def _missing(name: str) -> WrongUse:
    return WrongUse(f"records_file {name}: there is no such file below the folder of {FOLDER}")


def _rows(path: Path) -> Rows:
    readers = {".csv": _of_csv, ".jsonl": _of_json_lines, ".ndjson": _of_json_lines, ".parquet": _of_parquet}
    reader = _of_parquet_folder if path.is_dir() else readers.get(path.suffix)
    if reader is None:
        raise WrongUse(f"{path}: expected a file that ends in {', '.join(readers)}, or a folder of Parquet files")
    try:
        yield from reader(path)
    except (OSError, UnicodeDecodeError) as problem:
        raise WrongUse(f"{path}: cannot be read: {problem}") from problem


def _of_csv(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        try:
            header = [cell.strip() for cell in next(rows, [])]
            places = [header.index(name) for name in _columns(f"{path}:1", header)]
            for row in rows:
                if len(row) > max(places):
                    yield f"{path}:{rows.line_num}", [row[place].strip() for place in places]
                elif row:
                    raise WrongUse(
                        f"{path}:{rows.line_num}: the line has fewer columns than the first one, which names them"
                    )
        except csv.Error as problem:
            raise WrongUse(f"{path}:{rows.line_num}: not CSV: {problem}") from problem


def _of_json_lines(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as problem:
                raise WrongUse(f"{place}: not JSON: {problem}") from problem
            if not isinstance(found, dict):
                raise WrongUse(
                    f'{place}: expected {{"topic": ..., "partition": ..., "offset": ...}}, found {_shown(found)}'
                )
            yield place, [found[name] for name in _columns(place, list(found))]


def _of_parquet_folder(path: Path) -> Rows:
    for file in files_in(path):
        if file.resolve() != file:
            raise WrongUse(f"{file}: is a symbolic link, or below one. Name the folder itself")
        yield from _of_parquet(file)


def _of_parquet(path: Path) -> Rows:
    # The import takes a third of a second, so only this function pays for it.
    import pyarrow.parquet
    from pyarrow import ArrowException

    before = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = _columns(str(path), file.schema_arrow.names)
            for batch in file.iter_batches(columns=list(names)):
                columns = [batch.column(name).to_pylist() for name in names]
                for number, row in enumerate(zip(*columns, strict=True), start=before + 1):
                    yield f"{path}: row {number}", row
                before += batch.num_rows
    except ArrowException as problem:
        raise WrongUse(f"{path}: not Parquet: {problem}") from problem


def _columns(place: str, there: Sequence[str]) -> tuple[str, str, str]:
    found = next((names for names in _COLUMNS if set(names) <= set(there)), None)
    if found is None:
        raise WrongUse(
            f"{place}: expected the columns topic, partition and offset; it has {', '.join(there) or 'none'}"
        )
    return found


def _wrong(place: str, expected: str, found: object) -> WrongUse:
    return WrongUse(f"{place}: expected {expected}, found {_shown(found)}")


def _number(value: object) -> int | None:
    """A whole number as such or in ASCII digits; None for anything else."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) <= 19 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _shown(value: object) -> str:
    said = repr(value)
    return said[:_MOST_SHOWN] + ("..." if len(said) > _MOST_SHOWN else "")
