"""Lines of columns, with the same separator between them and the same number of columns in nearly all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tidemark.drafts.columns import Column, form_of, text_type, text_types
from tidemark.drafts.format import A_VALUE, Format, example, text_in

_SEPARATORS = {"\t": "tabs", "|": "|", ";": ";", ",": ","}
# Fewer lines of one width than this are text with some commas in it.
_ONE_WIDTH = 0.8


def delimited_format(texts: Sequence[str]) -> Format | None:
    """The scheme `delimited` for some lines; None where they have no separator in common."""
    cells = []
    for separator in _SEPARATORS:
        widths = Counter(len(row) for text in texts if (row := _row(text, separator)) is not None)
        width, number = widths.most_common(1)[0] if widths else (0, 0)
        if width > 1 and number >= _ONE_WIDTH * len(texts):
            cells.append((number, width, separator))
    if not cells:
        return None
    _, width, separator = max(cells)
    rows = [row for text in texts if (row := _row(text, separator)) is not None and len(row) == width]
    given = [[cell for row in rows if (cell := row[index]) is not None] for index in range(width)]
    form = form_of(given)
    tests = text_types(form)
    types = {f"column_{index + 1}": text_type(values, tests) for index, values in enumerate(given)}
    fields = {name: kind for name, (kind, _) in types.items()}
    scheme: dict[str, Any] = {"type": "delimited", "fields": fields, "separator": separator}
    if "timestamp" in fields.values():
        scheme["timestamp"] = form

    def refusal(value: bytes) -> str | None:
        text = text_in(value)
        row = None if text is None else _row(text, separator)
        if row is None or len(row) != width:
            return f"not {width} columns"
        for (name, (kind, fits)), cell in zip(types.items(), row, strict=True):
            if cell is not None and not fits(cell):
                return f"{name} is not {A_VALUE.get(kind, kind)}"
        return None

    columns = tuple(
        Column(name, kind, len(values), example(values, fits))
        for (name, (kind, fits)), values in zip(types.items(), given, strict=True)
    )
    what = f"lines of {width} columns with {_SEPARATORS[separator]} between"
    return Format(what, scheme, refusal, columns, notes=("rename the columns: the lines do not say what they are",))


def _row(text: str, separator: str) -> list[str | None] | None:
    """The fields of a line; None where a quote stands in the middle of one. Nothing between two separators is null."""
    if '"' not in text:
        return [cell or None for cell in text.split(separator)]
    field_of = re.compile(rf'(?:"((?:[^"]|"")*)"|([^"{re.escape(separator)}]*))({re.escape(separator)}|\Z)')
    row: list[str | None] = []
    at = 0
    while True:
        match = field_of.match(text, at)
        if match is None:
            return None
        row.append(match[1].replace('""', '"') if match[1] is not None else match[2] or None)
        if not match[3]:
            return row
        at = match.end()
