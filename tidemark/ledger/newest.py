"""The newest windows of all lanes, found without reading the history."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.ledger.book import Book, Stored
from tidemark.ledger.records import Head, LaneEntry, LaneState, Record

# Above every time, for lanes that an older version closed without saying when.
_UNKNOWN = 2**63


def open_heads(book: Book, lanes: Mapping[str, LaneEntry]) -> dict[str, Stored]:
    """The heads of the lanes that are not closed, in one read."""
    return book.heads_of(name for name, entry in lanes.items() if entry.state != LaneState.CLOSED)


def newest_windows(book: Book, lanes: Mapping[str, LaneEntry], heads: Mapping[str, Stored], limit: int) -> list[Record]:
    """The `limit` windows that were committed last, the newest first. `heads` are those of the lanes that are not closed.

    One read for each lane that may have one of them: a lane has none newer than its head's, or than its closing.
    """
    newest = {name: stored.head.last.committed_at for name, stored in heads.items() if stored.head.last is not None}
    newest |= {
        name: _UNKNOWN if entry.closed_at is None else entry.closed_at
        for name, entry in lanes.items()
        if name not in heads and entry.state == LaneState.CLOSED
    }
    found: list[Record] = []
    for lane in sorted(newest, key=lambda name: -newest[name]):
        if sum(record.committed_at >= newest[lane] for record in found) >= limit:
            break
        found += newest_of_lane(book, lane, heads[lane].head if lane in heads else None, limit)
    return sorted(found, key=lambda record: -record.committed_at)[:limit]


def newest_of_lane(book: Book, lane: str, head: Head | None, limit: int) -> list[Record]:
    """The last windows of a lane, with their receipts. That of the head may not be in the history yet."""
    records = {record.seq: record for record in book.newest_records(lane, limit)}
    if head is not None and head.last is not None and head.seq not in records:
        records[head.seq] = book.with_receipt(head.last)
    return list(records.values())
