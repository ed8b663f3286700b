"""Printing: tables for people, JSON for programs. Texts from Kafka or from people never become terminal codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

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
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    # A pipe has no width: nothing is cut or wrapped there.
    Console(width=None if sys.stdout.isatty() else 10_000, soft_wrap=not sys.stdout.isatty()).print(table)


def line(text: str) -> None:
    sys.stdout.write(plain(text) + "\n")


def error(text: str) -> None:
    """Print lines to standard error."""
    for one in text.splitlines():
        sys.stderr.write(plain(one) + "\n")


def moment(at: int | None) -> str | None:
    """A time in milliseconds since 1970 as people read it."""
    return None if at is None else in_utc(at)


def number(count: int, what: str) -> str:
    """A number of things: `1 window`, `2 windows`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def plain(value: object) -> str:
    """As text in which control characters are shown and not obeyed."""
    if value is None:
        return "-"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(value))
