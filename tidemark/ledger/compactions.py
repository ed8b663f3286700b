"""Which folders hold what windows have written, since compaction has replaced the windows' own.

One value for each Parquet sink, changed only by compare-and-set. A compaction first claims it: that fences the ones before
it, whose folders can never count any more. Then it writes, and names what it has written in place of the windows' folders:
from that change on the new folder counts. Only then are the older ones removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from msgspec import Struct, structs

from tidemark.errors import Fenced
from tidemark.ledger.book import Book
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.doubt import NotMine, swap_surely
from tidemark.ledger.limits import check_size
from tidemark.ledger.records import FORMAT
from tidemark.ledger.register import draw_generation, new_token
from tidemark.ledger.store import Key

_ALL: Key = ("compacted",)

# (lane, number) of a window
WindowName = tuple[str, int]


class Span(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The windows [start, until) of a lane, by their numbers."""

    lane: str
    start: int
    until: int


class CompactedFolder(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A folder that has replaced those of its windows, all of them below `base`.

    Its rows have the lane, number and generation of their window as columns. `generation` is that of the compaction.
    """

    base: str
    folder: str
    generation: int
    windows: tuple[Span, ...]
    rows: int
    run: str
    at: int

    def names(self) -> Iterable[WindowName]:
        return ((span.lane, seq) for span in self.windows for seq in range(span.start, span.until))


class Claim(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The compaction that is at work, or that has died before it was done."""

    generation: int
    run: str
    at: int


class Compactions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the compactions of a sink have replaced. `token` is that of the last change, so no value ever recurs."""

    format: int = FORMAT
    stream: str
    sink: str
    token: str
    claim: Claim | None = None
    folders: tuple[CompactedFolder, ...] = ()

    def located(self) -> dict[WindowName, CompactedFolder]:
        """Where the results of a window are, if not in its own folder."""
        return {name: folder for folder in self.folders for name in folder.names()}


@dataclass(frozen=True)
class Stored:
    """The value with the very bytes that were read: those are what a compare-and-set expects."""

    bytes: bytes
    value: Compactions


def key_of(sink: str) -> Key:
    return (*_ALL, sink)


def find(book: Book, sink: str) -> Stored | None:
    """What compactions have replaced; None while there has been none."""
    stored = book.store.read(key_of(sink))
    return None if stored is None else Stored(stored, decode(stored, Compactions, f"{book.stream}/compacted/{sink}"))


def of_all_sinks(book: Book) -> list[Compactions]:
    """What was compacted of a stream's sinks, those too that its file does not name any more."""
    return [decode(stored, Compactions, f"{book.stream}/{'/'.join(key)}") for key, stored in book.store.scan(_ALL)]


def spans(names: Iterable[WindowName]) -> tuple[Span, ...]:
    """Windows as ranges of neighbouring numbers."""
    found = []
    # Numbers that follow each other are as far from their places in the sorted list.
    for (lane, _), run in groupby(enumerate(sorted(set(names))), key=lambda one: (one[1][0], one[1][1] - one[0])):
        seqs = [seq for _, (_, seq) in run]
        found.append(Span(lane, seqs[0], seqs[-1] + 1))
    return tuple(found)


def claim(book: Book, sink: str, run: str) -> Stored:
    """Begin a compaction: from now on, none that has begun before can replace anything."""
    while True:
        found = find(book, sink)
        generation, _, _ = draw_generation(book)
        value = found.value if found else Compactions(stream=book.stream, sink=sink, token="")
        claimed = Claim(generation=generation, run=run, at=book.clock())
        try:
            return _swap(book, found.bytes if found else None, structs.replace(value, claim=claimed))
        except NotMine:
            continue


def replaced(held: Stored, folder: CompactedFolder) -> Compactions:
    """The value in which a folder holds its windows; compacted folders of which it holds all windows are left out."""
    taken = set(folder.names())
    kept = tuple(one for one in held.value.folders if taken.isdisjoint(one.names()))
    return structs.replace(held.value, folders=(*kept, folder))


def check_room(book: Book, value: Compactions) -> None:
    """Raises TooLarge where the ledger would not take the value."""
    todo = "compact fewer windows, or with `--again`, which makes one of several compacted folders"
    check_size(book.store, encode(value), f"what was compacted of {book.stream}/{value.sink}", todo)


def replace(book: Book, held: Stored, folder: CompactedFolder) -> Stored:
    """From now on the folder counts in place of those of its windows. Raises Fenced, OutcomeUnknown."""
    return _hold(book, held, replaced(held, folder))


def finish(book: Book, held: Stored) -> Stored:
    """Give back the claim: what was replaced has been removed. Raises Fenced, OutcomeUnknown."""
    return _hold(book, held, structs.replace(held.value, claim=None))


def check_held(book: Book, held: Stored) -> None:
    """Raises Fenced when another compaction has begun: then it may have removed what this one was writing."""
    found = find(book, held.value.sink)
    if found is None or found.bytes != held.bytes:
        raise _fenced(book, held.value.sink, found.value if found else None)


def described(windows: Sequence[Span]) -> str:
    return ", ".join(
        f"{one.lane}/{one.start}" + (f" to {one.until - 1}" if one.until - one.start > 1 else "") for one in windows
    )


def _hold(book: Book, held: Stored, value: Compactions) -> Stored:
    try:
        return _swap(book, held.bytes, value)
    except NotMine as problem:
        newer = decode(problem.current or b"", Compactions, f"{book.stream}/compacted/{value.sink}")
        raise _fenced(book, value.sink, newer) from None


def _fenced(book: Book, sink: str, newer: Compactions | None) -> Fenced:
    last = newer and (newer.claim or (newer.folders[-1] if newer.folders else None))
    by = f"run {last.run}" if last else "another run"
    return Fenced(
        f"a compaction of {book.stream}/{sink} was begun by {by} behind this one, which does not count any more. "
        "Nothing is lost: let one run at a time."
    )


def _swap(book: Book, expected: bytes | None, value: Compactions) -> Stored:
    value = structs.replace(value, token=new_token())
    check_room(book, value)
    stored = encode(value)
    swap_surely(book.store, key_of(value.sink), expected, stored, lambda current: current == stored)
    return Stored(stored, value)
