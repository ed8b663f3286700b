"""Printing: tables for people, JSON for programs. Texts from Kafka or from people never become terminal codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.offsets.times import in_utc
from tidemark.views.values import as_plain


def data(value: Any, *, as_json: bool, rows: Iterable[Sequence[object]] = (), columns: Sequence[str] = ()) -> None:
    """Print `value` as JSON, or `rows` as a table."""
    if as_json:
        sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=True, default=as_plain) + "\n")
        return
    table(rows, columns, sys.stdout)


def table(rows: Iterable[Sequence[object]], columns: Sequence[str], stream: TextIO) -> None:
    """Print a table: on standard output if it is what was asked for, else on standard error."""
    shown = [list(row) for row in rows]
    lines = Table(box=None, pad_edge=False, header_style="bold")
    for at, column in enumerate(columns):
        lines.add_column(column, justify="right" if _are_numbers(row[at] for row in shown) else "left")
    for row in shown:
        lines.add_row(*(Text(plain(cell)) for cell in row))
    # A pipe has no width: nothing is cut or wrapped there.
    terminal = stream.isatty()
    Console(file=stream, width=None if terminal else 10_000, soft_wrap=not terminal).print(lines)


def _are_numbers(cells: Iterable[object]) -> bool:
    """Whether a column has numbers, and else nothing but empty cells."""
    filled = [cell for cell in cells if cell is not None and cell != ""]
    return bool(filled) and all(isinstance(cell, int) and not isinstance(cell, bool) for cell in filled)


def line(text: str) -> None:
    sys.stdout.write(plain(text) + "\n")


def contents(text: str) -> None:
    """Write a file to standard output as it is; to a terminal, with its control characters shown."""
    if sys.stdout.isatty():
        text = "\n".join(plain(one.removesuffix("\r")) for one in text.split("\n"))
    sys.stdout.write(text)


def error(text: str) -> None:
    """Print lines to standard error."""
    for line in text.splitlines():
        sys.stderr.write(plain(line) + "\n")


def moment(at: int | None) -> str | None:
    """A time in milliseconds since 1970 as people read it."""
    return None if at is None else in_utc(at)


def plain(value: object) -> str:
    """Text whose control characters are shown and not obeyed."""
    if value is None:
        return "-"
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in str(value))
