"""Whether a ledger is whole: no record is missing or changed since the next was written, and heads agree with history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.ledger.book import Book
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.codec import digest, encode
from tidemark.ledger.records import Head, LaneState, Record
from tidemark.offsets.counting import number_of


def verify(book: Book) -> list[str]:
    """The problems of a stream's ledger, in words; empty when the ledger is whole. Reads all of the history.

    Reads the heads first. A window that is committed meanwhile is then in the history, or left for the next check.
    """
    heads = {lane: stored.head for lane, stored in book.heads().items()}
    for head in heads.values():
        book.check_pending(head)
    # The next check covers lanes that are opened from now on.
    records = (
        (stored, record)
        for stored, record in book.records_with_bytes()
        if record.lane in heads or _is_lost(book, record.lane)
    )
    problems = _check_history(heads, records, history_has_last=book.store.commits_records)
    lanes = all_lanes(book)
    problems += [f"lane {lane} has a head, and the register does not know it" for lane in heads.keys() - lanes.keys()]
    problems += [
        f"lane {name} has no head, and the register says that it is {lane.state.value}"
        for name, lane in lanes.items()
        if name not in heads and lane.state != LaneState.OPENING and _is_lost(book, name)
    ]
    return problems


def _is_lost(book: Book, lane: str) -> bool:
    """Whether a lane that had no head a moment ago has none now."""
    return book.head(lane) is None


def _check_history(
    heads: Mapping[str, Head], records: Iterable[tuple[bytes, Record]], *, history_has_last: bool
) -> list[str]:
    """The problems of the history of some lanes, in words.

    `records` come by lane and number, each with its stored bytes. The last window of a head may be missing there until that
    window is settled, unless `history_has_last`.
    """
    lanes: dict[str, list[tuple[bytes, Record]]] = {lane: [] for lane in heads}
    for stored, record in records:
        lanes.setdefault(record.lane, []).append((stored, record))
    return [
        problem
        for lane, chain in lanes.items()
        for problem in _check_lane(lane, heads.get(lane), chain, history_has_last)
    ]


def _check_lane(lane: str, head: Head | None, chain: list[tuple[bytes, Record]], history_has_last: bool) -> list[str]:
    if head is None:
        return [f"lane {lane} has {number_of(len(chain), 'window')} in the history, and no head"]
    # The next check covers windows that were committed after the head was read.
    chain = [link for link in chain if link[1].seq <= head.seq]
    if head.last is not None and not history_has_last and head.seq not in {record.seq for _, record in chain}:
        chain.append((encode(head.last), head.last))
    problems = []
    known = {record.seq: (stored, record) for stored, record in chain}
    for seq in range(1, head.seq + 1):
        if seq not in known:
            problems.append(f"lane {lane}: window {seq} is missing in the history")
            continue
        record = known[seq][1]
        before = known.get(seq - 1)
        if before is not None and record.previous != digest(before[0]):
            problems.append(f"lane {lane}: window {seq - 1} is not the one that window {seq} followed: one was changed")
        if seq == 1 and record.previous is not None:
            problems.append(f"lane {lane}: window 1 says that there was one before it")
    last = known.get(head.seq)
    if last is not None and last[1] != head.last:
        problems.append(f"lane {lane}: window {head.seq} is another one in the head than in the history")
    return problems
