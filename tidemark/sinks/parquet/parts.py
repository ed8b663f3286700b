"""Where the rows of a Parquet sink are: in the folders of its windows, or in the folders that replaced those."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark.ledger.erasures import erased
from tidemark.ledger.ledger import NOTHING, Committed, Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.parquet import compactions
from tidemark.sinks.parquet.compactions import CompactedFolder, Compactions, WindowName

TYPE = "parquet"

T = TypeVar("T")


@dataclass(frozen=True)
class FolderPart:
    """A folder, and the committed windows whose rows it has. With `files`, readers take only these files of it.

    `erased`: what was erased of these windows. `stale`: the files still hold rows of that; None if nobody has looked.
    `lost`: by generation, the offsets at which a newer window counts. `holds`: whether any row in the folder can count.
    """

    base: str
    folder: str
    windows: tuple[Committed, ...]
    compacted: bool
    holds: bool
    lost: Mapping[int, RangeSet] = field(default_factory=dict)
    files: tuple[str, ...] | None = None
    erased: RangeSet = NOTHING
    stale: bool | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.folder,) if self.files is None else self.files

    @property
    def names(self) -> list[WindowName]:
        return [(one.record.lane, one.record.seq) for one in self.windows]


def parts(
    windows: Iterable[Committed], authority: Authority, sink: str, known: Compactions | None = None, kind: str = TYPE
) -> list[FolderPart]:
    """The folders of a sink (of type `kind`), in the order of their first windows. Read `known` before the windows.

    `authority`: what counts in this sink.

    A compaction leaves out rows that do not count when it reads the ledger, and authority only rises. So a row that
    counted for an older view may be missing in a newer folder. A row that counts for a newer view is never
    missing in an older folder.
    """
    windows = list(windows)
    gone = erased(windows)
    located = known.located() if known else {}
    own: dict[tuple[str, str], list[Committed]] = {}
    of: dict[tuple[str, str], CompactedFolder] = {}
    for window in sorted(windows, key=lambda one: (one.record.lane, one.record.seq)):
        place = next((one.place for one in window.record.places if one.name == sink and one.type == kind), None)
        if place is None:
            continue
        folder = located.get((window.record.lane, window.record.seq))
        at = (place["base"], place["folder"]) if folder is None else (folder.base, folder.folder)
        own.setdefault(at, []).append(window)
        if folder is not None:
            of[at] = folder
    return [_part(at, names, authority, gone, compacted=at in of) for at, names in own.items()]


def _part(
    at: tuple[str, str], windows: Sequence[Committed], authority: Authority, gone: RangeSet, *, compacted: bool
) -> FolderPart:
    lost, holds = {}, False
    for window in windows:
        held = authority.held_by(window.generation, window.covers)
        # A window of a ledger that was rebuilt from the results has no tallies.
        tallies = window.record.tallies
        holds |= bool(held) and (not tallies or any(tally.rows.number for tally in tallies))
        if others := window.covers - held:
            lost[window.generation] = others
    without = RangeSet(one for window in windows for one in window.covers & gone) if gone else NOTHING
    return FolderPart(*at, tuple(windows), compacted, holds, lost, erased=without)


def steady(
    ledger: Ledger,
    sink: str,
    read: Callable[[list[FolderPart], Authority], T],
    kind: str = TYPE,
    alone: Sequence[Committed] = (),
) -> T:
    """Read until no compaction has replaced a folder meanwhile. Returns the rows that counted when the heads were read.

    The folder of a committed window stays unchanged until a compaction replaces it, so commits disturb no reader. `alone`:
    only these windows, all of whose rows count; then the history of the ledger is not read.
    """
    while True:
        known = compactions.find(ledger, sink)
        windows, authority = _counting(ledger, sink, alone)
        try:
            there = parts(windows, authority, sink, known.value if known else None, kind)
            _check_there(there)
            value = read(there, authority)
        except Exception:
            # A missing file is an error, unless a compaction has replaced its folder.
            if _same_folders(known, compactions.find(ledger, sink)):
                raise
            continue
        if _same_folders(known, compactions.find(ledger, sink)):
            return value


def _counting(ledger: Ledger, sink: str, alone: Sequence[Committed]) -> tuple[Sequence[Committed], Authority]:
    if alone:
        return alone, Authority((window.generation, window.covers) for window in alone)
    view = ledger.view(sink)
    return view.windows, view.authority


def _check_there(folder_parts: Iterable[FolderPart]) -> None:
    """Raises Unreachable where a folder's disk may not be mounted: its rows are not deleted."""
    # Not at the top: most programs that know of parts never read one, and Arrow takes long to load.
    from tidemark.sinks.parquet.folders import check_there

    bases: dict[str, list[Record]] = {}
    for part in folder_parts:
        bases.setdefault(part.base, []).extend(one.record for one in part.windows)
    for base, records in bases.items():
        check_there(base, records)


def _same_folders(before: compactions.StoredCompactions | None, now: compactions.StoredCompactions | None) -> bool:
    return (before.value.folders if before else ()) == (now.value.folders if now else ())
