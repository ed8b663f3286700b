"""Stored selections: sets of offsets, each under the digest of its contents.

A small selection is one value. A large one is stored in pieces, which are selections themselves, and an index that names
them. The index is written last. So a process that dies on the way leaves pieces that no index names, and never a selection
that lacks some. Storing the same offsets again uses them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from hashlib import sha256

from tidemark.errors import LedgerContradiction, LedgerUnreadable
from tidemark.ledger.codec import RESTORE, decode, encode
from tidemark.ledger.limits import check_size
from tidemark.ledger.records import Selection, SelectionRef, StoredPiece
from tidemark.ledger.stores.contract import Key, LedgerStore
from tidemark.ledger.stores.doubt import swap_surely
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import Interval, RangeSet, TopicPartition

# A look-up of one offset reads one piece, so pieces are smaller than what a store could take: some 15,000 scattered records.
PIECE_BYTES = 256 * 1024
# 16 MiB at most in one answer.
_AT_ONCE = 64


class Selections:
    """Stores and reads the selections of one stream's ledger. What was read stays in memory: it never changes."""

    def __init__(self, store: LedgerStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._ranges: dict[str, RangeSet] = {}
        self._indexes: dict[str, tuple[StoredPiece, ...]] = {}

    def store(self, ranges: RangeSet) -> SelectionRef:
        """Store a set of offsets and give its reference. Put if absent: what has the same digest is the same.

        Raises TooLarge when even the index is too large: in ZooKeeper beyond some 30 million separate ranges.
        """
        ref = selection_ref(ranges)
        if self._store.read(_key(ref.digest)) is not None:
            return ref
        parts = list(split_selection(ranges, min(PIECE_BYTES, self._store.max_value_bytes)))
        selection = parts[0] if len(parts) == 1 else Selection(pieces=tuple(_piece(part) for part in parts))
        value = encode(selection)
        # Before the first write: what is refused leaves nothing.
        check_size(
            self._store,
            value,
            f"a selection of {number_of(ref.offsets, 'offset')}",
            "select fewer, or ranges instead of records",
        )
        for piece, part in zip(selection.pieces, parts, strict=False):
            self._put(piece.digest, encode(part))
        self._put(ref.digest, value)
        return ref

    def find(self, digest: str) -> RangeSet | None:
        """The offsets of a stored selection; None when no selection has this digest.

        Raises LedgerContradiction when a piece is missing, LedgerUnreadable when a value is not what its name says.
        """
        self.load([digest])
        if digest not in self._ranges and digest in self._indexes:
            self._ranges[digest] = self._joined(digest)
        return self._ranges.get(digest)

    def load(self, digests: Iterable[str]) -> None:
        """Read some selections into memory, many in each request. Reads only the indexes of those in pieces."""
        missing = list(
            dict.fromkeys(digest for digest in digests if digest not in self._ranges and digest not in self._indexes)
        )
        for first in range(0, len(missing), _AT_ONCE):
            names = missing[first : first + _AT_ONCE]
            stored = self._store.read_several([_key(name) for name in names])
            for name, value in zip(names, stored, strict=True):
                if value is not None:
                    self._learn(name, decode(value, Selection, self._name(name)))

    def holding(self, digests: Iterable[str], place: Coordinate) -> set[str]:
        """Which of some selections have an offset, in two rounds of reads. Reads one piece of a selection in pieces.

        Raises LedgerContradiction when a selection or that piece is missing, LedgerUnreadable as `find`.
        """
        names = set(digests)
        self.load(sorted(names))
        parts = {name: part for name in names if (part := self._part_around(name, place)) is not None}
        self.load(sorted(set(parts.values())))
        return {name for name, part in parts.items() if (place.partition, place.offset) in self._required(name, part)}

    def _part_around(self, name: str, place: Coordinate) -> str | None:
        """The selection that says whether this one has an offset: itself, or one of its pieces; None for neither."""
        if name in self._ranges:
            return name
        index = self._indexes.get(name)
        if index is None:
            raise LedgerContradiction(f"{self._name(name)} is missing, and a lane works on it")
        before = bisect_right(index, (place.partition, place.offset), key=lambda piece: piece.begins)
        return index[before - 1].digest if before else None

    def _learn(self, name: str, selection: Selection) -> None:
        if selection.pieces:
            self._indexes[name] = selection.pieces
            return
        ranges = selection.as_ranges()
        self._check(name, ranges)
        self._ranges[name] = ranges

    def _joined(self, name: str) -> RangeSet:
        digests = [piece.digest for piece in self._indexes[name]]
        self.load(digests)
        parts = [self._required(name, digest) for digest in digests]
        whole = RangeSet.of_intervals((at, part.of(at)) for part in parts for at in part.partitions)
        self._check(name, whole)
        return whole

    def _required(self, name: str, part: str) -> RangeSet:
        if part not in self._ranges:
            raise LedgerContradiction(f"{self._name(part)} is missing, a piece of {self._name(name)}. {RESTORE}")
        return self._ranges[part]

    def _check(self, name: str, ranges: RangeSet) -> None:
        if selection_ref(ranges).digest != name:
            raise LedgerUnreadable(f"{self._name(name)} does not hold what its name says. It was left as it is.")

    def _put(self, digest: str, value: bytes) -> None:
        swap_surely(self._store, _key(digest), None, value, lambda stored: True)

    def _name(self, digest: str) -> str:
        return "/".join((self._stream, *_key(digest)))


def values_of(store: LedgerStore) -> Iterator[tuple[Key, bytes]]:
    """The keys and values of all selections, each index after its pieces.

    A selection may be stored meanwhile. A scan that has passed its pieces may still find its index.
    """
    seen: set[str] = set()
    indexes: list[tuple[Key, bytes, tuple[StoredPiece, ...]]] = []
    for key, value in store.scan(("selection",)):
        pieces = decode(value, Selection, "/".join(key)).pieces
        if pieces:
            indexes.append((key, value, pieces))
        else:
            seen.add(key[1])
            yield key, value
    for key, value, pieces in indexes:
        for digest in [piece.digest for piece in pieces if piece.digest not in seen]:
            if (passed := store.read(_key(digest))) is not None:
                yield _key(digest), passed
        yield key, value


def selection_ref(ranges: RangeSet) -> SelectionRef:
    """The reference of a set of offsets: SHA-256 of a line for each range, such as `logs/3 [17, 18)`."""
    digest = sha256()
    for at in ranges.partitions:
        name = str(at)
        digest.update("".join(f"{name} [{start}, {until})\n" for start, until in ranges.of(at)).encode())
    return SelectionRef(digest.hexdigest(), ranges.count())


def _key(digest: str) -> Key:
    return ("selection", digest)


def _piece(part: Selection) -> StoredPiece:
    topic, incarnation, partition, intervals = part.partitions[0]
    return StoredPiece(topic, incarnation, partition, intervals[0][0], selection_ref(part.as_ranges()).digest)


def split_selection(ranges: RangeSet, most: int) -> Iterator[Selection]:
    """A set of offsets in order, cut into selections of at most `most` bytes each, but at least one range."""
    empty = len(encode(Selection()))
    kept: list[tuple[TopicPartition, list[Interval]]] = []
    size = empty
    for at in ranges.partitions:
        name = len(encode(Selection.of(RangeSet.of_intervals([(at, [(0, 1)])])))) - empty
        new = True
        for interval in ranges.of(at):
            more = len(f"[{interval[0]},{interval[1]}],")
            if kept and size + more + (name if new else 0) > most:
                yield _selection(kept)
                kept, size, new = [], empty, True
            if new:
                kept.append((at, []))
                size, new = size + name, False
            kept[-1][1].append(interval)
            size += more
    yield _selection(kept)


def _selection(kept: Iterable[tuple[TopicPartition, list[Interval]]]) -> Selection:
    return Selection(
        partitions=tuple((at.topic, at.incarnation, at.partition, tuple(intervals)) for at, intervals in kept)
    )
