"""Coordinates out of files: lines, or a table that has the columns topic, partition and offset among others."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tidemark.errors import WrongUse

# As people and the scheme `message_metadata` call them, or as Tidemark's own files do.
_NAMES = (("topic", "partition", "offset"), ("_topic", "_partition", "_offset"))


def lines_of(path: Path) -> str:
    """A file's coordinates, a line each; of a file that is no table, its text as it is. Raises WrongUse.

    Tables are CSV files whose first line names the columns, and Parquet files or folders with such.
    """
    try:
        if path.is_dir() or path.suffix == ".parquet":
            return _of_parquet(path)
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise WrongUse(f"{path}: cannot be read: {problem}") from problem
    return _of_csv(path, text) if path.suffix == ".csv" else text


def _of_csv(path: Path, text: str) -> str:
    rows = csv.reader(text.splitlines())
    header = next(rows, [])
    if any("/" in cell or cell.strip().isdecimal() for cell in header):
        # No header: lines like those of other files.
        return text
    places = [header.index(name) for name in _columns(path, header)]
    short = next((number for number, row in enumerate(rows, 2) if row and len(row) <= max(places)), None)
    if short is not None:
        raise WrongUse(f"{path}:{short}: the line has fewer columns than the first one, which names them")
    return _lines([row[place] for place in places] for row in csv.reader(text.splitlines()[1:]) if row)


def _of_parquet(path: Path) -> str:
    # A third of a second, for those who need it.
    import pyarrow.dataset
    from pyarrow import ArrowException

    try:
        files = pyarrow.dataset.dataset(path, format="parquet")
        table = files.to_table(columns=list(_columns(path, files.schema.names)))
    except ArrowException as problem:
        raise WrongUse(f"{path}: not Parquet: {problem}") from problem
    return _lines(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _columns(path: Path, there: Sequence[str]) -> tuple[str, ...]:
    found = next((names for names in _NAMES if set(names) <= set(there)), None)
    if found is None:
        raise WrongUse(f"{path}: expected the columns topic, partition and offset; it has {', '.join(there) or 'none'}")
    return found


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    return "\n".join(",".join(str(one).strip() for one in row) for row in rows)
