"""The register of a stream: drawing generations, keeping topic ids, opening and closing lanes."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from msgspec import Struct, structs

from tidemark.errors import (
    AnotherRequest,
    ClaimOverlap,
    ClockAhead,
    ClockBehind,
    Conflict,
    LaneClosed,
    LanePaused,
    LedgerContradiction,
    OffsetsErased,
    WrongUse,
)
from tidemark.ledger.closed_lanes import closed_lanes, given_up
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.erasures import erased
from tidemark.ledger.incarnations import Topics, written_range
from tidemark.ledger.ledger import REGISTER, REMEDY, Ledger, LedgerSnapshot, StoredHead, head_key
from tidemark.ledger.limits import check_size
from tidemark.ledger.records import (
    INGEST,
    AcceptedClock,
    Erasure,
    Head,
    LaneEntry,
    LaneKind,
    LaneState,
    Paused,
    Position,
    Register,
    RunRequest,
    SelectionRef,
    SinkReceipt,
    each_place,
)
from tidemark.ledger.retirement import check_in_use
from tidemark.ledger.stores.doubt import CompareAndSetFailed, swap_surely
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet

# Machines with time synchronisation differ by milliseconds. If the last generation is further ahead of this clock than
# this, one of the two clocks is wrong. Another draw would carry the error into every later generation.
MAX_CLOCK_DIFFERENCE_MS = 10 * 60 * 1000


def new_token() -> str:
    """128 random bits, by which an attempt recognises its own write."""
    return secrets.token_hex(16)


def draw_generation(ledger: Ledger) -> tuple[int, str]:
    """Draw the next generation: max(now, last + 1), in milliseconds. Returns the generation and the draw's token.

    A draw in doubt is repeated: an unused number does no harm.
    Raises ClockBehind when this clock is far behind the last generation, ClockAhead when it is far ahead of the server's.
    """
    ledger.before_draw(ledger)
    drawn = 0

    def draw(register: Register) -> Register:
        nonlocal drawn
        now = ledger.clock()
        if register.generation - now > MAX_CLOCK_DIFFERENCE_MS and not _counts(register):
            raise _behind(ledger, register.generation, now)
        if now - register.generation > MAX_CLOCK_DIFFERENCE_MS:
            # The last draw cannot judge this clock: it may be an hour old, or may have come from a wrong clock.
            _check_not_ahead(ledger, now)
        drawn = max(now, register.generation + 1)
        return structs.replace(register, generation=drawn)

    register = change(ledger, draw)
    return drawn, register.token


def note_places(ledger: Ledger, places: Iterable[SinkReceipt]) -> None:
    """Note where an attempt is about to write. Call it before the first write: an erasure clears all places noted.

    Receipts alone do not name them: an attempt without a commit has none. Raises WrongUse for a place that is gone for good.
    """
    wanted = tuple(places)

    def note(register: Register) -> Register:
        gone = {forgotten.place.as_place: forgotten for forgotten in register.forgotten}
        if forgotten := next((gone[place.as_place] for place in wanted if place.as_place in gone), None):
            words = shlex.join(forgotten.place.words)
            raise WrongUse(
                f"{ledger.stream} may not write to {words}: {forgotten.said()}. What was erased since was not cleared there. "
                f"If it is there again, clear it first: tidemark ledger forget-place {ledger.stream} {words} --back. Otherwise "
                "name another place in the stream file"
            )
        noted = each_place((*register.places, *wanted))
        return register if noted == register.places else structs.replace(register, places=noted)

    change(ledger, note)


def accept_generation(ledger: Ledger, reason: str) -> int:
    """Let draws go on from a last generation that is far ahead of all clocks. Returns that generation.

    A wrong clock drew such a generation. Each later draw is the last + 1, until the clocks reach it.
    Raises WrongUse when the generation is not far ahead, ClockBehind when only this machine's clock is behind.
    """

    def accept(register: Register) -> Register:
        now, server = ledger.clock(), ledger.store.time()
        if register.generation - now <= MAX_CLOCK_DIFFERENCE_MS:
            raise WrongUse(
                f"the last generation of {ledger.stream} is not far ahead of this machine's clock: nothing to do"
            )
        if server is not None and server - now > MAX_CLOCK_DIFFERENCE_MS:
            raise _behind(ledger, register.generation, now)
        accepted = AcceptedClock(generation=register.generation, reason=reason, at=now)
        return structs.replace(register, clock=accepted)

    return change(ledger, accept).generation


def _counts(register: Register) -> bool:
    """Whether the last generation was counted up from an accepted one."""
    return register.clock is not None and register.generation - register.clock.generation < MAX_CLOCK_DIFFERENCE_MS


def _behind(ledger: Ledger, generation: int, now: int) -> ClockBehind:
    said = f"the last generation of {ledger.stream} is {(generation - now) / 1000:.0f} s ahead of this machine's clock"
    server = ledger.store.time()
    if server is not None and generation - server > MAX_CLOCK_DIFFERENCE_MS >= server - now:
        return ClockBehind(
            f"{said}, and of that of the ledger's server: the clock that drew it was wrong. When it is right again, go on "
            f"with: tidemark ledger clock {ledger.stream} --accept --reason ..."
        )
    return ClockBehind(f"{said}: set the clock that is wrong (this one, or that of the machine that drew it)")


def check_clock(ledger: Ledger) -> None:
    """Raises ClockAhead when this machine's clock is far ahead of that of the ledger's server."""
    _check_not_ahead(ledger, ledger.clock())


def latest_clock(ledger: Ledger) -> int:
    """This machine's time or that of the ledger's server, whichever is later: an earlier restoration may have had either.

    They differ by as much as clocks may.
    """
    now = ledger.clock()
    return max(now, min(ledger.store.time() or 0, now + MAX_CLOCK_DIFFERENCE_MS))


def _check_not_ahead(ledger: Ledger, now: int) -> None:
    server = ledger.store.time()
    if server is not None and now - server > MAX_CLOCK_DIFFERENCE_MS:
        raise ClockAhead(
            f"this machine's clock is {(now - server) / 1000:.0f} s ahead of that of the ledger's server. A generation that "
            f"it draws would stop all other runs of {ledger.stream} for so long: set the clock that is wrong"
        )


def change(ledger: Ledger, edit: Callable[[Register], Register]) -> Register:
    """Change the register by compare-and-set. `edit` gets the newest one, and runs again after another writer was faster."""
    while True:
        current = ledger.register() or _create(ledger)
        stored, register = current
        try:
            edited = edit(register)
        except LedgerContradiction:
            # The edit may have read values that are newer than this register. It is a contradiction only if the register
            # has not changed since.
            newest = ledger.register()
            if newest is None or newest[0] == stored:
                raise
            continue
        if edited is register:
            return register
        check_in_use(register)
        edited = given_up(ledger, edited)
        edited = structs.replace(edited, token=new_token())
        value = encode(edited)
        check_size(ledger.store, value, f"the register of {ledger.stream}", "close lanes that are open and not needed")
        try:
            swap_surely(ledger.store, REGISTER, stored, value, _has_token(edited.token))
        except CompareAndSetFailed:
            continue
        return edited


def _has_token(token: str) -> Callable[[bytes], bool]:
    return lambda stored: decode(stored, Register, "the register").token == token


def _create(ledger: Ledger) -> tuple[bytes, Register]:
    """The first register of a stream. Raises LedgerContradiction when the stream already has heads or history."""
    orphan = next(iter(ledger.store.scan(("head",))), None) or next(iter(ledger.store.scan(("history",))), None)
    if orphan is not None:
        # Another first run may have made the register, and then this value, since this run looked for the register.
        if (stored := ledger.register()) is not None:
            return stored
        raise LedgerContradiction(f"{ledger.stream} has {'/'.join(orphan[0])} and no register: it was lost. {REMEDY}.")
    ledger.store.prepare()
    register = Register(stream=ledger.stream, ledger=new_token(), generation=0, token=new_token())
    value = encode(register)
    try:
        swap_surely(ledger.store, REGISTER, None, value, _has_token(register.token))
    except CompareAndSetFailed:
        stored = ledger.register()
        if stored is None:
            raise LedgerContradiction(f"the register of {ledger.stream} was there and is gone") from None
        return stored
    return value, register


def change_topics(ledger: Ledger, edit: Callable[[Topics], Topics]) -> Topics:
    """Change the topics in the register. Returns all of them."""

    def edited(register: Register) -> Register:
        topics = edit(register.topics)
        return register if topics is register.topics else structs.replace(register, topics=topics)

    return change(ledger, edited).topics


class NewLane(Struct, frozen=True, kw_only=True):
    """A lane to open. `start` is where its selection begins; for the ingest, where it reads on."""

    lane: str
    kind: LaneKind
    run: str
    start: tuple[Position, ...]
    selection: SelectionRef | None = None
    reason: str | None = None
    asked_by: str | None = None
    approved_by: str | None = None
    rate: int | None = None
    sinks: tuple[str, ...] | None = None
    erases: Erasure | None = None
    asked: RunRequest | None = None


def open_lane(
    ledger: Ledger,
    lane: str,
    kind: LaneKind,
    *,
    run: str,
    start: tuple[Position, ...],
    selection: SelectionRef | None = None,
    reason: str | None = None,
    sinks: tuple[str, ...] | None = None,
) -> StoredHead:
    """Open one lane, as `open_together`."""
    wanted = NewLane(lane=lane, kind=kind, run=run, start=start, selection=selection, reason=reason, sinks=sinks)
    (opened,) = open_together(ledger, wanted)
    return opened


def open_together(
    ledger: Ledger, *wanted: NewLane, judge: Callable[[LedgerSnapshot], None] | None = None
) -> list[StoredHead]:
    """Open lanes in one step, all or none, and return their heads. Repeating it, as after a crash, returns the same heads.

    The head of a finished lane is closed. Raises ClaimOverlap when another open lane has claimed some of the offsets;
    WrongUse when the offsets do not suit the kind (a replay takes covered offsets, a backfill all others, an erasure
    both); OffsetsErased when some were erased; LaneClosed when the name was used before for other offsets or sinks;
    AnotherRequest when it was used for another request; Conflict when the open lane has other offsets, another order or
    other sinks. Only a replay writes some `sinks` alone: the others already have the rows.

    `judge` gets the ledger as it is when new lanes are entered, and raises its objections: another lane may have come
    and gone since the caller looked.
    """
    # Finish half-closed lanes after a crash, so that these lanes give up their claims.
    open_lanes(ledger)

    def enter(register: Register) -> Register:
        # One look for all lanes: two of them could differ, and each reads the whole history.
        seen = cache(lambda: _ClaimedState(ledger.head(INGEST), ledger.view()))
        before = register
        for lane in wanted:
            register = _entered(ledger, register, lane, seen)
        if judge is not None and register is not before:
            judge(seen().view)
        return register

    entries = change(ledger, enter).lanes
    return [
        _opened(ledger, lane.lane, entries[lane.lane]) if lane.lane in entries else required_head(ledger, lane.lane)
        for lane in wanted
    ]


@dataclass(frozen=True)
class _ClaimedState:
    """The state that claims are compared with. The ingest's head is read before the windows, so none lies between the two."""

    ingest: StoredHead | None
    view: LedgerSnapshot


def _entered(ledger: Ledger, register: Register, wanted: NewLane, seen: Callable[[], _ClaimedState]) -> Register:
    """The register with a lane that is opening. The same register if the lane is open, or done."""
    known = register.lanes.get(wanted.lane)
    if known is not None:
        _check_same(ledger, known, wanted)
        return register
    if (before := ledger.head(wanted.lane)) is not None:
        _check_done(ledger, before.head, wanted)
        return register
    if ledger.record(wanted.lane, 1) is not None:
        raise LedgerContradiction(f"{ledger.stream}/{wanted.lane} has committed windows and no head. {REMEDY}.")
    if wanted.sinks is not None and (wanted.kind != LaneKind.REPLAY or not wanted.sinks):
        raise WrongUse(f"{ledger.stream}/{wanted.lane}: only a replay writes some sinks alone, and it names them")
    _check_claim(ledger, register, wanted.kind, wanted.selection, seen)
    entry = LaneEntry(
        kind=wanted.kind,
        state=LaneState.OPENING,
        token=new_token(),
        opened_at=ledger.clock(),
        run=wanted.run,
        reason=wanted.reason,
        start=wanted.start,
        until=_ends(ledger, wanted.start, wanted.selection),
        selection=wanted.selection,
        asked_by=wanted.asked_by,
        approved_by=wanted.approved_by,
        rate=wanted.rate,
        sinks=wanted.sinks,
        erases=wanted.erases,
        asked=wanted.asked,
    )
    return structs.replace(register, lanes={**register.lanes, wanted.lane: entry})


def required_head(ledger: Ledger, lane: str) -> StoredHead:
    """A lane's head; a half-opened lane gets its head now.

    Raises WrongUse for a lane that never was, and LedgerContradiction when the head was lost.
    """
    stored = ledger.head(lane)
    if stored is not None:
        return stored
    register = ledger.register()
    entry = register[1].lanes.get(lane) if register else None
    if entry is not None:
        return _opened(ledger, lane, entry)
    closed = register is not None and any(lane in part for part in closed_lanes(ledger, register[1]))
    if closed or ledger.record(lane, 1) is not None:
        raise LedgerContradiction(f"the head of {ledger.stream}/{lane} is missing. {REMEDY}.")
    raise WrongUse(f"{ledger.stream} has no lane {lane}")


def open_lanes(ledger: Ledger) -> dict[str, StoredHead]:
    """The heads of the open lanes. Finishes openings and closings that a crash interrupted, or that are under way.

    Raises WrongUse for a ledger that was retired.
    """
    register = ledger.register()
    if register is not None:
        check_in_use(register[1])
    open_now = register[1].lanes if register else {}
    heads = ledger.heads_of(open_now)
    for lane, entry in open_now.items():
        if lane not in heads or entry.state == LaneState.OPENING:
            heads[lane] = _opened(ledger, lane, entry)
        if heads[lane].head.state == LaneState.CLOSED:
            close_lane(ledger, lane)
            del heads[lane]
    return heads


def _opened(ledger: Ledger, lane: str, entry: LaneEntry) -> StoredHead:
    """The head of a lane in the register. An opening lane is marked as open."""
    head = _head_of(ledger, lane, entry)
    if entry.state == LaneState.OPENING:
        change(ledger, lambda register: _marked(register, lane, LaneState.OPEN))
    return head


def _ends(ledger: Ledger, start: tuple[Position, ...], selection: SelectionRef | None) -> tuple[int, ...]:
    """Where a selection ends in each partition, in the order of `start`; empty if the selection does not begin at `start`."""
    if selection is None:
        return ()
    hull = {range_.partition: (range_.start, range_.until) for range_ in ledger.selection(selection).hull()}
    if {position.at: position.offset for position in start} != {at: begins for at, (begins, _) in hull.items()}:
        return ()
    return tuple(hull[position.at][1] for position in start)


def _head_of(ledger: Ledger, lane: str, entry: LaneEntry) -> StoredHead:
    """The lane's head, made from the register's entry if it is missing. Every run makes the same head."""
    current = ledger.head(lane)
    if current is not None:
        return current
    if entry.state != LaneState.OPENING:
        raise LedgerContradiction(
            f"the head of {ledger.stream}/{lane} is missing, although the register says that the lane is "
            f"{entry.state.value}. It never starts over. {REMEDY}."
        )
    head = Head(
        stream=ledger.stream,
        lane=lane,
        kind=entry.kind,
        state=LaneState.OPEN,
        token=entry.token,
        seq=0,
        positions=entry.start,
        asked=entry.asked,
    )
    # CompareAndSetFailed: another run made the head, and may have changed it since.
    with suppress(CompareAndSetFailed):
        swap_surely(ledger.store, head_key(lane), None, encode(head), lambda stored: stored == encode(head))
    current = ledger.head(lane)
    if current is None:
        raise LedgerContradiction(f"the head of {ledger.stream}/{lane} was made and is gone")
    return current


def pause_lane(ledger: Ledger, lane: str, paused: Paused | None) -> None:
    """Let no further window of an open lane begin; with None, let windows begin again. Raises WrongUse for other lanes."""
    if lane == INGEST:
        raise WrongUse(f"{ledger.stream}/{INGEST} is paused and resumed in Airflow, with its DAG")

    def edit(register: Register) -> Register:
        entry = register.lanes.get(lane)
        if entry is None:
            raise WrongUse(f"{ledger.stream} has no open lane {lane}")
        return structs.replace(register, lanes={**register.lanes, lane: structs.replace(entry, paused=paused)})

    change(ledger, edit)


def check_not_paused(ledger: Ledger, lane: str) -> None:
    """Raises LanePaused for a lane of which no further window may begin now."""
    stored = ledger.register()
    entry = stored[1].lanes.get(lane) if stored else None
    if entry is not None and entry.paused is not None:
        raise LanePaused(
            f"{ledger.stream}/{lane} is paused: {entry.paused.reason}. What it has committed stays, and what it has not read "
            f"stays claimed. To go on: tidemark resume {ledger.stream} {lane}, then run it again (in Airflow: clear its task)"
        )


def close_lane(ledger: Ledger, lane: str, because: str | None = None) -> None:
    """Mark a settled lane with nothing pending as closed, then release its claim. Its name is never used again.

    Goes on where an earlier try has stopped; a closed lane stays as it is. `because` is why a lane is closed before it is
    done. Raises WrongUse for a lane that does not exist, Conflict for a lane with unfinished work.
    """
    if lane == INGEST:
        raise WrongUse(f"{ledger.stream}/{INGEST} is never closed: the stream goes on in it")
    while True:
        stored = required_head(ledger, lane)
        head = stored.head
        if head.pending is not None:
            raise Conflict(
                f"{ledger.stream}/{lane} has window {head.pending.window.seq} pending: finish it by running it again, or give "
                f"it up (tidemark ledger abandon {ledger.stream} {lane} --reason ...). Then the lane can be closed"
            )
        if head.state != LaneState.CLOSED:
            # A closed head was settled before, whatever the mark says: a backup has no marks.
            if head.last is not None and not ledger.is_settled(head.last):
                raise Conflict(
                    f"window {head.seq} of {ledger.stream}/{lane} is committed and not settled yet: any run of {ledger.stream} "
                    "settles it. Then the lane can be closed"
                )
            closed = structs.replace(head, state=LaneState.CLOSED, token=new_token(), closed_early=because)
            try:
                swap_surely(ledger.store, head_key(lane), stored.bytes, encode(closed), _closed_by(closed.token))
            except CompareAndSetFailed:
                continue
            head = closed
        _release(ledger, head)
        return


def _release(ledger: Ledger, head: Head) -> None:
    # Always after the last commit, whatever the clocks say: `newest_windows` depends on this order.
    closed_at = max(ledger.clock(), head.last.committed_at + 1 if head.last else 0)
    change(
        ledger,
        lambda register: _marked(
            register,
            head.lane,
            LaneState.CLOSED,
            closed_at=closed_at,
            windows=head.seq,
            closed_early=head.closed_early,
        ),
    )


def _closed_by(token: str) -> Callable[[bytes], bool]:
    return lambda stored: decode(stored, Head, "the head").token == token


def _marked(register: Register, lane: str, state: LaneState, **more: Any) -> Register:
    """The register with this state of a lane. Unknown lanes change nothing: a closed lane has left the register."""
    entry = register.lanes.get(lane)
    if entry is None:
        return register
    return structs.replace(register, lanes={**register.lanes, lane: structs.replace(entry, state=state, **more)})


def check_asked(stream: str, run: str, before: RunRequest | None, now: Mapping[str, str]) -> None:
    """Raises AnotherRequest when a run's name was used for another request, which `before` has."""
    if before is None:
        raise AnotherRequest(
            f"run {run} of {stream} has begun before, and the ledger does not say what it has asked for: another version of "
            "Tidemark has opened its lane, or the ledger was rebuilt. Nothing was changed. To go on with what the run has "
            f"claimed, name it on the command line and nothing else (--run {run}); in Airflow, clear only the tasks after "
            "`check`. Otherwise ask again under another name of the run"
        )
    if before.fields == now:
        return
    names = [name for name in dict.fromkeys([*before.fields, *now]) if before.fields.get(name) != now.get(name)]
    differ = "; ".join(
        f"{name} was {before.fields.get(name, 'left empty')}, and is {now.get(name, 'left empty')}" for name in names
    )
    raise AnotherRequest(
        f"run {run} of {stream} has begun with another request: {differ}. A run's name stands for one request. Nothing was "
        "changed. Ask for this under another name of the run"
    )


def _check_same(ledger: Ledger, known: LaneEntry, wanted: NewLane) -> None:
    if wanted.asked is not None:
        check_asked(ledger.stream, wanted.run, known.asked, wanted.asked.fields)
    if (known.kind, known.selection, known.erases) != (wanted.kind, wanted.selection, wanted.erases):
        raise Conflict(f"{ledger.stream}/{wanted.lane} is open already, for other offsets or as another kind of lane")
    if known.sinks != wanted.sinks:
        into = "all sinks" if known.sinks is None else f"{', '.join(known.sinks)} alone"
        raise Conflict(f"{ledger.stream}/{wanted.lane} is open already, and writes {into}")


def _check_done(ledger: Ledger, head: Head, wanted: NewLane) -> None:
    """Raises unless a lane that is not open in the register is done, with exactly the wanted offsets and sinks."""
    if head.state != LaneState.CLOSED:
        raise LedgerContradiction(f"{ledger.stream}/{head.lane} has a head, and the register does not know the lane")
    check_not_early(head)
    if wanted.asked is not None:
        check_asked(ledger.stream, wanted.run, head.asked, wanted.asked.fields)
    same = (wanted.kind, wanted.selection, wanted.sinks)
    if head.last is None or (head.kind, head.last.window.selection, head.last.window.sinks) != same:
        raise LaneClosed(f"{ledger.stream}/{head.lane} is closed; a lane's name is used once, so choose another")


def check_not_early(head: Head) -> None:
    """Raises LaneClosed for a lane that was closed before it was done."""
    if head.closed_early is not None:
        raise LaneClosed(
            f"{head.stream}/{head.lane} was closed before it was done: {head.closed_early}. A lane's name is used once: "
            "ask again under another name of the run"
        )


def _check_claim(
    ledger: Ledger,
    register: Register,
    kind: LaneKind,
    selection: SelectionRef | None,
    seen: Callable[[], _ClaimedState],
) -> None:
    """Compare a claim with what was `seen` after the register. It is valid while the register's bytes do not change."""
    if kind == LaneKind.INGEST:
        return
    if selection is None:
        raise WrongUse(f"a {kind.value} needs a selection of offsets")
    ingest = seen().ingest
    if ingest is None or INGEST not in register.lanes:
        raise WrongUse(
            f"{ledger.stream} has no ingest lane yet, which says where live reading begins: run the ingest once first"
        )
    wanted = ledger.selection(selection)
    live = _at_or_above(wanted, ingest.head)
    if live:
        raise ClaimOverlap(
            f"{named_ranges(live, register.topics)}: at or above the ingest position, so the ingest reads it; ask for what "
            "lies below"
        )
    for name, lane in register.lanes.items():
        if lane.selection is None:
            continue
        shared = wanted & ledger.selection(lane.selection)
        if shared:
            raise ClaimOverlap(
                f"{named_ranges(shared, register.topics)}: claimed by the open lane {name} (run {lane.run}); wait until it is "
                f"closed. If that run is given up for good, free its claim: tidemark cancel {ledger.stream} {name} --reason ..."
            )
    _check_suits(seen().view, kind, wanted)


def _check_suits(view: LedgerSnapshot, kind: LaneKind, wanted: RangeSet) -> None:
    """Raises OffsetsErased for what was erased, WrongUse for offsets that do not suit the kind of lane."""
    topics = view.register.topics if view.register else {}
    # No lane claims what was erased, and an erasure claims what it erases until it is closed. So nothing brings it back.
    if gone := wanted & erased(view.windows):
        raise OffsetsErased(f"{named_ranges(gone, topics)}: erased, and nothing reads it again. Leave it out")
    covered = view.authority.covered()
    if kind == LaneKind.REPLAY and (unknown := wanted - covered):
        raise WrongUse(
            f"{named_ranges(unknown, topics)}: in no committed window, so there is nothing to replay; a backfill reads it"
        )
    if kind == LaneKind.BACKFILL and (known := wanted & covered):
        raise WrongUse(f"{named_ranges(known, topics)}: committed already; a replay reads it again")


def _at_or_above(wanted: RangeSet, ingest: Head) -> RangeSet:
    """The part of `wanted` that the ingest claims: all offsets that are not below one of its positions."""
    below = RangeSet(OffsetRange(position.at, 0, position.offset) for position in ingest.positions)
    return wanted - below


def named_ranges(ranges: RangeSet, topics: Topics | None = None, limit: int = 5) -> str:
    """The first of some ranges, for an error."""
    shown = [written_range(topics or {}, range_) for range_ in ranges]
    return ", ".join(shown[:limit]) + (
        f" and {number_of(len(shown) - limit, 'more range')}" if len(shown) > limit else ""
    )
