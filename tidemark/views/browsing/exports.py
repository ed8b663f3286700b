"""Search results as a file: CSV or JSON, one line each, with coordinates that a replay takes."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tidemark.migrate.importing import harmless
from tidemark.offsets.times import in_iso
from tidemark.views.browsing.items import Item

Format = Literal["csv", "jsonl"]
# What each line has beside the fields: first the coordinate.
_OURS = ("topic", "partition", "offset", "incarnation", "timestamp", "key", "value", "headers")
# Rows of a sink say besides whether the newest row of a key says that the key is gone.
_OF_ROWS = (*_OURS, "deleted")
# Of these, what CSV has in base64 too, in a column of its own.
_BYTES = ("key", "value")


def exported(items: Iterable[Item], form: Format, fields: Sequence[str] = (), *, rows: bool = False) -> str:
    """The items in a format. Bytes that are no UTF-8 are in base64: `{"base64": ...}` in JSON, in columns of their own in CSV.

    Each item has the `fields` besides. Where one of them is called as what each line has, that has a _ before its name: a
    message says nothing of another one's coordinate. `rows`: of a sink, with a column `deleted`.
    A cell of CSV that a spreadsheet would take for a formula has an apostrophe before it.
    """
    ours = _OF_ROWS if rows else _OURS
    mark = "_" if {*ours, *(f"{name}_base64" for name in _BYTES)} & set(fields) else ""
    named = {name: f"{mark}{name}" for name in ours}
    lines = [_values(one, [*named.values()], fields) for one in items]
    if form == "jsonl":
        return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines)
    return _csv(lines, named, fields)


def _values(item: Item, named: Sequence[str], fields: Sequence[str]) -> dict[str, Any]:
    at = item.at.partition
    ours = (
        at.topic,
        at.partition,
        item.at.offset,
        at.incarnation,
        None if item.timestamp is None else in_iso(item.timestamp),
        _text(item.key),
        _text(item.value),
        [[name, _text(value)] for name, value in item.headers],
        item.deleted,
    )
    return {
        **dict(zip(named, ours[: len(named)], strict=True)),
        **{name: _text(item.fields.get(name)) for name in fields},
    }


def _text(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _csv(lines: Iterable[Mapping[str, Any]], named: Mapping[str, str], fields: Sequence[str]) -> str:
    """The same columns whatever is in them, so that files can be put together."""
    out = io.StringIO()
    writer = csv.writer(out)
    names = (*named.values(), *fields)
    texts = (*(named[name] for name in _BYTES), *fields)
    writer.writerow([*names, *(f"{name}_base64" for name in texts)])
    for one in lines:
        plain = [None if isinstance(one[name], dict) else one[name] for name in names]
        coded = [one[name]["base64"] if isinstance(one[name], dict) else None for name in texts]
        # The name of a topic can begin no formula that does anything, and is to be taken as it is.
        writer.writerow([plain[0], *(_cell(value) for value in (*plain[1:], *coded))])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False) if value else ""
    return harmless(value) if isinstance(value, str) else value
