"""The register of a stream: drawing generations, knowing topics again, opening and closing lanes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress

from msgspec import structs

from tidemark.errors import ClaimOverlap, ClockBehind, Conflict, LaneClosed, LedgerContradiction, WrongUse
from tidemark.ledger.book import REGISTER, Book, Stored, head_key
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.doubt import NotMine, swap_surely
from tidemark.ledger.incarnations import Topics
from tidemark.ledger.limits import check_size
from tidemark.ledger.records import (
    INGEST,
    Head,
    LaneEntry,
    LaneKind,
    LaneState,
    Position,
    Register,
    SelectionRef,
)
from tidemark.ranges import OffsetRange, RangeSet

# Machines with time synchronisation differ by milliseconds. A last generation further ahead of this clock than this
# means that one of the two clocks is wrong, and drawing on would carry the error into every later generation.
MAX_CLOCK_DIFFERENCE_MS = 10 * 60 * 1000


def new_token() -> str:
    """128 random bits: by it an attempt knows its own write again."""
    return secrets.token_hex(16)


def draw_generation(book: Book, *, again: bool = False) -> tuple[int, str, int]:
    """Draw the next generation, max(now, last + 1) in milliseconds; gives it with the token of the draw and the ordinal.

    The ordinal rises by one when the attempt may write `again` where another one has: two attempts that write at the same
    offset never share one. It needs far fewer bits than a generation, for versions of cells that hold an offset too.
    A draw in doubt is simply drawn again: a number that nobody uses harms nobody.
    Raises ClockBehind when this clock and the last generation are far apart.
    """
    drawn = 0

    def draw(register: Register) -> Register:
        nonlocal drawn
        now = book.clock()
        if register.generation - now > MAX_CLOCK_DIFFERENCE_MS:
            raise ClockBehind(
                f"the last generation of {book.stream} is {(register.generation - now) / 1000:.0f} s ahead of this "
                "machine's clock: set the clock that is wrong (this one, or that of the machine that drew it)"
            )
        drawn = max(now, register.generation + 1)
        return structs.replace(register, generation=drawn, ordinal=register.ordinal + again)

    register = change(book, draw)
    return drawn, register.token, register.ordinal


def change(book: Book, edit: Callable[[Register], Register]) -> Register:
    """Change the register by compare-and-set; `edit` gets the newest, and is called again when somebody was faster."""
    while True:
        found = book.register() or _create(book)
        stored, register = found
        try:
            edited = edit(register)
        except LedgerContradiction:
            # The edit may have read something newer than this register: they contradict each other only if both stay.
            newest = book.register()
            if newest is None or newest[0] == stored:
                raise
            continue
        if edited is register:
            return register
        edited = structs.replace(edited, token=new_token())
        value = encode(edited)
        check_size(book.store, value, f"the register of {book.stream}", "close lanes that are done")
        try:
            swap_surely(book.store, REGISTER, stored, value, _has_token(edited.token))
        except NotMine:
            continue
        return edited


def _has_token(token: str) -> Callable[[bytes], bool]:
    return lambda stored: decode(stored, Register, "the register").token == token


def _create(book: Book) -> tuple[bytes, Register]:
    """The first register of a stream. Raises LedgerContradiction when there is anything else of it already."""
    orphan = next(iter(book.store.scan(("head",))), None) or next(iter(book.store.scan(("history",))), None)
    if orphan is not None:
        raise LedgerContradiction(
            f"{book.stream} has {'/'.join(orphan[0])} and no register: it was lost. "
            "Restore it from a backup of the ledger."
        )
    book.store.prepare()
    register = Register(stream=book.stream, ledger=new_token(), generation=0, token=new_token())
    value = encode(register)
    try:
        swap_surely(book.store, REGISTER, None, value, _has_token(register.token))
    except NotMine:
        found = book.register()
        if found is None:
            raise LedgerContradiction(f"the register of {book.stream} was there and is gone") from None
        return found
    return value, register


def change_topics(book: Book, edit: Callable[[Topics], Topics]) -> Topics:
    """Change what the register says of topics; gives all of it."""

    def edited(register: Register) -> Register:
        topics = edit(register.topics)
        return register if topics is register.topics else structs.replace(register, topics=topics)

    return change(book, edited).topics


def open_lane(
    book: Book,
    lane: str,
    kind: LaneKind,
    *,
    run: str,
    start: tuple[Position, ...],
    selection: SelectionRef | None = None,
    reason: str | None = None,
) -> Stored:
    """Open a lane and give its head; opening the same lane again, or going on after a crash, gives the same head.

    Raises ClaimOverlap when another open lane has claimed some of the offsets, WrongUse when the offsets are not of the
    kind (a replay takes what is covered, a backfill what is not), LaneClosed when the name has been used before.
    """

    def enter(register: Register) -> Register:
        known = register.lanes.get(lane)
        if known is not None:
            _check_same(book, lane, known, kind, selection)
            return register
        if book.head(lane) is not None:
            raise LedgerContradiction(f"{book.stream}/{lane} has a head, and the register does not know the lane")
        _check_claim(book, register, kind, selection)
        entry = LaneEntry(
            kind=kind,
            state=LaneState.OPENING,
            token=new_token(),
            opened_at=book.clock(),
            run=run,
            reason=reason,
            start=start,
            until=_ends(book, start, selection),
            selection=selection,
        )
        return structs.replace(register, lanes={**register.lanes, lane: entry})

    register = change(book, enter)
    head = _head_of(book, lane, register.lanes[lane])
    change(book, lambda newest: _marked(newest, lane, LaneState.OPENING, LaneState.OPEN))
    return head


def _ends(book: Book, start: tuple[Position, ...], selection: SelectionRef | None) -> tuple[int, ...]:
    """Where a selection ends in each partition; nothing if it does not begin at `start`, which then says too little."""
    if selection is None:
        return ()
    hull = {one.partition: (one.start, one.until) for one in book.selection(selection).hull()}
    if {position.at: position.offset for position in start} != {at: begins for at, (begins, _) in hull.items()}:
        return ()
    return tuple(hull[position.at][1] for position in start)


def _head_of(book: Book, lane: str, entry: LaneEntry) -> Stored:
    """The lane's head, made from the register's entry if it is missing: whoever makes it makes the same."""
    found = book.head(lane)
    if found is not None:
        return found
    if entry.state != LaneState.OPENING:
        raise LedgerContradiction(
            f"the head of {book.stream}/{lane} is missing, although the register says that the lane is "
            f"{entry.state.value}. Restore it from a backup of the ledger; it is never begun anew."
        )
    head = Head(
        stream=book.stream,
        lane=lane,
        kind=entry.kind,
        state=LaneState.OPEN,
        token=entry.token,
        seq=0,
        positions=entry.start,
    )
    # NotMine: somebody else made it, and may have gone on with it already.
    with suppress(NotMine):
        swap_surely(book.store, head_key(lane), None, encode(head), lambda stored: stored == encode(head))
    found = book.head(lane)
    if found is None:
        raise LedgerContradiction(f"the head of {book.stream}/{lane} was made and is gone")
    return found


def close_lane(book: Book, lane: str) -> None:
    """Mark a settled lane with nothing pending as closed, then release its claim. Its name is never used again."""
    while True:
        found = book.head(lane)
        if found is None:
            raise WrongUse(f"{book.stream} has no lane {lane}")
        head = found.head
        if head.pending is not None:
            raise Conflict(
                f"{book.stream}/{lane} has window {head.pending.window.seq} pending: finish or abandon it first"
            )
        if head.last is not None and not book.is_settled(head.last):
            raise Conflict(f"the last window of {book.stream}/{lane} is not settled yet: run the lane again first")
        if head.state != LaneState.CLOSED:
            closed = structs.replace(head, state=LaneState.CLOSED, token=new_token())
            try:
                swap_surely(book.store, head_key(lane), found.bytes, encode(closed), _closed_by(closed.token))
            except NotMine:
                continue
        _release(book, head)
        return


def _release(book: Book, head: Head) -> None:
    # Whatever the clocks say, behind the last commit: by that the newest windows of all lanes are found.
    closed_at = max(book.clock(), head.last.committed_at + 1 if head.last else 0)
    change(
        book,
        lambda register: _marked(
            register, head.lane, LaneState.OPEN, LaneState.CLOSED, closed_at=closed_at, windows=head.seq
        ),
    )


def _closed_by(token: str) -> Callable[[bytes], bool]:
    return lambda stored: decode(stored, Head, "the head").token == token


def _marked(register: Register, lane: str, before: LaneState, after: LaneState, **more: int) -> Register:
    entry = register.lanes[lane]
    if entry.state != before:
        return register
    return structs.replace(register, lanes={**register.lanes, lane: structs.replace(entry, state=after, **more)})


def _check_same(book: Book, lane: str, known: LaneEntry, kind: LaneKind, selection: SelectionRef | None) -> None:
    if known.state == LaneState.CLOSED:
        raise LaneClosed(f"{book.stream}/{lane} is closed; a lane's name is used once, so choose another")
    if (known.kind, known.selection) != (kind, selection):
        raise Conflict(f"{book.stream}/{lane} is open already, for other offsets or as another kind of lane")


def _check_claim(book: Book, register: Register, kind: LaneKind, selection: SelectionRef | None) -> None:
    """Reads heads and then history; what they say is valid as long as the register's bytes do not change."""
    if kind == LaneKind.INGEST:
        return
    if selection is None:
        raise WrongUse(f"a {kind.value} needs a selection of offsets")
    ingest = book.head(INGEST)
    if ingest is None or INGEST not in register.lanes:
        raise WrongUse(
            f"{book.stream} has no ingest lane yet, which says where live reading begins: run the ingest once first"
        )
    wanted = book.selection(selection)
    live = _at_or_above(wanted, ingest.head)
    if live:
        raise ClaimOverlap(
            f"{_some(live)}: at or above the ingest position, so the ingest reads it; ask for what lies below"
        )
    for name, lane in register.lanes.items():
        if lane.state == LaneState.CLOSED or lane.selection is None:
            continue
        shared = wanted & book.selection(lane.selection)
        if shared:
            raise ClaimOverlap(
                f"{_some(shared)}: claimed by the open lane {name} (run {lane.run}); wait until it is closed"
            )
    covered = book.authority().covered()
    if kind == LaneKind.REPLAY and (unknown := wanted - covered):
        raise WrongUse(f"{_some(unknown)}: in no committed window, so there is nothing to replay; a backfill reads it")
    if kind == LaneKind.BACKFILL and (known := wanted & covered):
        raise WrongUse(f"{_some(known)}: committed already; a replay reads it again")


def _at_or_above(wanted: RangeSet, ingest: Head) -> RangeSet:
    """The part of `wanted` that the ingest claims: all that is not below a position of its."""
    below = RangeSet(OffsetRange(position.at, 0, position.offset) for position in ingest.positions)
    return wanted - below


def _some(ranges: RangeSet, limit: int = 5) -> str:
    shown = [str(one) for one in ranges]
    return ", ".join(shown[:limit]) + (f" and {len(shown) - limit} more ranges" if len(shown) > limit else "")
