"""The ledger of one stream: its stored values, read and written by what they mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from msgspec import structs

from tidemark.authority import Authority
from tidemark.errors import LedgerContradiction, LedgerUnreadable, TidemarkError
from tidemark.ledger.codec import decode, digest, encode
from tidemark.ledger.doubt import NotMine, swap_surely
from tidemark.ledger.limits import check_size
from tidemark.ledger.records import (
    Attempt,
    Blocks,
    BlocksRef,
    Head,
    Heartbeat,
    LaneState,
    Late,
    Receipt,
    Record,
    Register,
    Selection,
    SelectionRef,
    Window,
    covers,
)
from tidemark.ledger.store import Key, LedgerStore, Offsets, sortable
from tidemark.ranges import RangeSet

log = logging.getLogger(__name__)

REGISTER: Key = ("register",)


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


def settled_key(lane: str) -> Key:
    return ("settled", lane)


@dataclass(frozen=True)
class Stored:
    """A head with the very bytes that were read: those are what a compare-and-set expects."""

    bytes: bytes
    head: Head


@dataclass(frozen=True)
class Committed:
    """A committed window and the offsets that it is about."""

    record: Record
    covers: RangeSet

    @property
    def generation(self) -> int:
        return self.record.attempt.generation


@dataclass(frozen=True)
class View:
    """The committed windows as they were read, the authority that follows, and each lane's last number."""

    windows: list[Committed]
    authority: Authority
    seqs: dict[str, int]


class Book:
    """Reading and writing one stream's ledger. `clock` gives milliseconds since 1970."""

    def __init__(
        self,
        store: LedgerStore,
        stream: str,
        clock: Callable[[], int] = now_ms,
        export: Callable[[Offsets], None] | None = None,
    ) -> None:
        """`export` shows committed offsets to tools that do not read the ledger's server. It may fail: nothing reads it."""
        self.store = store
        self._export = export
        self.stream = stream
        self.clock = clock
        self._selections: dict[str, RangeSet] = {}

    # register and heads

    def register(self) -> tuple[bytes, Register] | None:
        stored = self.store.read(REGISTER)
        return None if stored is None else (stored, decode(stored, Register, self._name(REGISTER)))

    def head(self, lane: str) -> Stored | None:
        stored = self.store.read(head_key(lane))
        return None if stored is None else self._head(lane, stored)

    def heads(self) -> dict[str, Stored]:
        """Every lane's head, closed lanes included."""
        return {key[1]: self._head(key[1], stored) for key, stored in self.store.scan(("head",))}

    def heads_of(self, lanes: Iterable[str]) -> dict[str, Stored]:
        """The heads of some lanes, as far as they are there, in one read."""
        names = list(lanes)
        found = zip(names, self.store.read_several([head_key(name) for name in names]), strict=True)
        return {name: self._head(name, stored) for name, stored in found if stored is not None}

    def open_lanes(self) -> list[str]:
        found = self.register()
        return (
            [] if found is None else [name for name, lane in found[1].lanes.items() if lane.state != LaneState.CLOSED]
        )

    def _head(self, lane: str, stored: bytes) -> Stored:
        head = decode(stored, Head, self._name(head_key(lane)))
        contradiction = _contradiction(head, self.stream, lane)
        if contradiction:
            raise LedgerContradiction(
                f"{self._name(head_key(lane))} contradicts itself: {contradiction}. It was left as it is."
            )
        return Stored(stored, head)

    # committed windows

    def record(self, lane: str, seq: int) -> tuple[bytes, Record] | None:
        key = record_key(lane, seq)
        stored = self.store.read(key)
        return None if stored is None else (stored, decode(stored, Record, self._name(key)))

    def is_settled(self, record: Record) -> bool:
        """Whether everything that follows from a lane's last commit has been done.

        Raises LedgerContradiction when the history holds another record than the head, or none where it has to.
        """
        key = record_key(record.lane, record.seq)
        stored = self.store.read(key)
        # By what they mean: an older version may have written the one, and this one the other.
        if stored is not None and decode(stored, Record, self._name(key)) != record:
            raise self._contradicting(record, stored)
        if not self.store.commits_records:
            return stored is not None
        if stored is None:
            raise LedgerContradiction(
                f"{self.stream}/{record.lane}: window {record.seq} stands in the head and is missing in the history, "
                "which one transaction has written. Restore the ledger from a backup."
            )
        return self.store.read(settled_key(record.lane)) == sortable(record.seq).encode()

    def mark_settled(self, record: Record) -> None:
        """The last thing of settling: the history record, or a mark where the commit has written that.

        A mark may be put late, over that of a newer window: then that window is settled once more, which harms nobody.
        """
        if self.store.commits_records:
            self.store.put(settled_key(record.lane), sortable(record.seq).encode())
            return
        key, recorded = record_key(record.lane, record.seq), encode(record)
        try:
            swap_surely(
                self.store, key, None, recorded, lambda stored: decode(stored, Record, self._name(key)) == record
            )
        except NotMine as problem:
            raise self._contradicting(record, problem.current or b"") from None

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        """Show the ingest's offsets to other tools. An export that fails is logged, and repaired by the next commit's."""
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
        """Some windows, by lane and number, that have to be in the history; in one read.

        Raises LedgerContradiction naming one that is missing there, or is another one.
        """
        keys = [record_key(lane, seq) for lane, seq in places]
        found = []
        for place, key, stored in zip(places, keys, self.store.read_several(keys), strict=True):
            if stored is None:
                raise LedgerContradiction(
                    f"{self._name(key)} is missing, although the lane has committed that window. "
                    "Restore the ledger from a backup."
                )
            record = decode(stored, Record, self._name(key))
            if (record.lane, record.seq) != place:
                raise LedgerContradiction(
                    f"{self._name(key)} holds window {record.seq} of lane {record.lane}. It was left as it is."
                )
            found.append(record)
        return found

    def newest_records(self, lane: str, limit: int) -> list[Record]:
        """The last windows of a lane that are in the history, the newest first."""
        newest = self.store.newest(("history", lane), limit)
        return [self.with_receipt(decode(stored, Record, self._name(key))) for key, stored in newest]

    def committed(self) -> list[Committed]:
        """Every committed window: the heads first, then the history, so that none falls between the two."""
        last = {(lane, stored.head.seq): stored.head.last for lane, stored in self.heads().items()}
        found = {(record.lane, record.seq): record for _, record in self.records_with_bytes()}
        for place, record in last.items():
            if record is None:
                continue
            known = found.setdefault(place, record)
            if known != record:
                raise self._contradicting(record, encode(known))
        return [Committed(self.with_receipt(record), self.covers(record.window)) for record in found.values()]

    def with_receipt(self, record: Record) -> Record:
        """A record with the receipt that was stored apart, where its window was committed before it was read.

        While there is none, the window is unproven: nobody knows how much of it was processed.
        """
        if record.receipt is not None:
            return record
        key = receipt_key(record)
        stored = self.store.read(key)
        return (
            record if stored is None else structs.replace(record, receipt=decode(stored, Late, self._name(key)).receipt)
        )

    def store_receipt(self, record: Record, receipt: Receipt) -> None:
        """Store what an attempt did that had committed before. Put if absent: it is never another one."""
        key, value = receipt_key(record), encode(Late(receipt=receipt))
        swap_surely(self.store, key, None, value, lambda stored: stored == value)

    def store_blocks(self, lane: str, seq: int, attempt: Attempt, blocks: Blocks) -> BlocksRef:
        """Store what an attempt has counted by blocks, for the receipt to name. Put if absent: it is never another one.

        It stands apart from the commit: of an attempt that never commits it stays behind, and nobody looks at it.
        """
        key, value = blocks_key(lane, seq, attempt), encode(blocks)
        check_size(
            self.store, value, f"the tallies of window {lane}/{seq} by blocks", "read fewer topics in one stream"
        )
        swap_surely(self.store, key, None, value, lambda stored: stored == value)
        return BlocksRef(digest(value), blocks.size)

    def blocks(self, record: Record) -> Blocks | None:
        """The tallies of a committed window by blocks, None where its receipt names none.

        Raises LedgerContradiction when they are missing, LedgerUnreadable when they are not those that the receipt names.
        """
        ref = record.receipt.blocks if record.receipt else None
        if ref is None:
            return None
        key = blocks_key(record.lane, record.seq, record.attempt)
        stored = self.store.read(key)
        if stored is None:
            raise LedgerContradiction(
                f"{self._name(key)} is missing, and the receipt of window {record.lane}/{record.seq} names it. "
                "Restore the ledger from a backup."
            )
        if digest(stored) != ref.digest:
            raise LedgerUnreadable(
                f"{self._name(key)} is not what the receipt of window {record.lane}/{record.seq} names: it was changed. "
                "It was left as it is; restore the ledger from a backup."
            )
        return decode(stored, Blocks, self._name(key))

    def view(self) -> View:
        """What counts now, with what tells whether that has changed."""
        windows = self.committed()
        return View(windows, Authority((window.generation, window.covers) for window in windows), _seqs(windows))

    def changed_since(self, view: View) -> bool:
        """Whether a window has been committed since; costs one read for each lane."""
        return {lane: stored.head.seq for lane, stored in self.heads().items() if stored.head.seq} != view.seqs

    def authority(self) -> Authority:
        return self.view().authority

    def covers(self, window: Window) -> RangeSet:
        return covers(window, None if window.selection is None else self.selection(window.selection))

    # selections: named by the digest of what they hold, so that writing one twice changes nothing

    def selection(self, ref: SelectionRef) -> RangeSet:
        """The offsets of a selection that the ledger itself names. Raises LedgerContradiction when it is missing."""
        found = self.find_selection(ref.digest)
        if found is None:
            raise LedgerContradiction(f"selection {ref.digest} of {self.stream} is missing, and a lane works on it")
        return found

    def find_selection(self, digest: str) -> RangeSet | None:
        """The offsets of a stored selection, None when there is none of this digest."""
        if digest not in self._selections:
            key = ("selection", digest)
            stored = self.store.read(key)
            if stored is None:
                return None
            ranges = decode(stored, Selection, self._name(key)).as_ranges()
            if selection_ref(ranges).digest != digest:
                raise LedgerUnreadable(f"{self._name(key)} does not hold what its name says")
            self._selections[digest] = ranges
        return self._selections[digest]

    def store_selection(self, ranges: RangeSet) -> SelectionRef:
        """Store a set of offsets and give its name. Raises TooLarge when it has too many separate pieces."""
        ref = selection_ref(ranges)
        value = encode(Selection.of(ranges))
        check_size(
            self.store, value, f"a selection of {ref.offsets} offsets", "select fewer, or ranges in place of records"
        )
        self.store.put(("selection", ref.digest), value)
        return ref

    # audit reports, by the run that made them

    def store_report(self, name: str, report: bytes) -> None:
        self.store.put(("report", name), report)

    def report(self, name: str) -> bytes | None:
        return self.store.read(("report", name))

    # heartbeats

    def beat(self, lane: str, beat: Heartbeat) -> None:
        self.store.put(("beat", lane), encode(beat))

    def last_beat(self, lane: str) -> Heartbeat | None:
        stored = self.store.read(("beat", lane))
        return None if stored is None else decode(stored, Heartbeat, self._name(("beat", lane)))

    def _name(self, key: Key) -> str:
        return "/".join((self.stream, *key))


def selection_ref(ranges: RangeSet) -> SelectionRef:
    lines = "".join(f"{one}\n" for one in ranges)
    return SelectionRef(sha256(lines.encode()).hexdigest(), ranges.count())


def _seqs(windows: list[Committed]) -> dict[str, int]:
    last: dict[str, int] = {}
    for window in windows:
        last[window.record.lane] = max(window.record.seq, last.get(window.record.lane, 0))
    return last


def _contradiction(head: Head, stream: str, lane: str) -> str | None:
    """What a head says that cannot be true, in words."""
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
    return None
