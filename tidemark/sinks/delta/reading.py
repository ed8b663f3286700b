"""Where the rows of a sink `delta` are that count: in the table's newest version, or beside it, not published yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from deltalake.exceptions import TableNotFoundError

from tidemark.errors import LedgerContradiction
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.sinks.delta import attempts
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.table import TYPE, check_there
from tidemark.sinks.parquet.compactions import described, spans
from tidemark.sinks.parquet.parts import FolderPart, parts
from tidemark.sinks.versions import steadily

T = TypeVar("T")
# Tables that were read, each with its version; None where there was none.
Seen = dict[str, object]


def of_parts(ledger: Ledger, sink: str, take: Callable[[list[FolderPart], Authority], T], *, gone: bool = False) -> T:
    """The result of `take` for the files of a sink, and the authority that goes with them.

    It begins again if it fails and the table has another version by then: what is published moves into the table. Raises
    LedgerContradiction when a window is not in its table; with `gone`, skips that window.
    """

    def read(seen: Seen) -> T:
        authority, there = _counting(ledger, sink, seen, gone=gone)
        return take(there, authority)

    return steadily(read, _version)


def parts_that_count(ledger: Ledger, sink: str, *, gone: bool = False) -> tuple[Authority, list[FolderPart]]:
    """The files of each window of a sink, and the authority that goes with them."""
    return of_parts(ledger, sink, lambda there, authority: (authority, there), gone=gone)


def files_of_window(record: Record, place: Mapping[str, str], take: Callable[[Sequence[str]], T]) -> T:
    """The result of `take` for the files of a window."""

    def read(seen: Seen) -> T:
        check_there(place["base"], [record])
        return take(_Listed.of(place["base"], seen).of_window(record.attempt.generation))

    return steadily(read, _version)


@dataclass
class _Listed:
    """The files of a version of a table by generation, and those beside it."""

    files: Mapping[int, Sequence[str]]
    beside: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, base: str, seen: Seen) -> _Listed:
        # Before the table: what is published in between is in both.
        beside = attempts.written(base)
        seen[base] = _version(base)
        return cls(delta_table.files_of(base), beside)

    def of_window(self, generation: int) -> Sequence[str]:
        """Of a window that has lost all its rows, none are in the table, and none beside it once it was published."""
        return self.files.get(generation) or self.beside.get(generation, ())


def _version(base: str) -> int | None:
    with suppress(TableNotFoundError):
        return delta_table.opened(base).version()
    return None


def _counting(ledger: Ledger, sink: str, seen: Seen, *, gone: bool) -> tuple[Authority, list[FolderPart]]:
    """The heads are read again after the table, and the table too if something here counts no more.

    A publication may have taken out rows that counted when the heads were read. What is committed beside disturbs nobody.
    """
    view = ledger.view(sink)
    while True:
        listed = parts(view.windows, view.authority, sink, kind=TYPE)
        for part in listed:
            check_there(part.base, (window.record for window in part.windows))
        tables = {base: _Listed.of(base, seen) for base in {one.base for one in listed}}
        if not ledger.changed_since(view) or view.authority.holds_in((newer := ledger.view(sink)).authority):
            break
        view = newer
    known = [replace(one, files=tuple(tables[one.base].of_window(one.windows[0].generation))) for one in listed]
    for part in known:
        # A window may have lost exactly those offsets that had rows: then it is no error that it has no files. Nor where
        # nobody knows whether it had any, as in a ledger that was rebuilt from the results.
        if part.holds and part.windows[0].record.tallies and not part.files and not part.lost and not gone:
            raise LedgerContradiction(
                f"the table {part.base} has nothing of {described(spans(part.names))}, whose results are there. "
                "Replay their offsets to write them again."
            )
    return view.authority, [part for part in known if part.files]
