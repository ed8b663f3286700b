"""A stream's ledger in a file: a backup while runs go on, its restoration in an empty place, and a move.

A backup is one state that the ledger could have been in. It is read in an order that makes it so:

1. Values of sinks, which name committed windows. So they name none that the heads do not know.
2. The register, which names the lanes. Lanes that are opened later are left out.
3. The heads of these lanes. Each says how far its lane is; windows that are committed later are left out. If the topics in
   the register have changed meanwhile, the register and the heads are read again.
4. All that the heads refer to, which never changes.

A restoration writes in the same order, but the register last. Without a register no run begins, so a restoration that
was cut off is finished by repeating it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct, structs

from tidemark.errors import WrongUse
from tidemark.ledger.closed_lanes import ClosedLanes, page_key
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.forgetting import forgetful
from tidemark.ledger.ledger import REGISTER, Ledger, head_key, record_key
from tidemark.ledger.limits import check_size
from tidemark.ledger.records import FORMAT, INGEST, Head, LaneState, Register, next_offsets
from tidemark.ledger.register import change, check_clock, latest_clock, new_token, open_lanes
from tidemark.ledger.selections import values_of
from tidemark.ledger.sink_values import RESERVED
from tidemark.ledger.stores.contract import Key, LedgerStore, SupportsOffsetLayouts
from tidemark.ledger.stores.doubt import CompareAndSetFailed, swap_surely
from tidemark.offsets.times import in_utc

# Values that say how runs are doing, what windows cover together, which is made again of them, and the marks of settled
# windows: settling once more does no harm.
_LEFT_OUT = frozenset({"beat", "clock", "covered", "settled"})
_FIRST = frozenset({"closed", "head", "register"})
# Keys that go on with a lane and a window's number.
_OF_WINDOWS = frozenset({"blocks", "history", "receipt"})


class _Begin(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first line of a backup. `at` is in milliseconds since 1970. A `final` one is of a ledger that was retired.

    Nothing came after a final backup in that ledger. But it may be restored once more, when the ledger that was made of it is
    lost, so a restoration makes no difference.
    """

    format: int = FORMAT
    stream: str
    at: int
    final: bool


class _Value(Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A line of a backup: a key and its value, which is base64 in the file."""

    key: tuple[str, ...]
    value: bytes


class _End(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The last line: how many values come before it, and the SHA-256 of all lines before it."""

    values: int
    sha256: str


@dataclass(frozen=True)
class Summary:
    """The contents of a backup. `at` is in milliseconds since 1970; `lanes` gives the number of windows of each lane."""

    at: int
    values: int
    lanes: Mapping[str, int]


def back_up(ledger: Ledger, path: Path) -> Summary:
    """Write the ledger to a new file (lines of JSON, with gzip). Runs may go on meanwhile.

    Raises WrongUse when the file exists or cannot be written, or when the stream has no ledger yet.
    """
    stored = ledger.register()
    if stored is None:
        raise WrongUse(f"{ledger.stream} has no ledger yet: nothing to back up")
    return write(ledger, path, _state(ledger), final=stored[1].retired is not None)


def write(ledger: Ledger, path: Path, values: Iterable[tuple[Key, bytes]], *, final: bool = False) -> Summary:
    """Write these values of a ledger to a new file. Raises WrongUse when the file exists or cannot be written."""
    check_new(path)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            summary = _write(ledger, file, values, final=final)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as problem:
        raise WrongUse(f"{path}: cannot be written: {problem.strerror}") from problem
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return summary


def check_new(path: Path) -> None:
    """Raises WrongUse when the file of a backup exists."""
    if path.exists():
        raise WrongUse(f"{path} exists already; name a new file")


def retire(ledger: Ledger, reason: str) -> None:
    """End the use of this ledger for good, so that the next backup is final. Repeatable.

    No run draws a generation from a retired ledger. An attempt that is at work loses its window: it commits before this
    call ends, or never.
    """
    register = change(
        ledger, lambda register: register if register.retired else structs.replace(register, retired=reason)
    )
    for lane in register.lanes:
        while (stored := ledger.head(lane)) is not None:
            # Whatever a run expected to find in the head, it is gone now.
            anew = encode(_anew(stored.head))
            with suppress(CompareAndSetFailed):
                swap_surely(ledger.store, head_key(lane), stored.bytes, anew, anew.__eq__)
                break


def restorable(ledger: Ledger, path: Path) -> Summary:
    """The contents of a backup, after every check that `restore` makes. Writes nothing, and raises the same errors."""
    begin, values = _to_restore(ledger, path), 0
    lanes = {}
    for key, value in _values(path):
        values += 1
        if key[0] == "head":
            lanes[key[1]] = decode(value, Head, str(path)).seq
    return Summary(begin.at, values, lanes)


def restore(ledger: Ledger, path: Path) -> Summary:
    """Write a backup into an empty ledger. Repeating it finishes one that was cut off.

    Raises WrongUse when the file is not a whole backup of this stream, or when the ledger holds anything else; TooLarge
    when a value does not fit into this kind of ledger; ClockAhead when this machine's clock is far ahead of the server's. Then
    nothing was written.
    """
    begin = _to_restore(ledger, path)
    ledger.store.prepare()
    check_clock(ledger)
    register: Register | None = None
    heads: dict[str, Head] = {}
    there: set[str] = set()
    values = 0
    for key, value in _values(path):
        values += 1
        if key == REGISTER:
            register = decode(value, Register, str(path))
        elif key[0] == "head":
            head = heads[key[1]] = decode(value, Head, str(path))
            ledger.forget_settled(head.lane)
            _restore_head(ledger, head)
        elif not _is_last(heads, key):
            _put(ledger, key, value)
        elif _has_record(ledger, heads[key[1]]):
            # Byte by byte: the window that follows names its digest.
            there.add(key[1])
            _put(ledger, key, value)
    for lane, head in heads.items():
        if lane not in there and head.last is not None and _has_record(ledger, head):
            _put(ledger, record_key(lane, head.seq), encode(head.last))
    assert register is not None  # noqa: S101 - `_checked` has seen it
    forgotten = forgetful(
        register,
        newest=max((register.generation, *map(_generation, heads.values()))),
        since=begin.at,
        now=latest_clock(ledger),
        why=f"restored from a backup of {in_utc(begin.at)}",
    )
    _put(ledger, REGISTER, encode(structs.replace(forgotten, token=new_token(), retired=None)))
    if INGEST in heads:
        # The last commit before the backup has shown them, in another place or before later ones.
        offsets = next_offsets(heads[INGEST].positions)
        if isinstance(ledger.store, SupportsOffsetLayouts):
            ledger.store.show(offsets)
        ledger.publish(ledger.clock(), offsets)
    # A lane that was being closed beside the backup is closed now.
    open_lanes(ledger)
    return Summary(begin.at, values, {lane: head.seq for lane, head in heads.items()})


def _to_restore(ledger: Ledger, path: Path) -> _Begin:
    begin = _checked(ledger, path)
    if ledger.register() is not None:
        raise WrongUse(
            f"{ledger.stream} has a ledger here already, and a restoration replaces nothing. Name another table or path "
            "in the stream file's ledger"
        )
    return begin


# writing


def _write(ledger: Ledger, file: BinaryIO, state: Iterable[tuple[Key, bytes]], *, final: bool) -> Summary:
    digest, values, lanes = hashlib.sha256(), 0, {}
    at = ledger.clock()
    # Without a time and a name in the file's header: the same ledger gives the same bytes.
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:

        def line(value: Struct) -> None:
            text = msgspec.json.encode(value) + b"\n"
            packed.write(text)
            digest.update(text)

        line(_Begin(stream=ledger.stream, at=at, final=final))
        for key, value in state:
            values += 1
            line(_Value(key, value))
            if key[0] == "head":
                lanes[key[1]] = decode(value, Head, key[1]).seq
        packed.write(msgspec.json.encode(_End(values=values, sha256=digest.hexdigest())) + b"\n")
    return Summary(at, values, lanes)


def _state(ledger: Ledger) -> Iterator[tuple[Key, bytes]]:
    """The keys and values of one state; the module's docstring says in which order, and why."""
    store = ledger.store
    yield from sink_values(store)
    register, pages, heads = _lanes(ledger)
    yield REGISTER, register
    yield from pages.items()
    yield from ((head_key(lane), value) for lane, value in heads.items())
    yield from referred_to(store, {lane: ledger.head_in(lane, value).head.seq for lane, value in heads.items()})


def _lanes(ledger: Ledger) -> tuple[bytes, dict[Key, bytes], dict[str, bytes]]:
    """The register, the pages of closed lanes, and the heads of the lanes that these name.

    A run that accepts a recreated topic changes the register, and then a head. Heads may then name topics that the
    register does not have, so everything is read again.
    """
    store = ledger.store
    stored = _register(ledger)
    while True:
        known = set(stored[1].lanes)
        # Further entries of the pages were closed after the register was read.
        names = {page_key(number) for number in (range(stored[1].closed_page + 1) if stored[1].closed else ())}
        pages = {key: value for key, value in store.scan(("closed",)) if key in names}
        for key, value in pages.items():
            known |= decode(value, ClosedLanes, "/".join(key)).lanes.keys()
        heads = {key[1]: value for key, value in store.scan(("head",)) if key[1] in known}
        now = _register(ledger)
        if now[1].topics == stored[1].topics:
            return stored[0], pages, heads
        stored = now


def _register(ledger: Ledger) -> tuple[bytes, Register]:
    stored = ledger.register()
    if stored is None:
        raise WrongUse(f"the register of {ledger.stream} was there and is gone: it was lost")
    return stored


def sink_values(store: LedgerStore) -> Iterator[tuple[Key, bytes]]:
    """The values of sinks."""
    return ((key, value) for key, value in store.scan(()) if key[0] not in RESERVED)


def referred_to(store: LedgerStore, reached: Mapping[str, int]) -> Iterator[tuple[Key, bytes]]:
    """All that heads refer to, of the windows up to the number that each lane has reached."""
    yield from values_of(store)
    for word in sorted(RESERVED - _FIRST - _LEFT_OUT - {"selection"}):
        for key, value in store.scan((word,)):
            if word not in _OF_WINDOWS or int(key[2]) <= reached.get(key[1], 0):
                yield key, value


# reading


def _values(path: Path) -> Iterator[tuple[Key, bytes]]:
    """The values of a backup that `_checked` has read whole."""
    with gzip.open(path) as file:
        next(file)
        for text in file:
            if text.startswith(b"["):
                value = msgspec.json.decode(text, type=_Value)
                yield value.key, value.value


def _checked(ledger: Ledger, path: Path) -> _Begin:
    """Read a backup whole, before anything is written. Raises WrongUse naming the line, TooLarge naming the key."""
    digest, number, has_register = hashlib.sha256(), 0, False
    begin: _Begin | None = None
    end: _End | None = None
    try:
        with gzip.open(path) as file:
            for number, text in enumerate(file):
                if end is not None:
                    raise WrongUse(f"{path}, line {number + 1}: expected nothing after the line that ends a backup")
                if number == 0:
                    begin = _begin(ledger, path, text)
                elif text.startswith(b"["):
                    value = msgspec.json.decode(text, type=_Value)
                    check_size(ledger.store, value.value, f"{'/'.join(value.key)} of {path}", "restore it into HBase")
                    has_register |= value.key == REGISTER
                else:
                    end = msgspec.json.decode(text, type=_End)
                    continue
                digest.update(text)
    except (OSError, EOFError, msgspec.DecodeError) as problem:
        raise WrongUse(f"{path}, line {number + 1}: this is no whole backup of a ledger: {problem}") from problem
    if begin is None or end is None or end.sha256 != digest.hexdigest() or not has_register:
        raise WrongUse(f"{path} is no whole backup of a ledger: it ends early, or was changed")
    return begin


def _begin(ledger: Ledger, path: Path, text: bytes) -> _Begin:
    begin = msgspec.json.decode(text, type=_Begin)
    if begin.format > FORMAT:
        raise WrongUse(f"{path} has format {begin.format}, and this version knows formats up to {FORMAT}")
    if begin.stream != ledger.stream:
        raise WrongUse(f"{path} is a backup of the stream {begin.stream}, and not of {ledger.stream}")
    return begin


# restoring


def _generation(head: Head) -> int:
    """The newest generation that a head knows. It may have been drawn after the register was read."""
    pending = head.pending.attempt if head.pending else None
    return max((attempt.generation for attempt in (pending, head.last and head.last.attempt) if attempt), default=0)


def _anew(head: Head) -> Head:
    """The same state in another value. No attempt that began with the earlier value can commit on this one."""
    pending = head.pending and structs.replace(head.pending, attempt=None)
    return structs.replace(head, token=new_token(), pending=pending)


def _restore_head(ledger: Ledger, head: Head) -> None:
    value = encode(_anew(head))

    def is_same(stored: bytes) -> bool:
        """But for the token: a restoration that was cut off has drawn another one."""
        return structs.replace(decode(stored, Head, head.lane), token=head.token) == structs.replace(
            decode(value, Head, head.lane), token=head.token
        )

    _swap(ledger, head_key(head.lane), value, is_same)


def _has_record(ledger: Ledger, head: Head) -> bool:
    """Whether this kind of ledger has the record of a lane's last window in the history.

    Where a commit does not write the record, settling does, before the next window is pinned or the lane is closed.
    Without the record, the next run settles that window once more.
    """
    return ledger.store.commits_records or head.pending is not None or head.state == LaneState.CLOSED


def _is_last(heads: Mapping[str, Head], key: Key) -> bool:
    """Whether this is the record of a lane's last window."""
    return key[0] == "history" and key[1] in heads and heads[key[1]].seq == int(key[2])


def _put(ledger: Ledger, key: Key, value: bytes) -> None:
    _swap(ledger, key, value, value.__eq__)


def _swap(ledger: Ledger, key: Key, value: bytes, is_mine: Callable[[bytes], bool]) -> None:
    try:
        swap_surely(ledger.store, key, None, value, is_mine)
    except CompareAndSetFailed:
        raise WrongUse(
            f"{ledger.stream}/{'/'.join(key)} is there already, with another value than in the backup. It was left as it "
            "is: name another table or path in the stream file's ledger, and restore there"
        ) from None
