"""The newest windows, found without reading the whole history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidemark.ledger.closed_lanes import closed_lanes
from tidemark.ledger.ledger import Ledger, StoredHead
from tidemark.ledger.records import Head, Record, Register


def open_heads(ledger: Ledger, register: Register) -> dict[str, StoredHead]:
    """The heads of the lanes that are not closed, in one read."""
    return ledger.heads_of(register.lanes)


def newest_windows(ledger: Ledger, register: Register, heads: Mapping[str, StoredHead], limit: int) -> list[Record]:
    """The `limit` windows that were committed last, the newest first. `heads` are those of the lanes that are not closed.

    Takes one read for each lane that may have such a window: a lane's newest is its head's last, or its closing.
    """
    records: dict[tuple[str, int], Record] = {}
    for newest, lane in _by_time(ledger, register, heads):
        if sum(record.committed_at >= newest for record in records.values()) >= limit:
            break
        head = heads[lane].head if lane in heads else None
        records |= {(record.lane, record.seq): record for record in newest_of_lane(ledger, lane, head, limit)}
    return sorted(records.values(), key=lambda record: -record.committed_at)[:limit]


def newer_windows(ledger: Ledger, register: Register, generation: int) -> list[Record]:
    """The committed windows with higher generations. `register` was read before.

    Nothing else is read if nobody has drawn a generation since; otherwise the heads of all lanes, and of those with newer
    windows the newest ones.
    """
    if register.generation <= generation:
        return []
    heads = ledger.heads() if register.closed else open_heads(ledger, register)
    by_lane = (_newer_of_lane(ledger, stored.head, generation) for stored in heads.values())
    return [record for some in by_lane for record in some]


def _newer_of_lane(ledger: Ledger, head: Head, generation: int) -> list[Record]:
    # Within a lane, generations rise.
    if head.last is None or head.last.attempt.generation <= generation:
        return []
    limit = 1
    while True:
        records = newest_of_lane(ledger, head.lane, head, limit)
        newer = [record for record in records if record.attempt.generation > generation]
        if len(newer) < len(records) or len(records) < limit:
            return newer
        limit *= 2


def _by_time(ledger: Ledger, register: Register, heads: Mapping[str, StoredHead]) -> Iterator[tuple[int, str]]:
    """The lanes, each with a time that its windows are not newer than, the newest first. Reads closed lanes as needed."""
    waiting = [(stored.head.last.committed_at, lane) for lane, stored in heads.items() if stored.head.last is not None]
    waiting.sort(reverse=True)
    for part in closed_lanes(ledger, register):
        closed = [
            (entry.closed_at or 0, lane) for lane, entry in part.items() if lane not in heads and entry.windows != 0
        ]
        # The lanes of later parts were closed before all lanes of this part.
        oldest = min(closed, default=(0, ""))
        waiting = sorted([*waiting, *closed], reverse=True)
        while waiting and waiting[0] >= oldest and closed:
            yield waiting.pop(0)
    yield from waiting


def newest_of_lane(ledger: Ledger, lane: str, head: Head | None, limit: int) -> list[Record]:
    """The last windows of a lane, with their receipts. The head's last window may not be in the history yet."""
    records = {record.seq: record for record in ledger.newest_records(lane, limit)}
    if head is not None and head.last is not None and head.seq not in records:
        records[head.seq] = ledger.with_receipt(head.last)
    return list(records.values())
