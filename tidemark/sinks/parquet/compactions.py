"""Which folders hold the rows of windows after a compaction has replaced the windows' own folders.

The ledger has one value for each Parquet sink, changed only by compare-and-set:

1. A compaction claims the value. The claim fences earlier compactions: folders that they still write never count.
2. The compaction writes a folder, and names it in the value instead of the windows' folders. From then on it counts.
3. Only then the compaction removes the older folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from msgspec import Struct, structs

from tidemark.errors import Fenced
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import FORMAT
from tidemark.ledger.register import draw_generation, new_token
from tidemark.ledger.sink_values import SinkValues
from tidemark.ledger.stores.doubt import CompareAndSetFailed

# More changes than others can make while a write is retried (`doubt.PATIENCE_SECONDS`): each change rewrites rows.
_TOKENS = 32

# (lane, number) of a window
WindowName = tuple[str, int]


class WindowSpan(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The windows [start, until) of a lane, by their numbers."""

    lane: str
    start: int
    until: int


class CompactedFolder(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A folder that has replaced the folders of its windows. All of these are below `base`.

    Its rows have the lane, number and generation of their window as columns. `generation` is that of the compaction.
    """

    base: str
    folder: str
    generation: int
    windows: tuple[WindowSpan, ...]
    rows: int
    run: str
    at: int

    def names(self) -> Iterable[WindowName]:
        return ((span.lane, seq) for span in self.windows for seq in range(span.start, span.until))


class Claim(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The compaction that is running, or that died before it was done."""

    generation: int
    run: str
    at: int


class Compactions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The folders that a sink's compactions have replaced. `token` is new at each change, so no value ever recurs."""

    format: int = FORMAT
    stream: str
    sink: str
    token: str
    claim: Claim | None = None
    folders: tuple[CompactedFolder, ...] = ()
    # Tokens of the last changes: a writer whose answer was lost finds its change, even after changes by others.
    tokens: tuple[str, ...] = ()

    def located(self) -> dict[WindowName, CompactedFolder]:
        """By window: the folder of its results, if it is not the window's own."""
        return {name: folder for folder in self.folders for name in folder.names()}


@dataclass(frozen=True)
class StoredCompactions:
    """The value with the bytes that were read. A compare-and-set expects exactly these bytes."""

    bytes: bytes
    value: Compactions


def _values(ledger: Ledger) -> SinkValues:
    return SinkValues(ledger, "compacted")


def _decoded(ledger: Ledger, sink: str, stored: bytes) -> Compactions:
    return decode(stored, Compactions, _values(ledger).name(sink))


def find(ledger: Ledger, sink: str) -> StoredCompactions | None:
    """The folders that compactions have replaced; None before the first compaction."""
    stored = _values(ledger).find(sink)
    return None if stored is None else StoredCompactions(stored, _decoded(ledger, sink, stored))


def of_all_sinks(ledger: Ledger) -> list[Compactions]:
    """The folders replaced by compactions in all sinks of a stream, even in those that the stream file no longer names."""
    return [_decoded(ledger, sink, stored) for sink, stored in _values(ledger).of_all_sinks()]


def spans(names: Iterable[WindowName]) -> tuple[WindowSpan, ...]:
    """Windows as ranges of neighbouring numbers."""
    spans_ = []
    # Consecutive numbers of a lane have the same distance from their indexes in the sorted list.
    for (lane, _), run in groupby(enumerate(sorted(set(names))), key=lambda one: (one[1][0], one[1][1] - one[0])):
        seqs = [seq for _, (_, seq) in run]
        spans_.append(WindowSpan(lane, seqs[0], seqs[-1] + 1))
    return tuple(spans_)


def claim(ledger: Ledger, sink: str, run: str) -> StoredCompactions:
    """Begin a compaction: from now on, earlier compactions can replace nothing."""
    while True:
        stored = find(ledger, sink)
        generation, _ = draw_generation(ledger)
        value = stored.value if stored else Compactions(stream=ledger.stream, sink=sink, token="")
        claimed = Claim(generation=generation, run=run, at=ledger.clock())
        try:
            return _swap(ledger, stored.bytes if stored else None, structs.replace(value, claim=claimed))
        except CompareAndSetFailed:
            continue


def replaced(held: StoredCompactions, folder: CompactedFolder) -> Compactions:
    """The value with a new folder. Compacted folders that share windows with the new one are left out."""
    taken = set(folder.names())
    kept = tuple(one for one in held.value.folders if taken.isdisjoint(one.names()))
    return structs.replace(held.value, folders=(*kept, folder))


def check_room(ledger: Ledger, value: Compactions) -> None:
    """Raises TooLarge when the ledger would not take the value."""
    todo = "compact fewer windows, or with `--again`, which makes one of several compacted folders"
    _values(ledger).check_room(encode(value), f"what was compacted of {ledger.stream}/{value.sink}", todo)


def replace(ledger: Ledger, held: StoredCompactions, folder: CompactedFolder) -> StoredCompactions:
    """Make a folder count instead of the folders of its windows. Raises Fenced, OutcomeUnknown."""
    return _hold(ledger, held, replaced(held, folder))


def finish(ledger: Ledger, held: StoredCompactions) -> None:
    """Release the claim, unless another compaction has taken it. The new folders count. Raises OutcomeUnknown."""
    with suppress(CompareAndSetFailed):
        _swap(ledger, held.bytes, structs.replace(held.value, claim=None))


def check_held(ledger: Ledger, held: StoredCompactions) -> None:
    """Raises Fenced when another compaction has begun: it may have removed the files of this one."""
    stored = find(ledger, held.value.sink)
    if stored is None or stored.bytes != held.bytes:
        raise _fenced(ledger, held.value.sink, stored.value if stored else None)


def described(windows: Sequence[WindowSpan]) -> str:
    return ", ".join(
        f"{window.lane}/{window.start}" + (f" to {window.until - 1}" if window.until - window.start > 1 else "")
        for window in windows
    )


def _hold(ledger: Ledger, held: StoredCompactions, value: Compactions) -> StoredCompactions:
    try:
        return _swap(ledger, held.bytes, value)
    except CompareAndSetFailed as problem:
        newer = _decoded(ledger, value.sink, problem.current or b"")
        raise _fenced(ledger, value.sink, newer) from None


def _fenced(ledger: Ledger, sink: str, newer: Compactions | None) -> Fenced:
    last = newer and (newer.claim or (newer.folders[-1] if newer.folders else None))
    by = f"run {last.run}" if last else "another run"
    return Fenced(
        f"a compaction of {ledger.stream}/{sink} was begun by {by} after this one, which replaces nothing any more; what "
        "it has replaced before counts. Nothing is lost: let one run at a time."
    )


def _swap(ledger: Ledger, expected: bytes | None, value: Compactions) -> StoredCompactions:
    token = new_token()
    value = structs.replace(value, token=token, tokens=(*value.tokens, token)[-_TOKENS:])
    check_room(ledger, value)
    stored = encode(value)

    def is_mine(current: bytes) -> bool:
        return token in _decoded(ledger, value.sink, current).tokens

    _values(ledger).swap(value.sink, expected, stored, is_mine)
    return StoredCompactions(stored, value)
