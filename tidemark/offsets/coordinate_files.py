"""Coordinates from files: lines, or a table with the columns topic, partition and offset."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import columns


def lines_of(path: Path) -> str:
    """A file's coordinates, one per line. The text of a file that is no table is given unchanged. Raises WrongUse.

    Tables are Parquet files, folders of them, and CSV files whose first line names the columns.
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
    # The import takes a third of a second, so only this function pays for it.
    import pyarrow.dataset
    from pyarrow import ArrowException

    try:
        files = pyarrow.dataset.dataset(path, format="parquet")
        table = files.to_table(columns=list(_columns(path, files.schema.names)))
    except ArrowException as problem:
        raise WrongUse(f"{path}: not Parquet: {problem}") from problem
    return _lines(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _columns(path: Path, there: Sequence[str]) -> tuple[str, ...]:
    found = columns(there)
    if found is None:
        raise WrongUse(f"{path}: expected the columns topic, partition and offset; it has {', '.join(there) or 'none'}")
    return found


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    return "\n".join(",".join(str(one).strip() for one in row) for row in rows)
