"""Printing: tables for people, JSON for programs. Texts from Kafka or from people never become terminal codes."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.offsets.times import in_utc

# What is wider than this is no name or range that anybody copies: it is folded.
_MAX_WHOLE = 300
# So wide a column with sentences stays, in characters.
_LEAST_TEXT = 20
# Between two columns.
_GAP = 2


def data(value: Any, *, as_json: bool, rows: Iterable[Sequence[object]] = (), columns: Sequence[str] = ()) -> None:
    """Print `value` as JSON, or `rows` as a table."""
    if as_json:
        # It needs pydantic, which takes as long to import as the rest of a command that only prints its help.
        from tidemark.views.values import as_plain

        sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=True, default=as_plain) + "\n")
        return
    table(rows, columns, sys.stdout)


def table(rows: Iterable[Sequence[object]], columns: Sequence[str], stream: TextIO) -> None:
    """Print a table: on standard output if it is what was asked for, else on standard error.

    At a terminal, sentences wrap at words. A cell that is one word, as offsets and names are, is never cut or divided: where
    the terminal is too narrow for it, the line is longer.
    """
    shown = [list(row) for row in rows]
    terminal = stream.isatty()
    lines = Table(box=None, pad_edge=False, header_style="bold")
    needed = 0
    for at, column in enumerate(columns):
        cells = [plain(row[at]) for row in shown]
        widest = max(map(cell_len, cells), default=0)
        # A pipe has no width: there a name of several words stays in its line.
        name = column.replace(" ", "\n") if terminal and cell_len(column) > widest else column
        widest = max(widest, *map(cell_len, name.split("\n")))
        whole = widest <= _MAX_WHOLE and not any(" " in cell for cell in cells)
        needed += _GAP + (widest if whole else min(widest, _LEAST_TEXT))
        justify: Literal["left", "right"] = "right" if _are_numbers(row[at] for row in shown) else "left"
        lines.add_column(name, justify=justify, no_wrap=whole, overflow="fold")
    for row in shown:
        lines.add_row(*(Text(plain(cell)) for cell in row))
    width = max(Console(file=stream).width, needed) if terminal else 10_000
    # With a height too: a terminal that says that it is dumb has 80 columns for rich otherwise.
    Console(file=stream, width=width, height=100).print(lines, soft_wrap=True)


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
    """Print lines to standard error. At a terminal, they wrap at words, and no word is divided."""
    for line in map(plain, text.splitlines()):
        wrapped = [line]
        if sys.stderr.isatty():
            width = Console(file=sys.stderr).width
            wrapped = textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
        sys.stderr.writelines(f"{one}\n" for one in wrapped)


def moment(at: int | None) -> str | None:
    """A time in milliseconds since 1970 as people read it."""
    return None if at is None else in_utc(at)


def plain(value: object) -> str:
    """Text whose control characters are shown and not obeyed."""
    if value is None:
        return "-"
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in str(value))
