"""Where the rows of a Parquet sink are: in the folders of its windows, and in those that compaction has put in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark.authority import Authority
from tidemark.ledger import compactions
from tidemark.ledger.book import Book, Committed
from tidemark.ledger.compactions import CompactedFolder, Compactions, WindowName
from tidemark.ranges import RangeSet

TYPE = "parquet"

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """A folder and the committed windows whose rows it has; with `files`, only these of it.

    `lost` are the offsets, by generation, at which a newer window counts. `holds`: whether any row can count there.
    """

    base: str
    folder: str
    windows: tuple[Committed, ...]
    compacted: bool
    holds: bool
    lost: Mapping[int, RangeSet] = field(default_factory=dict)
    files: tuple[str, ...] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.folder,) if self.files is None else self.files

    @property
    def names(self) -> list[WindowName]:
        return [(one.record.lane, one.record.seq) for one in self.windows]


def parts(
    windows: Iterable[Committed], authority: Authority, sink: str, known: Compactions | None = None, kind: str = TYPE
) -> list[Part]:
    """The folders of a sink (of type `kind`), in the order of their first windows. `known` has to be read before the windows.

    A compaction leaves out what does not count when it looks, and authority only rises: what counts by an older look at the
    windows may be missing in a newer folder, and never the other way round.
    """
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
    return [_part(at, found, authority, compacted=at in of) for at, found in own.items()]


def _part(at: tuple[str, str], windows: Sequence[Committed], authority: Authority, *, compacted: bool) -> Part:
    lost, holds = {}, False
    for window in windows:
        held = authority.held_by(window.generation, window.covers)
        holds |= bool(held) and any(tally.rows.number for tally in window.record.tallies)
        if gone := window.covers - held:
            lost[window.generation] = gone
    return Part(*at, tuple(windows), compacted, holds, lost)


def steady(book: Book, sink: str, read: Callable[[list[Part], Authority], T]) -> T:
    """Read until no compaction has replaced a folder meanwhile; gives what counted when the heads were looked at.

    The folder of a committed window stays as it is until a compaction has replaced it: commits disturb nobody.
    """
    while True:
        known = compactions.find(book, sink)
        view = book.view()
        try:
            found = read(parts(view.windows, view.authority, sink, known.value if known else None), view.authority)
        except Exception:
            # A file that is gone is an error of whoever reads it, unless it has been replaced.
            if _same_folders(known, compactions.find(book, sink)):
                raise
            continue
        if _same_folders(known, compactions.find(book, sink)):
            return found


def _same_folders(before: compactions.Stored | None, now: compactions.Stored | None) -> bool:
    return (before.value.folders if before else ()) == (now.value.folders if now else ())
