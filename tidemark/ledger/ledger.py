"""The ledger of one stream: reads and writes its stored values as typed records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar

from msgspec import structs

from tidemark.errors import LedgerContradiction, LedgerUnreadable, TidemarkError, WrongUse
from tidemark.ledger.codec import RESTORE, decode, decode_what_is_known, digest, encode
from tidemark.ledger.limits import check_size
from tidemark.ledger.records import (
    INGEST,
    Attempt,
    AuditOutcome,
    BlocksRef,
    BlockTallies,
    Gap,
    Guarantee,
    Head,
    Heartbeat,
    JobProgress,
    LaneState,
    LateReceipt,
    Receipt,
    Record,
    Register,
    SelectionRef,
    TopicIncarnation,
    Window,
    covers,
)
from tidemark.ledger.retirement import check_in_use
from tidemark.ledger.selections import Selections
from tidemark.ledger.stores.contract import Key, LedgerStore, Offsets, sortable
from tidemark.ledger.stores.doubt import CompareAndSetFailed, swap_surely
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

log = logging.getLogger(__name__)

NOTHING = RangeSet()
Advisory = TypeVar("Advisory", AuditOutcome, Heartbeat, JobProgress)

REGISTER: Key = ("register",)
LAST_AUDIT: Key = ("audited",)
# Stands among the signs of life of lanes. No lane has this name.
_PROGRESS: Key = ("beat", "audit")
AUDITS: Key = ("audits",)

# The remedy for a lost register, head or page.
REMEDY = f"{RESTORE}. Or make it again from the history: tidemark ledger rebuild STREAM FILE"


def now_ms() -> int:
    """Milliseconds since 1970, by this machine's clock."""
    return time.time_ns() // 1_000_000


def head_key(lane: str) -> Key:
    return ("head", lane)


def record_key(lane: str, seq: int) -> Key:
    return ("history", lane, sortable(seq))


def receipt_key(record: Record) -> Key:
    return ("receipt", record.lane, sortable(record.seq), record.attempt.token)


def blocks_key(lane: str, seq: int, attempt: Attempt) -> Key:
    return ("blocks", lane, sortable(seq), attempt.token)


def audit_key(audited: AuditOutcome) -> Key:
    """By day and time, so that the newest are found without reading or listing the others; two may end in one ms."""
    day = f"{datetime.fromtimestamp(audited.at / 1000, UTC):%Y-%m-%d}"
    return (*AUDITS, day, sortable(audited.at), digest(audited.run.encode()))


def settled_key(lane: str) -> Key:
    return ("settled", lane)


@dataclass(frozen=True)
class StoredHead:
    """A head with the exact bytes that were read. A compare-and-set expects those bytes."""

    bytes: bytes
    head: Head


@dataclass(frozen=True)
class Committed:
    """A committed window, the offsets that it covers, and those among them that it has erased."""

    record: Record
    covers: RangeSet
    erased: RangeSet = NOTHING

    @property
    def generation(self) -> int:
        return self.record.attempt.generation


@dataclass(frozen=True)
class CommittedSnapshot:
    """The committed windows at a moment, and the generations of the attempts that held a pending window then."""

    windows: tuple[Committed, ...]
    at_work: frozenset[int]
    # The ledger that this was read from.
    ledger: Ledger = field(compare=False, repr=False)

    @cached_property
    def _alive(self) -> frozenset[int]:
        return self.at_work | {window.generation for window in self.windows}

    def is_dead(self, generation: int, before: int) -> bool:
        """Whether nothing of a generation counts, and nothing ever will. `before`: one drawn before that moment."""
        return generation < before and generation not in self._alive


@dataclass(frozen=True)
class LedgerSnapshot:
    """All committed windows as they were read, the authority for a `sink`, and the number of each lane's last window.

    Without a sink, the authority is that of the offsets themselves, and of the dead letters. Windows that write only some
    sinks have no say in it. A decision is made of one view, however much it asks: two reads of the ledger may differ.
    """

    windows: list[Committed]
    authority: Authority
    seqs: dict[str, int]
    # How many lanes were closed at the time of this view.
    closed: int
    sink: str | None = None
    # Where nothing counts for readers, although windows cover it: see `Ledger.hiding`.
    hidden: RangeSet = NOTHING
    # The register and the heads of the lanes that were open, as read before the windows.
    register: Register | None = None
    heads: Mapping[str, Head] = field(default_factory=dict)

    def of(self, sink: str | None) -> LedgerSnapshot:
        """The same moment, with the authority for a sink."""
        if self.sink == sink or all(window.record.window.sinks is None for window in self.windows):
            return replace(self, sink=sink)
        return replace(self, authority=authority_of(self.windows, sink).without(self.hidden), sink=sink)

    @property
    def ingested(self) -> dict[TopicPartition, int]:
        """The ingest's positions after its last window in this view. Its head was read earlier, and may be behind."""
        head = self.heads.get(INGEST)
        seq = self.seqs.get(INGEST, 0)
        if head is None or seq == head.seq:
            return head.offsets() if head is not None else {}
        last = next(
            window.record for window in self.windows if (window.record.lane, window.record.seq) == (INGEST, seq)
        )
        return {position.at: position.offset for position in last.positions}

    @property
    def below(self) -> RangeSet:
        """All offsets below the ingest's positions."""
        return RangeSet(OffsetRange(at, 0, offset) for at, offset in self.ingested.items())


# A view of a ledger without a window.
NOTHING_SEEN = LedgerSnapshot([], Authority(()), {}, 0)


def authority_of(windows: Iterable[Committed], sink: str | None) -> Authority:
    """The authorities in a sink; with None, those of the offsets themselves and of the dead letters."""
    return Authority((window.generation, window.covers) for window in windows if window.record.window.counts_for(sink))


def _nothing(ledger: Ledger) -> None: ...


class Ledger:
    """Reading and writing one stream's ledger. `clock` gives milliseconds since 1970."""

    def __init__(
        self,
        store: LedgerStore,
        stream: str,
        clock: Callable[[], int] = now_ms,
        export: Callable[[Offsets], None] | None = None,
    ) -> None:
        """`export` shows committed offsets to tools that do not read the ledger's server. Tidemark goes on if it fails."""
        self.store = store
        self._export = export
        self.stream = stream
        self.clock = clock
        self._selections = Selections(store, stream)
        # The head that was read last: mostly it is read again. Heads of a thousand partitions take a while to decode.
        self._last: StoredHead | None = None
        self.hidden = NOTHING
        # Called before each draw of a generation, whoever begins to write for the stream: see `rollbacks.py`.
        self.before_draw: Callable[[Ledger], None] = _nothing

    def __getstate__(self) -> dict[str, Any]:
        """Spark's workers draw nothing."""
        return {**self.__dict__, "before_draw": _nothing}

    def hiding(self, hidden: RangeSet) -> Ledger:
        """The same ledger, in whose views nothing counts at some offsets: for readers of results alone."""
        if not hidden:
            return self
        made = copy(self)
        made.hidden = hidden
        return made

    def showing_all(self) -> Ledger:
        """The same ledger, which hides nothing."""
        if not self.hidden:
            return self
        made = copy(self)
        made.hidden = NOTHING
        return made

    # register and heads

    def register(self) -> tuple[bytes, Register] | None:
        stored = self.store.read(REGISTER)
        return None if stored is None else (stored, decode(stored, Register, self._name(REGISTER)))

    def check_in_use(self) -> None:
        """Raises WrongUse when the ledger was retired: see `retirement.py`."""
        if (register := self.register()) is not None:
            check_in_use(register[1])

    def register_of_windows(self) -> Register:
        """The register of a ledger that has committed something. Raises LedgerContradiction where it is lost."""
        versioned = self.register()
        if versioned is None:
            raise LedgerContradiction(f"{self.stream} has no register, although windows of it were committed")
        return versioned[1]

    def register_in_use(self) -> Register:
        """As `register_of_windows`. Raises WrongUse when the ledger was retired: another one knows what was published since."""
        register = self.register_of_windows()
        check_in_use(register)
        return register

    def topics(self) -> dict[str, tuple[TopicIncarnation, ...]]:
        """The topics that the ledger knows, with their incarnations."""
        register = self.register()
        return register[1].topics if register else {}

    def head(self, lane: str) -> StoredHead | None:
        stored = self.store.read(head_key(lane))
        return None if stored is None else self.head_in(lane, stored)

    def heads(self) -> dict[str, StoredHead]:
        """Every lane's head, closed lanes included."""
        return {key[1]: self.head_in(key[1], stored) for key, stored in self.store.scan(("head",))}

    def heads_of(self, lanes: Iterable[str]) -> dict[str, StoredHead]:
        """The heads of some lanes, in one read. Lanes without a head are left out."""
        names = list(lanes)
        heads = zip(names, self.store.read_several([head_key(name) for name in names]), strict=True)
        return {name: self.head_in(name, stored) for name, stored in heads if stored is not None}

    def head_in(self, lane: str, stored: bytes) -> StoredHead:
        """The head of a lane in these bytes. Raises LedgerContradiction when the head contradicts itself."""
        last = self._last
        if last is not None and (last.head.lane, last.bytes) == (lane, stored):
            return last
        head = decode(stored, Head, self._name(head_key(lane)))
        contradiction = _contradiction(head, self.stream, lane)
        if contradiction:
            raise LedgerContradiction(
                f"{self._name(head_key(lane))} contradicts itself: {contradiction}. It was left as it is."
            )
        head_ = StoredHead(stored, head)
        # Another thread may note another head now.
        self._last = head_
        return head_

    # committed windows

    def record(self, lane: str, seq: int) -> tuple[bytes, Record] | None:
        key = record_key(lane, seq)
        stored = self.store.read(key)
        return None if stored is None else (stored, decode(stored, Record, self._name(key)))

    def is_settled(self, record: Record) -> bool:
        """Whether everything that follows from a lane's last commit has been done.

        Raises LedgerContradiction when the history holds another record than the head, or lacks one that a commit wrote.
        """
        key = record_key(record.lane, record.seq)
        stored = self.store.read(key)
        if stored is not None and stored != encode(record) and decode(stored, Record, self._name(key)) != record:
            # The two may only have different formats: so decoded ones are compared.
            raise self._contradicting(record, stored)
        if not self.store.commits_records:
            return stored is not None
        if stored is None:
            raise LedgerContradiction(
                f"{self.stream}/{record.lane}: window {record.seq} stands in the head and is missing in the history, "
                f"which one transaction has written. {RESTORE}"
            )
        # Who has read the head some time ago may ask for a window that others have followed.
        mark = self.store.read(settled_key(record.lane))
        return mark is not None and mark >= sortable(record.seq).encode()

    def mark_settled(self, record: Record) -> None:
        """The last write of settling: the history record, or a mark in stores whose commit writes that record.

        What is settled stays so: a late mark changes nothing. A sum that was published since would count a window twice.
        Raises WrongUse when the ledger was retired: the one that replaces it settles the window.
        """
        self.check_in_use()
        if self.store.commits_records:
            self._raise_mark(settled_key(record.lane), sortable(record.seq).encode())
            return
        key, recorded = record_key(record.lane, record.seq), encode(record)
        try:
            swap_surely(
                self.store, key, None, recorded, lambda stored: decode(stored, Record, self._name(key)) == record
            )
        except CompareAndSetFailed as problem:
            raise self._contradicting(record, problem.current or b"") from None

    def forget_settled(self, lane: str) -> None:
        """Take the windows of a lane as not settled, where the mark of another ledger may be left: a backup has none."""
        key = settled_key(lane)
        if self.store.commits_records and self.store.read(key) is not None:
            self.store.put(key, sortable(0).encode())

    def _raise_mark(self, key: Key, mark: bytes) -> None:
        while (stored := self.store.read(key)) is None or stored < mark:
            try:
                swap_surely(self.store, key, stored, mark, lambda now: now >= mark)
            except CompareAndSetFailed:
                continue

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        """Show the ingest's offsets to other tools. A failed export is logged; the next commit exports newer offsets."""
        self.store.publish(committed_at, offsets)
        if self._export is not None:
            try:
                self._export(offsets)
            except TidemarkError as problem:
                log.warning("the offsets of %s were not exported: %s", self.stream, problem)

    def _contradicting(self, record: Record, stored: bytes) -> LedgerContradiction:
        return LedgerContradiction(
            f"{self.stream}/{record.lane}: window {record.seq} stands in the head as {encode(record)!r} "
            f"and in the history as {stored!r}. Both were left as they are."
        )

    def records_with_bytes(self) -> Iterator[tuple[bytes, Record]]:
        """The history, each record with its stored bytes, by lane and number."""
        for key, stored in self.store.scan(("history",)):
            yield stored, decode(stored, Record, self._name(key))

    def records_of(self, lane: str) -> Iterator[Record]:
        """The windows of a lane that are in the history, by number."""
        for key, stored in self.store.scan(("history", lane)):
            yield decode(stored, Record, self._name(key))

    def records(self, places: Sequence[tuple[str, int]]) -> list[Record]:
        """Some windows, by lane and number, in one read. All of them must be in the history.

        Raises LedgerContradiction naming a window that is missing there, or a key that holds another window.
        """
        keys = [record_key(lane, seq) for lane, seq in places]
        entries = []
        for place, key, stored in zip(places, keys, self.store.read_several(keys), strict=True):
            if stored is None:
                raise LedgerContradiction(
                    f"{self._name(key)} is missing, although the lane has committed that window. {RESTORE}"
                )
            record = decode(stored, Record, self._name(key))
            if (record.lane, record.seq) != place:
                raise LedgerContradiction(
                    f"{self._name(key)} holds window {record.seq} of lane {record.lane}. It was left as it is."
                )
            entries.append(record)
        return entries

    def newest_records(self, lane: str, limit: int) -> list[Record]:
        """The last windows of a lane that are in the history, the newest first."""
        newest = self.store.newest(("history", lane), limit)
        return [self.with_receipt(decode(stored, Record, self._name(key))) for key, stored in newest]

    def committed(self) -> list[Committed]:
        """Every committed window. Reads the heads before the history, so that no window is missed between the two."""
        return self._committed(self._open_heads(self.register()))

    def standing(self) -> CommittedSnapshot:
        """Every committed window, and the attempts that may still commit one."""
        register = self.register()
        heads = self._open_heads(register)
        pending = (stored.head.pending for stored in heads.values())
        attempts = (pending_.attempt for pending_ in pending if pending_ is not None)
        at_work = frozenset(attempt.generation for attempt in attempts if attempt is not None)
        return CommittedSnapshot(tuple(self._committed(heads)), at_work, self)

    def _committed(self, heads: Mapping[str, StoredHead]) -> list[Committed]:
        # The history has every window of a closed lane.
        last = {(lane, stored.head.seq): stored.head.last for lane, stored in heads.items()}
        records = {(record.lane, record.seq): record for _, record in self.records_with_bytes()}
        for place, record in last.items():
            if record is None:
                continue
            known = records.setdefault(place, record)
            if known != record:
                raise self._contradicting(record, encode(known))
        return self.covering([self.with_receipt(record) for record in records.values()])

    def covering(self, records: Sequence[Record]) -> list[Committed]:
        """Windows with the offsets that they cover and have erased: the selections of all of them in few reads."""
        windows = [window.window for window in records]
        refs = [
            ref for window in windows for ref in (window.selection, window.erases.selection if window.erases else None)
        ]
        self._selections.load(ref.digest for ref in refs if ref is not None)
        return [Committed(record, self.covers(record.window), self.erases(record.window)) for record in records]

    def _open_heads(self, register: tuple[bytes, Register] | None) -> dict[str, StoredHead]:
        """The heads of the lanes that are not closed; all heads when the register is missing."""
        return self.heads() if register is None else self.heads_of(register[1].lanes)

    def with_receipt(self, record: Record) -> Record:
        """The record with its receipt; that of a window committed before it was read is stored apart.

        While the receipt is missing, the window is unproven: the ledger does not say how much of it was processed.
        """
        if record.receipt is not None:
            return record
        key = receipt_key(record)
        stored = self.store.read(key)
        return (
            record
            if stored is None
            else structs.replace(record, receipt=decode(stored, LateReceipt, self._name(key)).receipt)
        )

    def store_receipt(self, record: Record, receipt: Receipt) -> None:
        """Store the receipt of an attempt that committed before it read. Put if absent: the receipt never changes.

        Raises WrongUse when the ledger was retired: the one that replaces it may not have the receipt.
        """
        key, value = receipt_key(record), encode(LateReceipt(receipt=receipt))
        swap_surely(self.store, key, None, value, lambda stored: stored == value)
        try:
            self.check_in_use()
        except WrongUse as problem:
            raise WrongUse(
                f"window {record.lane}/{record.seq} was committed before it was read, and its ledger was retired before it "
                f"was done: {problem}. There the window is unproven: replay its offsets"
            ) from None

    def store_blocks(self, lane: str, seq: int, attempt: Attempt, blocks: BlockTallies) -> BlocksRef:
        """Store an attempt's tallies by blocks, and give the reference for its receipt. Put if absent: they never change.

        The attempt stores them before it commits. If it never commits, they stay in the ledger and no reader uses them.
        """
        key, value = blocks_key(lane, seq, attempt), encode(blocks)
        check_size(
            self.store, value, f"the tallies of window {lane}/{seq} by blocks", "read fewer topics in one stream"
        )
        swap_surely(self.store, key, None, value, lambda stored: stored == value)
        return BlocksRef(digest(value), blocks.size)

    def blocks(self, record: Record) -> BlockTallies | None:
        """The tallies of a committed window by blocks; None when its receipt names none.

        Raises LedgerContradiction when they are missing, LedgerUnreadable when their digest differs from the receipt's.
        """
        ref = record.receipt.blocks if record.receipt else None
        if ref is None:
            return None
        key = blocks_key(record.lane, record.seq, record.attempt)
        stored = self.store.read(key)
        if stored is None:
            raise LedgerContradiction(
                f"{self._name(key)} is missing, and the receipt of window {record.lane}/{record.seq} names it. {RESTORE}"
            )
        if digest(stored) != ref.digest:
            raise LedgerUnreadable(
                f"{self._name(key)} is not what the receipt of window {record.lane}/{record.seq} names: it was changed. "
                f"It was left as it is. {RESTORE}"
            )
        return decode(stored, BlockTallies, self._name(key))

    def view(self, sink: str | None = None, *, closed: bool = False) -> LedgerSnapshot:
        """The committed windows and the authority for a sink now; without a sink, for dead letters and the offsets.

        `closed`: with the heads of closed lanes too. `changed_since` tells whether a view is still current.
        """
        register = self.register()
        heads = self.heads() if closed else self._open_heads(register)
        windows = self._committed(heads)
        return LedgerSnapshot(
            windows,
            authority_of(windows, sink).without(self.hidden),
            _seqs(windows),
            _closed(register),
            sink,
            hidden=self.hidden,
            register=register[1] if register else None,
            heads={lane: stored.head for lane, stored in heads.items()},
        )

    def changed_since(self, view: LedgerSnapshot) -> bool:
        """Whether a lane may have committed a window since. Takes two reads, because only open lanes commit."""
        register = self.register()
        if _closed(register) != view.closed:
            return True
        heads = self._open_heads(register)
        return any(stored.head.seq != view.seqs.get(lane, 0) for lane, stored in heads.items())

    def covered_since(self, view: LedgerSnapshot) -> RangeSet:
        """The offsets of the windows that were committed since. What was true of them at the view may be so no more."""
        if not self.changed_since(view):
            return NOTHING
        newer = (window for window in self.committed() if window.record.seq > view.seqs.get(window.record.lane, 0))
        return RangeSet(part for covered in newer for part in covered.covers)

    def authority(self, sink: str | None = None) -> Authority:
        return self.view(sink).authority

    def check_pending(self, head: Head) -> None:
        """Raises LedgerContradiction when a pending window leaves out offsets that its lane has selected and not read."""
        window = head.pending.window if head.pending else None
        if window is None or window.selection is None:
            return
        offsets = head.offsets()
        passed = RangeSet(
            OffsetRange(range_.at, offsets[range_.at], max(offsets[range_.at], range_.start))
            for range_ in window.ranges
        )
        if left_out := passed & self.selection(window.selection):
            raise LedgerContradiction(
                f"{self._name(head_key(head.lane))} contradicts itself: window {window.seq} leaves out "
                f"{', '.join(map(str, left_out))}, which the lane has selected and not read. It was left as it is."
            )

    def covers(self, window: Window) -> RangeSet:
        return covers(window, None if window.selection is None else self.selection(window.selection))

    def erases(self, window: Window) -> RangeSet:
        """The offsets that a window erases: it covers them and reads nothing of them."""
        return NOTHING if window.erases is None else self.covers(window) & self.selection(window.erases.selection)

    def reads(self, window: Window) -> RangeSet:
        """The offsets that a window reads: all that it covers, without what it erases."""
        return self.covers(window) - self.erases(window)

    # selections: each is named by its digest, so writing one twice changes nothing

    def selection(self, ref: SelectionRef) -> RangeSet:
        """The offsets of a selection that the ledger refers to. Raises LedgerContradiction when it is missing."""
        offsets = self.find_selection(ref.digest)
        if offsets is None:
            raise LedgerContradiction(f"selection {ref.digest} of {self.stream} is missing, and a lane works on it")
        return offsets

    def find_selection(self, digest: str) -> RangeSet | None:
        """The offsets of a stored selection; None when no selection has this digest."""
        return self._selections.find(digest)

    def holding(self, refs: Iterable[SelectionRef | None], place: Coordinate) -> set[str]:
        """Which of some selections have an offset, by their digests. Reads one piece of a large selection."""
        return self._selections.holding((ref.digest for ref in refs if ref is not None), place)

    def store_selection(self, ranges: RangeSet) -> SelectionRef:
        """Store a set of offsets and give its reference. Raises TooLarge for tens of millions of separate ranges."""
        return self._selections.store(ranges)

    # audit reports, by the run that made them

    def store_report(self, name: str, report: bytes) -> None:
        self.store.put(("report", name), report)

    def report(self, name: str) -> bytes | None:
        return self.store.read(("report", name))

    def store_audited(self, audited: AuditOutcome) -> None:
        """Note the outcome of an audit that has ended: as the last one, and among all of them."""
        value = encode(audited)
        self.store.put(audit_key(audited), value)
        self.store.put(LAST_AUDIT, value)

    def newest_audits(self, limit: int) -> list[AuditOutcome]:
        """The outcomes of the audits that ended last, the newest first."""
        outcomes = (self._advisory(key, stored, AuditOutcome) for key, stored in self.store.newest(AUDITS, limit))
        return [outcome for outcome in outcomes if outcome is not None]

    def last_audit(self) -> AuditOutcome | None:
        """The outcome of the audit that ended last; None if no audit has ended."""
        return self._advisory(LAST_AUDIT, self.store.read(LAST_AUDIT), AuditOutcome)

    # heartbeats

    def beat(self, lane: str, beat: Heartbeat) -> None:
        self.store.put(("beat", lane), encode(beat))

    def last_beat(self, lane: str) -> Heartbeat | None:
        return self._advisory(("beat", lane), self.store.read(("beat", lane)), Heartbeat)

    def note_progress(self, progress: JobProgress) -> None:
        """Note the state of a job. If two jobs do so at once, the last note stays."""
        self.store.put(_PROGRESS, encode(progress))

    def last_progress(self) -> JobProgress | None:
        return self._advisory(_PROGRESS, self.store.read(_PROGRESS), JobProgress)

    def _advisory(self, key: Key, stored: bytes | None, kind: type[Advisory]) -> Advisory | None:
        """A value on which nothing depends. One that is damaged is as good as none; of a newer one, what is known here."""
        value = None if stored is None else decode_what_is_known(stored, kind)
        if stored is not None and value is None:
            log.warning("%s cannot be read, and is left out: nothing depends on it", self._name(key))
        return value

    def _name(self, key: Key) -> str:
        return "/".join((self.stream, *key))


def _closed(register: tuple[bytes, Register] | None) -> int:
    return register[1].closed if register else 0


def _seqs(windows: list[Committed]) -> dict[str, int]:
    last: dict[str, int] = {}
    for window in windows:
        last[window.record.lane] = max(window.record.seq, last.get(window.record.lane, 0))
    return last


def _contradiction(head: Head, stream: str, lane: str) -> str | None:
    """How a head contradicts itself, in words; None if it does not."""
    if (head.stream, head.lane) != (stream, lane):
        return f"it is stored for {stream}/{lane} and says that it is {head.stream}/{head.lane}"
    if (head.last is None) != (head.seq == 0):
        return (
            f"it counts {head.seq} committed windows, and its last one is {'missing' if head.last is None else 'there'}"
        )
    if head.last is not None and head.last.seq != head.seq:
        return f"it counts {head.seq} committed windows, and its last one has number {head.last.seq}"
    if head.last is not None and head.last.positions != head.positions:
        return "its positions are not those that its last window left"
    if head.pending is not None and head.pending.window.seq != head.seq + 1:
        return f"it counts {head.seq} committed windows, and its pending one has number {head.pending.window.seq}"
    if head.pending is not None and head.state == LaneState.CLOSED:
        return "it is closed, and a window is pending"
    return _unconnected(head.offsets(), head.pending.window) if head.pending is not None else None


def _unconnected(offsets: dict[TopicPartition, int], window: Window) -> str | None:
    """Where a window does not begin at the positions, either directly or after its gaps, in words; None if it does."""
    if window.guarantee == Guarantee.NONE:
        return None
    jumped: dict[TopicPartition, list[Gap]] = {}
    for gap in window.gaps:
        jumped.setdefault(gap.as_range().partition, []).append(gap)
    ranges = {range_.at: range_ for range_ in window.ranges}
    if len(ranges) < len(window.ranges) or jumped.keys() - ranges.keys():
        return f"window {window.seq} has two ranges of one partition, or jumps in one that it does not read"
    for at, range_ in ranges.items():
        before = jumped.get(at, [])
        if window.selection is not None and at not in offsets:
            return f"window {window.seq} reads {at}, in which the lane has nothing selected"
        reached = offsets.get(at, before[0].start if before else range_.start)
        for start, until in [*((gap.start, gap.until) for gap in before), (range_.start, range_.until)]:
            # A selection has holes, so its window may begin above the position.
            if start < reached if window.selection else start != reached:
                return f"window {window.seq} reads or jumps over {at} from {start}, and the lane is at {reached}"
            reached = until
    return None
