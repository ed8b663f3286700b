"""Trying a filter on items. JSON and records that others wrote are read in a process of its own, which has limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.streams.model import Stream
from tidemark.views.browsing.filters import Cell, Cells, Filter, FilterOperand, Path
from tidemark.views.browsing.items import Item
from tidemark.views.messages.record import MAX_BYTES, RecordRead, WrittenValue, asked, has_records, written_by
from tidemark.views.messages.sandbox import cells_with_limits

# Of values that one process reads, which has not much time for all of them.
_AT_ONCE_BYTES, _AT_ONCE = 4_000_000, 10_000
# Processes of one question that may die of what they read.
_MAX_DEATHS = 3
# In place of a value: nothing stands at any path.
_NOTHING = "nothing"


@dataclass
class Matcher:
    """`not_read`: how many items it could not judge, since their values are too large or took too long to be read."""

    filter: Filter
    stream: Stream
    connections: Connections
    not_read: int = 0
    _schemas: dict[int, str | RecordRead] = field(default_factory=dict)
    _deaths: int = 0

    def matching(self, items: Sequence[Item]) -> list[Item]:
        """The items that fit, in their order."""
        cheap = self.filter.cheap
        left = [one for one in items if cheap.fits(partial(_cells, one, {}))]
        paths = self.filter.paths
        if not paths:
            return left
        fitting: list[Item] = []
        for part in _parts(left):
            known = self._at_paths(part, paths)
            self.not_read += sum(one is None for one in known)
            fitting += [
                item
                for item, cells in zip(part, known, strict=True)
                if cells is not None and self.filter.fits(partial(_cells, item, cells))
            ]
        return fitting

    def with_records(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """The items; in a stream of records with these as JSON, or as the text that was compressed."""
        if not has_records(self.stream):
            return tuple(items)
        with_records = []
        for part in _parts(items):
            known = self._at_paths(part, [()])
            records = (None if one is None else one.get(()) for one in known)
            with_records += [
                replace(item, record=None if record is None else record.text)
                for item, record in zip(part, records, strict=True)
            ]
        return tuple(with_records)

    def _at_paths(self, items: Sequence[Item], paths: Sequence[Path]) -> list[Mapping[Path, Cell | None] | None]:
        """The values of each item at the paths; None where it was not read."""
        written = [self._written(item) for item in items]
        values = asked(one for one in written if isinstance(one, WrittenValue))
        known, deaths = cells_with_limits({"kind": "cells", "paths": paths, **values}, _MAX_DEATHS - self._deaths)
        self._deaths += deaths
        cells = iter(known)
        by_item: list[Mapping[Path, Cell | None] | None] = []
        for one in written:
            if not isinstance(one, WrittenValue):
                by_item.append(None if one is None else dict.fromkeys(paths))
            else:
                read = next(cells)
                by_item.append(None if read is None else dict(zip(paths, map(_cell, read), strict=True)))
        return by_item

    def _written(self, item: Item) -> WrittenValue | str | None:
        """An item's value as it was written; _NOTHING where there is nothing to read, None where it cannot be read."""
        if item.value is None:
            return _NOTHING
        if len(item.value) > MAX_BYTES:
            return None
        if not has_records(self.stream):
            return WrittenValue("", item.value)
        written = written_by(self.stream, self.connections, item.value, self._schemas)
        if isinstance(written, WrittenValue):
            return written
        # Its registry may be away. What is in no record is known: nothing.
        return None if written.by else _NOTHING


def _parts(items: Sequence[Item]) -> list[list[Item]]:
    """The items, in parts whose values one process reads in time."""
    parts: list[list[Item]] = []
    size = _AT_ONCE_BYTES
    for item in items:
        own = len(item.value or b"")
        if size + own > _AT_ONCE_BYTES or not parts or len(parts[-1]) == _AT_ONCE:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += own
    return parts


def _cell(answer: list[Any] | None) -> Cell | None:
    return None if answer is None else Cell(answer[0].encode("utf-8", "surrogatepass"), answer[1])


def _cells(item: Item, at_paths: Mapping[Path, Cell | None], subject: FilterOperand) -> Cells:
    if subject.kind == "path":
        return (at_paths.get(subject.path),)
    if subject.kind == "header":
        return tuple(None if value is None else Cell(value) for name, value in item.headers if name == subject.name)
    value = {"key": item.key, "value": item.value}.get(subject.kind, item.fields.get(subject.name))
    return (None if value is None else Cell(value),)
