"""The commit protocol: how offsets and results become valid together, in one atomic step.

    1 pin      settle all lanes; pin the next window of a lane: ranges that are never resolved again
    2 take     draw a generation and write it into the pending window: the fence against older attempts
    3 read     exactly the pinned ranges, once for all sinks
    4 store    dead letters and results, each row marked with the generation
    5 verify   messages read = acknowledged by the sinks + skipped + dead letters; and Kafka is still the same
    6 commit   one compare-and-set on the head: positions move, results begin to count
    7 settle   offsets for other tools, sweep of rows that older attempts left, copies for others, last the history record
               (or a mark)

After a crash at any step, run again: the next run uses a pending window as it is, and settles an unsettled one first.
An attempt without a commit has marked its rows with its own generation, which never becomes valid.

Steps 3 to 5 are the work on the data (`Work`), which `tidemark.spark` does with Spark. This module has the other steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from msgspec import structs

from tidemark.errors import (
    AlreadyCommitted,
    Conflict,
    Fenced,
    HeldByAnother,
    LaneClosed,
    LedgerContradiction,
    OutcomeUnknown,
    StaleLedger,
    TidemarkError,
    Unreachable,
    WrongUse,
)
from tidemark.ledger.codec import decode, digest, encode
from tidemark.ledger.covered import is_due, keep_covered
from tidemark.ledger.erasures import WrittenPlace, erasures_since, places_to_clear, still_there
from tidemark.ledger.ledger import Ledger, StoredHead, head_key, record_key
from tidemark.ledger.limits import check_pending, check_size
from tidemark.ledger.records import (
    Abandoned,
    Attempt,
    Guarantee,
    Head,
    LaneKind,
    LaneState,
    Pending,
    Position,
    Receipt,
    Record,
    SinkReceipt,
    Window,
    exported,
    positions,
)
from tidemark.ledger.register import (
    check_not_early,
    draw_generation,
    new_token,
    open_lanes,
    required_head,
)
from tidemark.ledger.stores.doubt import CompareAndSetFailed, swap_surely
from tidemark.offsets.ranges import RangeSet

# A holder writes a heartbeat each second (`fence.BEAT_SECONDS`). After thirty missed ones it is gone or paused.
# A shorter lease would take windows from machines that are only busy. A longer one would only delay another run.
# Correctness does not depend on the lease: the generation is the fence.
LEASE_MS = 30_000

MAX_REASON = 500


class Step(StrEnum):
    """A step that was just done. A `Listener` hears of the steps in this order."""

    PINNED = "pinned"
    TAKEN = "taken"
    READ = "read"
    DEAD_LETTERS_STORED = "dead letters stored"
    SINK_STORED = "sink stored"
    VERIFIED = "verified"
    COMMITTED = "committed"
    PUBLISHED = "offsets published"
    SWEPT = "swept"
    SETTLED = "settled"


Listener = Callable[[Step], None]


def nobody(step: Step) -> None:
    """A listener that does not listen."""


class Fence(Protocol):
    """Tells an attempt whether it still holds its window."""

    def check(self) -> None:
        """Raises Fenced when a newer attempt has taken the window."""
        ...


class Work(Protocol):
    """Steps 3 to 5 on one window. Each raises a TidemarkError, and then nothing is committed."""

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        """Read the window, once for all sinks. The rows may go on to the first of them in the same pass."""
        ...

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None: ...

    def verify(self) -> Receipt: ...


class Sweeper(Protocol):
    """Removes rows of older attempts from the places that they have named.

    What it cannot remove stops the stream: each pin settles all lanes first. So errors name the place, and how to go on
    without it (`ledger/places.py`).
    """

    def reach(self, stream: str, places: Sequence[WrittenPlace]) -> None:
        """Ask each place's server whether `erase` will find it. Called before a window is committed that erases something.

        Raises what `erase` would raise.
        """
        ...

    def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None:
        """Remove rows with a generation *lower* than the record's, at the offsets `covers`. Repeatable.

        `places`: those of the record, without any that is gone for good.
        """
        ...

    def erase(self, record: Record, erased: RangeSet, places: Sequence[WrittenPlace]) -> None:
        """Remove what older attempts have written of offsets that this window covers and has erased. Repeatable.

        `places`: where any attempt of the stream may have written, without any that is gone for good.
        """
        ...


@runtime_checkable
class SupportsCompare(Protocol):
    """A Sweeper whose places say which windows they have shown."""

    def compare(self, ledger: Ledger, more: Iterable[SinkReceipt] = ()) -> None:
        """Look whether the places know more than the ledger, which then has gone back: see `ledger/rollbacks.py`.

        `more`: places that the ledger may have forgotten.
        """
        ...


@runtime_checkable
class SupportsOwnerCheck(Protocol):
    """A Sweeper whose places say which ledger they belong to."""

    def check_owners(self, ledger: Ledger, record: Record) -> None:
        """Called before a window is settled.

        Raises OwnedByAnother for a place of a ledger that took the place of this one: that may count what is swept here.
        """
        ...


@runtime_checkable
class SupportsCopies(Protocol):
    """A Sweeper that gives away copies of what a committed window has made."""

    def hand_on(self, ledger: Ledger, record: Record) -> None:
        """Copy what others wait for, and return when they have it. Repeatable: then they have it more than once.

        It is called until it has come to its end. What it raises stops the stream, as what a sweep raises does.
        """
        ...


@dataclass(frozen=True)
class Run:
    """A run: the name that a retry shares with the first try, and the versions of its code and stream file.

    `task`: drawn by the task that began it, which a retry shares too; empty without Airflow. Two Airflows give runs of
    the same name, as that of a time of the schedule, and each of them has drawn another.
    """

    name: str
    code_version: str
    stream_digest: str
    task: str = ""

    def is_tried_again(self, holder: Attempt) -> bool:
        """Whether the holder of a window is an earlier try of this run."""
        return (holder.run, holder.task) == (self.name, self.task)


@dataclass(frozen=True)
class HeldWindow:
    """A window that this attempt holds, with the bytes of the head that the commit expects."""

    stored: StoredHead
    pending: Pending
    attempt: Attempt


Planner = Callable[[Head], Window | None]


def pin(ledger: Ledger, sweeper: Sweeper, lane: str, plan: Planner, on_step: Listener = nobody) -> Pending | None:
    """Step 1. The lane's pending window, pinned now if there was none; None when there is nothing to read.

    `plan` gives the next window for a settled head. When a window is pending already, `plan` is not called: a retry never
    looks at 'latest' again. Raises what `plan` raises, LaneClosed, TooLarge.
    """
    while True:
        # The pin expects the bytes that were settled. If the head moves meanwhile, the loop settles and reads it again.
        settled = {name: _settled(ledger, sweeper, stored) for name, stored in open_lanes(ledger).items()}
        if lane not in settled:
            raise LaneClosed(f"{ledger.stream} has no open lane {lane}")
        current = settled[lane]
        head = current.head
        if head.pending is not None:
            ledger.check_pending(head)
            return head.pending
        window = plan(head)
        if window is None:
            return None
        pending = Pending(window=window, token=new_token(), previous=_digest_of_last(ledger, head))
        check_pending(ledger.store, head, pending)
        try:
            _swap_head(ledger, current, structs.replace(head, pending=pending), _holds_pin(pending.token))
        except CompareAndSetFailed:
            continue
        on_step(Step.PINNED)
        return pending


def take(
    ledger: Ledger,
    lane: str,
    seq: int,
    run: Run,
    *,
    take_over: bool = False,
    on_step: Listener = nobody,
) -> HeldWindow:
    """Step 2. Make this attempt the holder of the pending window: older attempts can no longer commit.

    A retry of the same run takes the window at once. Another run is refused while the holder's heartbeat is younger than
    the lease, unless `take_over`.
    Raises HeldByAnother, AlreadyCommitted, StaleLedger, ClockBehind.
    """
    while True:
        # Read the head first, then draw: so the generation is newer than any in that head.
        stored = required_head(ledger, lane)
        pending = _pending_window(ledger, stored.head, seq)
        ledger.check_pending(stored.head)
        if not take_over:
            _respect_lease(ledger, lane, pending, run)
        generation, token = draw_generation(ledger)
        if pending.attempt is not None and pending.attempt.generation >= generation:
            raise LedgerContradiction(
                f"{ledger.stream}/{lane} holds generation {pending.attempt.generation}, "
                f"and the register has just given {generation}: the register was put back to an older state"
            )
        attempt = Attempt(
            generation=generation,
            token=token,
            run=run.name,
            taken_at=ledger.clock(),
            code_version=run.code_version,
            stream_digest=run.stream_digest,
            task=run.task,
        )
        pending = structs.replace(pending, attempt=attempt, takes=pending.takes + 1)
        head = structs.replace(stored.head, pending=pending)
        try:
            _swap_head(ledger, stored, head, _holds_attempt(token))
        except CompareAndSetFailed:
            continue
        on_step(Step.TAKEN)
        return HeldWindow(StoredHead(encode(head), head), pending, attempt)


def commit(ledger: Ledger, taken: HeldWindow, receipt: Receipt | None, on_step: Listener = nobody) -> Record:
    """Step 6. The atomic point: positions move, the window is no longer pending, its results count.

    Without a receipt, the window is committed before it is read (`at_most_once`).
    Raises Fenced when another attempt has taken or committed the window, OutcomeUnknown when no definite answer came.
    """
    head = taken.stored.head
    window = taken.pending.window
    record = Record(
        stream=ledger.stream,
        lane=head.lane,
        kind=head.kind,
        window=window,
        attempt=taken.attempt,
        receipt=receipt,
        positions=_moved(head, window),
        committed_at=_after(ledger.clock(), head.last),
        owes_sweep=_owes_sweep(head),
        previous=taken.pending.previous,
    )
    committed = structs.replace(
        head,
        seq=window.seq,
        positions=record.positions,
        pending=None,
        last=record,
        unpositioned=window.seq if window.guarantee == Guarantee.NONE else head.unpositioned,
    )
    value, recorded = encode(committed), encode(record)
    check_size(ledger.store, value, f"the head of {ledger.stream}/{head.lane}", "read fewer topics in one stream")
    offsets = exported(record, head.positions) if record.kind == LaneKind.INGEST else None
    key, history = head_key(head.lane), record_key(head.lane, window.seq)
    expected = taken.stored.bytes

    def is_mine(stored: bytes) -> bool:
        last = decode(stored, Head, head.lane).last
        if last is not None and last.seq == window.seq:
            return last.attempt.token == taken.attempt.token
        recorded = ledger.record(head.lane, window.seq)
        return recorded is not None and recorded[1].attempt.token == taken.attempt.token

    try:
        swap_surely(
            ledger.store,
            key,
            expected,
            value,
            is_mine,
            write=lambda: ledger.store.commit(key, expected, value, history, recorded, offsets),
        )
    except CompareAndSetFailed as problem:
        raise _lost(ledger, taken, problem.current) from None
    on_step(Step.COMMITTED)
    return record


def settle(ledger: Ledger, sweeper: Sweeper, lane: str, on_step: Listener = nobody) -> StoredHead:
    """Step 7. Do what the lane's last commit still leaves to do, and give the settled head.

    Everything follows from the head: any run may do it, and may repeat it. The last write marks the window as settled: the
    history record, or a mark in stores whose commit writes that record.
    """
    return _settled(ledger, sweeper, required_head(ledger, lane), on_step)


def _settled(ledger: Ledger, sweeper: Sweeper, stored: StoredHead, on_step: Listener = nobody) -> StoredHead:
    record = stored.head.last
    if record is None:
        return stored
    if ledger.is_settled(record):
        return stored
    if record.kind == LaneKind.INGEST:
        ledger.publish(record.committed_at, exported(record))
        on_step(Step.PUBLISHED)
    if record.owes_sweep:
        # A retired ledger leaves the rest to the one that replaces it: that may have gone on by now.
        ledger.check_in_use()
    if isinstance(sweeper, SupportsOwnerCheck):
        sweeper.check_owners(ledger, record)
    if gone := ledger.erases(record.window):
        sweeper.erase(record, gone, places_to_clear(ledger))
    if record.owes_sweep:
        sweeper.sweep(record, ledger.covers(record.window), still_there(ledger, record.places))
        on_step(Step.SWEPT)
    if isinstance(sweeper, SupportsCopies):
        sweeper.hand_on(ledger, record)
    ledger.mark_settled(record)
    if is_due(record):
        keep_covered(ledger, record)
    on_step(Step.SETTLED)
    return stored


def abandon(
    ledger: Ledger, lane: str, reason: str, *, take_over: bool = False, agreed: Window | None = None
) -> Window | None:
    """Give up the lane's pending window; the next window reads its offsets. Committed windows stay as they are.

    Raises HeldByAnother while the holder's heartbeat is younger than the lease, unless `take_over`. Raises Conflict when
    another window is pending than the one that somebody has `agreed` to give up.
    """
    check_reason("abandon", reason)
    while True:
        stored = required_head(ledger, lane)
        head = stored.head
        if head.pending is None:
            return None
        if agreed is not None and head.pending.window != agreed:
            raise Conflict(
                f"window {agreed.seq} of {ledger.stream}/{lane} is no longer pending, and window {head.pending.window.seq} of "
                f"run {head.pending.window.run} is: nothing was given up. Look at it, and ask again"
            )
        if not take_over:
            _respect_lease(ledger, lane, head.pending, None)
        before = head.abandoned.count if head.abandoned else 0
        attempt = head.pending.attempt
        abandoned = Abandoned(
            count=before + 1,
            token=new_token(),
            generation=attempt.generation if attempt else None,
            reason=reason,
            until=_furthest(head),
        )
        given_up = structs.replace(head, pending=None, abandoned=abandoned)
        try:
            _swap_head(ledger, stored, given_up, _abandoned_by(abandoned.token))
        except CompareAndSetFailed:
            continue
        return head.pending.window


def check_reason(what: str, reason: str) -> None:
    """Raises WrongUse for an empty reason, or one that is too long for a head."""
    if not reason.strip():
        raise WrongUse(f"{what} needs a reason")
    if len(reason) > MAX_REASON:
        raise WrongUse(f"the reason has {len(reason)} characters; {MAX_REASON} is the most that the head keeps")


def check_nobody_writes(ledger: Ledger, offsets: RangeSet | None = None) -> None:
    """Raises HeldByAnother while an attempt may still write some offsets of a window that it has committed before.

    No claim keeps it from that (`at_most_once`). What it wrote after an erasure has cleared the sinks would stay there, and
    its receipt would be lost if the ledger moved. Without `offsets`, those of all windows.
    """
    for window in ledger.committed():
        wanted = window.covers if offsets is None else offsets
        if window.record.receipt is not None or not (shared := window.covers & wanted):
            continue
        attempt = window.record.attempt
        if (age := _silent_ms(ledger, window.record.lane, attempt)) < LEASE_MS:
            raise HeldByAnother(
                f"{next(iter(shared))}: window {window.record.lane}/{window.record.seq}, which was committed before it was "
                f"read, is still written by run {attempt.run}, which gave a sign of life {max(age, 0) / 1000:.0f} s ago. Wait "
                f"until that run has ended, or {LEASE_MS / 1000:.0f} s after its last one"
            )


def process(
    ledger: Ledger,
    sweeper: Sweeper,
    work: Work,
    hold: Callable[[HeldWindow], AbstractContextManager[Fence]],
    lane: str,
    seq: int,
    run: Run,
    *,
    take_over: bool = False,
    on_step: Listener = nobody,
) -> Record:
    """Steps 2 to 7 on the pending window `seq` of a lane. Returns the record of the committed window.

    `hold` writes heartbeats while the attempt holds the window, and gives the fence to check.
    """
    taken = take(ledger, lane, seq, run, take_over=take_over, on_step=on_step)
    window = taken.pending.window
    if window.guarantee == Guarantee.AT_MAX_ONCE:
        return _at_most_once(ledger, sweeper, work, hold, taken, on_step)
    try:
        with hold(taken) as fence:
            receipt = _work(ledger, work, fence, taken, on_step)
            _check_reach(ledger, sweeper, window)
            record = commit(ledger, taken, receipt, on_step)
            settle(ledger, sweeper, lane, on_step)
    except Exception:
        if not _holds(ledger, taken):
            _clear_erased(ledger, sweeper, taken)
        raise
    return record


def _at_most_once(
    ledger: Ledger,
    sweeper: Sweeper,
    work: Work,
    hold: Callable[[HeldWindow], AbstractContextManager[Fence]],
    taken: HeldWindow,
    on_step: Listener,
) -> Record:
    """Steps 6 and 7 before 3 to 5. Whatever fails after the commit, no run reads these offsets again by itself.

    The receipt is stored apart from the record. While the receipt is missing, the window is unproven.
    """
    window = taken.pending.window
    _check_reach(ledger, sweeper, window)
    record = commit(ledger, taken, None, on_step)
    settle(ledger, sweeper, record.lane, on_step)
    try:
        with hold(taken) as fence:
            receipt = _work(ledger, work, fence, taken, on_step)
            ledger.store_receipt(record, receipt)
    finally:
        _clear_erased(ledger, sweeper, taken)
    return structs.replace(record, receipt=receipt)


def _check_reach(ledger: Ledger, sweeper: Sweeper, window: Window) -> None:
    """Settle what is committed before anything else is pinned, so that an unreachable place is found before."""
    if window.erases is not None:
        sweeper.reach(ledger.stream, places_to_clear(ledger))


def _holds(ledger: Ledger, taken: HeldWindow) -> bool:
    """Whether an attempt still holds its window. If so, nobody can have erased any of its messages."""
    stored = ledger.head(taken.stored.head.lane)
    return stored is not None and _holds_attempt(taken.attempt.token)(stored.head)


def _clear_erased(ledger: Ledger, sweeper: Sweeper, taken: HeldWindow) -> None:
    """Clear once more what was erased meanwhile: this attempt may have written it after the erasure had cleared the sinks.

    It looks at its fence between two writes, so one that was paused writes once before it finds that others went on.
    """
    since = erasures_since(ledger, ledger.covers(taken.pending.window), taken.attempt.generation)
    written = places_to_clear(ledger) if since else []
    for erasure in since:
        sweeper.erase(erasure.record, erasure.erased, written)


def _work(ledger: Ledger, work: Work, fence: Fence, taken: HeldWindow, on_step: Listener) -> Receipt:
    """Steps 3 to 5. An attempt that has lost its window is told so, whatever it is refused: others remove its work."""
    window = taken.pending.window
    try:
        work.read(window, ledger.reads(window), taken.attempt, fence)
        on_step(Step.READ)
        fence.check()
        work.store(taken.attempt, fence, on_step)
        receipt = work.verify()
    except Fenced:
        raise
    except TidemarkError:
        with suppress(Unreachable, OutcomeUnknown):
            fence.check()
        raise
    on_step(Step.VERIFIED)
    return receipt


def _swap_head(ledger: Ledger, before: StoredHead, head: Head, is_mine: Callable[[Head], bool]) -> None:
    key = head_key(head.lane)
    swap_surely(ledger.store, key, before.bytes, encode(head), lambda stored: is_mine(decode(stored, Head, head.lane)))


def _holds_pin(token: str) -> Callable[[Head], bool]:
    return lambda head: head.pending is not None and head.pending.token == token


def _holds_attempt(token: str) -> Callable[[Head], bool]:
    return lambda head: (
        head.pending is not None and head.pending.attempt is not None and head.pending.attempt.token == token
    )


def _abandoned_by(token: str) -> Callable[[Head], bool]:
    return lambda head: head.abandoned is not None and head.abandoned.token == token


def _digest_of_last(ledger: Ledger, head: Head) -> str | None:
    if head.last is None:
        return None
    record = ledger.record(head.lane, head.seq)
    if record is None:
        raise StaleLedger(f"window {head.seq} of {ledger.stream}/{head.lane} is not settled")
    return digest(record[0])


def _pending_window(ledger: Ledger, head: Head, seq: int) -> Pending:
    if head.seq >= seq:
        by = ledger.record(head.lane, seq)
        run = by[1].attempt.run if by else head.last.attempt.run if head.last else "unknown"
        raise AlreadyCommitted(f"window {seq} of {ledger.stream}/{head.lane} is already committed, by run {run}")
    if head.state == LaneState.CLOSED:
        check_not_early(head)
        raise LaneClosed(f"{ledger.stream}/{head.lane} is closed")
    if head.pending is None or head.pending.window.seq != seq:
        raise StaleLedger(
            f"window {seq} of {ledger.stream}/{head.lane} is no longer pending: it was abandoned. Plan again."
        )
    return head.pending


def _respect_lease(ledger: Ledger, lane: str, pending: Pending, run: Run | None) -> None:
    """Raises HeldByAnother while the holder is alive, unless the holder is an earlier try of the same run."""
    holder = pending.attempt
    if holder is None or (run is not None and run.is_tried_again(holder)):
        return
    age = _silent_ms(ledger, lane, holder)
    if age < LEASE_MS:
        said = (
            f"window {pending.window.seq} of {ledger.stream}/{lane} is held by run {holder.run}, which gave a sign of life "
            f"{max(age, 0) / 1000:.0f} s ago. Wait {LEASE_MS / 1000:.0f} s after its last one, or take over if it is dead."
        )
        if run is not None and holder.run == run.name:
            said += (
                " That run has the name of this one, and another task has begun it, as where two Airflows run a stream on "
                "one ledger. Pause the stream's DAGs in one of the two"
            )
        raise HeldByAnother(said)


def _silent_ms(ledger: Ledger, lane: str, holder: Attempt) -> int:
    """How long ago an attempt gave its last sign of life; as long as the lease for one that says nothing about now.

    A sign that lies further in the future than the lease was given by a clock that is ahead, or was. Waiting for it would stop
    all others for as long, if its holder is dead. If it is alive, it loses its window to whoever asks for it, and no more.
    """
    beat, now = ledger.last_beat(lane), ledger.clock()
    at = beat.at if beat is not None and beat.generation == holder.generation else holder.taken_at
    return now - at if at - now <= LEASE_MS else LEASE_MS


def _moved(head: Head, window: Window) -> tuple[Position, ...]:
    if window.guarantee == Guarantee.NONE:
        return head.positions
    offsets = head.offsets()
    offsets.update({range_.at: range_.until for range_ in window.ranges})
    return positions(offsets)


def _after(now: int, last: Record | None) -> int:
    """The commit's time: always later than the lane's last commit, whatever the clocks say."""
    return now if last is None else max(now, last.committed_at + 1)


def _required_pending(head: Head) -> Pending:
    if head.pending is None:
        raise LedgerContradiction(f"{head.stream}/{head.lane} has no pending window to commit")
    return head.pending


def _owes_sweep(head: Head) -> bool:
    """Whether an earlier attempt may have left rows at the offsets of the pending window."""
    pending = _required_pending(head)
    guarantee = pending.window.guarantee
    if guarantee == Guarantee.AT_MAX_ONCE:
        # An earlier attempt committed nothing, so it wrote nothing. No sweep may remove the rows that come after the commit.
        return False
    # Without positions, windows of the same lane cover the same offsets again.
    if head.kind != LaneKind.INGEST or pending.takes > 1 or guarantee == Guarantee.NONE:
        return True
    return _given_up_before(head, pending)


def _given_up_before(head: Head, pending: Pending) -> bool:
    """Whether an abandoned window had offsets of this one: one window or several pin them again."""
    if head.abandoned is None:
        return False
    given_up = {position.at: position.offset for position in head.abandoned.until}
    return any(range_.at in given_up and given_up[range_.at] > range_.start for range_ in pending.window.ranges)


def _furthest(head: Head) -> tuple[Position, ...]:
    """Where the furthest abandoned window of this lane ends in each partition; the pending window counts too."""
    offsets = {position.at: position.offset for position in head.abandoned.until} if head.abandoned else {}
    for range_ in head.pending.window.ranges if head.pending else ():
        offsets[range_.at] = max(range_.until, offsets.get(range_.at, range_.until))
    return positions(offsets)


def _lost(ledger: Ledger, taken: HeldWindow, current: bytes | None) -> Exception:
    lane, seq = taken.stored.head.lane, taken.pending.window.seq
    if current is None:
        return LedgerContradiction(f"the head of {ledger.stream}/{lane} is gone")
    head = ledger.head_in(lane, current).head
    if head.seq >= seq:
        recorded = ledger.record(lane, seq)
        winner = head.last if head.seq == seq else recorded[1] if recorded else None
        by = f"run {winner.attempt.run} (generation {winner.attempt.generation})" if winner else "another run"
        return Fenced(
            f"window {seq} of {ledger.stream}/{lane} was committed by {by}; this attempt's results do not count"
        )
    holder = head.pending.attempt if head.pending else None
    by = f"run {holder.run} (generation {holder.generation})" if holder else "nobody: it was abandoned"
    return Fenced(f"window {seq} of {ledger.stream}/{lane} is now held by {by}; this attempt's results do not count")
