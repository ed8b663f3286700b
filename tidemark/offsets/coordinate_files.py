"""Coordinates from files: lines, or a table with the columns topic, partition and offset."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import columns_of, in_parts, rows_of_csv
from tidemark.offsets.parquet_folders import files_in


def lines_of(path: Path) -> str:
    """A file's coordinates, as a text. The text of a file is given unchanged, that of Parquet has one a line.

    Raises WrongUse for a file that cannot be read, and for a table without the columns.
    """
    try:
        if path.is_dir() or path.suffix == ".parquet":
            return _of_parquet(path)
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise WrongUse(f"{path}: cannot be read: {why}") from problem
    return _with_header(path, text) if path.suffix == ".csv" else text


def _with_header(path: Path, text: str) -> str:
    """A CSV file as it is, so that errors name its own lines. Raises WrongUse for a header without the columns."""
    try:
        header: list[str] = next((row for row in rows_of_csv(io.StringIO(text, newline="")) if row), [])
    except csv.Error as problem:
        raise WrongUse(f"{path}: not CSV: {problem}") from problem
    # No header: lines like those of other files.
    if not any("/" in cell or cell.strip().isdecimal() for cell in header):
        columns_of(str(path), [cell.strip() for cell in header])
    return text


def _of_parquet(path: Path) -> str:
    # The import takes a third of a second, so only this function pays for it.
    import pyarrow.dataset
    from pyarrow import ArrowException

    try:
        files = pyarrow.dataset.dataset(
            [str(file) for file in files_in(path)] if path.is_dir() else path, format="parquet"
        )
        table = files.to_table(columns=list(columns_of(str(path), files.schema.names)))
    except ArrowException as problem:
        raise WrongUse(f"{path}: not Parquet: {problem}") from problem
    return "\n".join(map(in_parts, zip(*(column.to_pylist() for column in table.columns), strict=True)))
