"""Records in a file of any size: CSV, JSON lines or Parquet, by its suffix, with the columns topic, partition, offset.

A form names such a file, so it has to lie below the one folder that the operator of Tidemark has set for this.
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
from typing import TYPE_CHECKING, Any, TextIO

from tidemark.errors import RecordsGone, WrongUse
from tidemark.offsets.coordinates import NamedOffsets, columns_of, each_once, rows_of_csv
from tidemark.offsets.parquet_folders import files_in
from tidemark.offsets.ranges import FIRST_INCARNATION, MAX_OFFSET, Interval, RangeSet, TopicPartition

if TYPE_CHECKING:
    from pyarrow import DataType
    from pyarrow.parquet import ParquetFile

# The environment variable that names the folder: of this machine, or a URI of a lake.
FOLDER = "TIDEMARK_SELECTIONS"
_LOCAL = "file://"

# Kafka's own rule (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_MAX_PARTITION = 2**31 - 1
_MAX_INCARNATIONS = 999_999_999
_MAX_SHOWN = 100
# Enough for what an export has of a message of a megabyte.
_MAX_OF_A_LINE = 4_000_000
# Rows of a Parquet file that are held as Python's objects; the longest text that can be a name; and the largest column
# of a row group: 16 million offsets are 128 MB.
_ROWS_AT_ONCE = 65_536
_MAX_OF_A_TEXT = 1_000
_MAX_OF_A_COLUMN = 512 << 20
# What is copied from a lake to this machine's disk to be read.
_MAX_COPIED = 2 << 30

# Where each row stands, as `FILE:LINE`, and its topic, partition and offset; maybe its incarnation.
Rows = Iterator[tuple[str, Sequence[Any]]]


def records_in(name: str) -> NamedOffsets:
    """The records in a file, or in a folder of Parquet files or a Delta table, below the folder that TIDEMARK_SELECTIONS names.

    A column `incarnation` or `_incarnation` says which one is meant. Raises WrongUse naming the file, and the line of what is
    wrong in it; Unreachable for a lake that does not answer.
    """
    folder = os.environ.get(FOLDER, "")
    if not folder:
        raise RecordsGone(
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
        info = filesystem.get_file_info(there)
        if info.type not in (fs.FileType.File, fs.FileType.Directory):
            raise _missing(name)
        inside = [info] if info.is_file else filesystem.get_file_info(fs.FileSelector(there, recursive=True))
        size = sum(one.size or 0 for one in inside)
        if size > _MAX_COPIED:
            raise WrongUse(
                f"records_file {name}: has {size} bytes, and up to {_MAX_COPIED} are copied from a lake to be read. Write a "
                "file with the columns topic, partition and offset alone"
            )
        here = local / path
        here.parent.mkdir(parents=True, exist_ok=True)
        fs.copy_files(there, str(here), source_filesystem=filesystem, destination_filesystem=fs.LocalFileSystem())
        return here


def records_of(name: str, rows: Rows, columns: Sequence[str] = ("", "", "")) -> NamedOffsets:
    """The records in some rows. `columns`: what an error says after the place, for topic, partition and offset."""
    alone, exact = dict[TopicPartition, list[Interval]](), dict[TopicPartition, list[Interval]]()
    of_topic, of_partition, of_offset = columns
    for place, (topic, partition, offset, *numbered) in rows:
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
            raise _wrong(f"{place}{of_topic}", "the name of a topic", topic)
        number, at = _number(partition), _number(offset)
        if number is None or number > _MAX_PARTITION:
            raise _wrong(f"{place}{of_partition}", "a partition from 0 to 2^31-1", partition)
        if at is None or at >= MAX_OFFSET:
            raise _wrong(f"{place}{of_offset}", "an offset from 0 to 2^63-2", offset)
        incarnation = next((one for one in numbered if one not in (None, "")), None)
        of_it = _number(incarnation)
        if incarnation is not None and (of_it is None or not FIRST_INCARNATION <= of_it <= _MAX_INCARNATIONS):
            raise _wrong(place, "an incarnation of a topic, from 1 on, or none", incarnation)
        records = alone if of_it is None else exact
        records.setdefault(TopicPartition(topic, number, of_it or FIRST_INCARNATION), []).append((at, at + 1))
    if not alone and not exact:
        raise WrongUse(f"records_file {name}: it has no records")
    return NamedOffsets(RangeSet.of_intervals(alone.items()), RangeSet.of_intervals(exact.items()))


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


def _missing(name: str) -> RecordsGone:
    return RecordsGone(f"records_file {name}: there is no such file below the folder of {FOLDER}")


def _rows(path: Path) -> Rows:
    readers = {".csv": _of_csv, ".jsonl": _of_json_lines, ".ndjson": _of_json_lines, ".parquet": _of_parquet}
    reader = _of_parquet_folder if path.is_dir() else readers.get(path.suffix)
    if reader is None:
        raise WrongUse(f"{path}: expected a file that ends in {', '.join(readers)}, or a folder of Parquet files")
    try:
        yield from reader(path)
    except (OSError, UnicodeDecodeError, RecursionError) as problem:
        raise WrongUse(f"{path}: cannot be read: {problem}") from problem


def _of_csv(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = rows_of_csv(_lines(path, file))
        try:
            header = [cell.strip() for cell in next(rows, [])]
            places = [header.index(name) for name in columns_of(f"{path}:1", header)]
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
        for number, line in enumerate(_lines(path, file), start=1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                value = json.loads(line, object_pairs_hook=each_once)
            except (ValueError, RecursionError) as problem:
                raise WrongUse(f"{place}: not JSON: {problem}") from problem
            if not isinstance(value, dict):
                raise WrongUse(
                    f'{place}: expected {{"topic": ..., "partition": ..., "offset": ...}}, found {_shown(value)}'
                )
            yield place, [value[name] for name in columns_of(place, list(value))]


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a file, with a bound on their length."""
    number = 0
    while line := file.readline(_MAX_OF_A_LINE + 1):
        number += 1
        if len(line) > _MAX_OF_A_LINE:
            raise WrongUse(f"{path}:{number}: the line has more than {_MAX_OF_A_LINE} characters")
        yield line


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
            names = columns_of(str(path), file.schema_arrow.names)
            _check_types(path, names, file)
        # A text that stands in every row is held once, so that its length can be looked at before it is repeated.
        with pyarrow.parquet.ParquetFile(path, read_dictionary=list(names)) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(names)):
                columns = [batch.column(name) for name in names]
                for name, column in zip(names, columns, strict=True):
                    _check_texts(f"{path}: column {name}, after row {before}", column)
                for number, row in enumerate(
                    zip(*(column.to_pylist() for column in columns), strict=True), start=before + 1
                ):
                    yield f"{path}: row {number}", row
                before += batch.num_rows
    except ArrowException as problem:
        raise WrongUse(f"{path}: not Parquet: {problem}") from problem


def _check_types(path: Path, names: Sequence[str], file: ParquetFile) -> None:
    """Raise WrongUse for a column without texts or numbers, or one that is too large, before anything of it is read.

    Arrow returns the values of other types as objects that may not exist: a date of the year 12,000, for example.
    """
    from pyarrow import types

    for name in names:
        type_ = file.schema_arrow.field(name).type
        type_ = type_.value_type if types.is_dictionary(type_) else type_
        plain = _is_text(type_) or types.is_integer(type_)
        if not (plain or types.is_floating(type_) or types.is_boolean(type_) or types.is_null(type_)):
            raise WrongUse(f"{path}: the column {name} is of the type {type_}; expected texts for topics, numbers else")
    # By the footer, all together. A struct's columns are never read.
    wanted = [number for number, column in enumerate(file.schema) if column.path in names]
    for group in range(file.metadata.num_row_groups):
        # Of a damaged footer Arrow's readers raise an error; the description of a column ends the whole process.
        next(file.iter_batches(1, row_groups=[group], columns=list(names)), None)
        part = file.metadata.row_group(group)
        for column in map(part.column, wanted):
            if column.total_uncompressed_size > _MAX_OF_A_COLUMN:
                raise WrongUse(
                    f"{path}: the column {column.path_in_schema} has {column.total_uncompressed_size} bytes in one row "
                    f"group, and may have {_MAX_OF_A_COLUMN}. Write smaller row groups, of these columns alone"
                )


def _is_text(kind: DataType) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _check_texts(place: str, column: Any) -> None:
    """Raise WrongUse for texts that are longer than any name: a small file may repeat a large one."""
    import pyarrow.compute
    from pyarrow import types

    values = column.dictionary if types.is_dictionary(column.type) else column
    if _is_text(values.type):
        if types.is_string_view(values.type):
            longest = max((value.as_buffer().size for value in values if value.is_valid), default=0)
        else:
            longest = pyarrow.compute.max(pyarrow.compute.binary_length(values)).as_py() or 0
        if longest > _MAX_OF_A_TEXT:
            raise WrongUse(f"{place}: a text of {longest} bytes, which is no name of a topic and no number")


def _wrong(place: str, expected: str, value: object) -> WrongUse:
    return WrongUse(f"{place}: expected {expected}, found {_shown(value)}")


def _number(value: object) -> int | None:
    """A whole number as such or in ASCII digits; None for anything else."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) <= 19 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _shown(value: object) -> str:
    said = repr(value)
    return said[:_MAX_SHOWN] + ("..." if len(said) > _MAX_SHOWN else "")
