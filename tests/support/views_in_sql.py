"""What the views of a ledger in SQL show, in every database."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from services.site import REPOSITORY
from tidemark.ledger.codec import encode
from tidemark.ledger.records import (
    Attempt,
    Head,
    LaneKind,
    LaneState,
    Pending,
    Receipt,
    Record,
    SinkReceipt,
    Window,
    WindowRange,
)
from tidemark.ledger.stores.contract import LedgerStore, sortable
from tidemark.offsets.tallies import Count, PartitionTally

# Asks as another program does: rows for a statement.
Ask = Callable[[str], Sequence[tuple[Any, ...]]]

_AT = 1_795_763_392_914
_TOPIC = 'clicks "é"'


def _window(seq: int, *ends: tuple[int, int, int], reason: str | None = None) -> Window:
    ranges = tuple(
        WindowRange(topic=_TOPIC, incarnation=1, partition=at, start=start, until=until, log_start=0, log_end=until)
        for at, start, until in ends
    )
    return Window(
        seq=seq, ranges=ranges, topic_ids={}, isolation="read_committed", pinned_at=_AT, run=f"run {seq}", reason=reason
    )


def _record(window: Window, *tallies: PartitionTally, lane: str = "ingest") -> Record:
    attempt = Attempt(
        generation=7_000 + window.seq, token="t", run=window.run, taken_at=_AT, code_version="v", stream_digest="d"
    )
    place = SinkReceipt(name="files", type="parquet", place={})
    receipt = Receipt(tallies=tallies, sinks=(place,), dead_letters=None, started_at=_AT, finished_at=_AT)
    return Record(
        stream="orders",
        lane=lane,
        kind=LaneKind.INGEST if lane == "ingest" else LaneKind.REPLAY,
        window=window,
        attempt=attempt,
        receipt=receipt if tallies else None,
        positions=(),
        committed_at=_AT + 86_400_000 * window.seq,
        owes_sweep=False,
        previous=None,
    )


def _tally(partition: int, **counts: int) -> PartitionTally:
    of: dict[str, Any] = {name: Count(number, "0" * 16) for name, number in counts.items()}
    return PartitionTally(topic=_TOPIC, incarnation=1, partition=partition, **of)


def _head(lane: str, last: Record, pending: Pending | None = None) -> bytes:
    kind, state = last.kind, LaneState.OPEN
    return encode(
        Head(stream="orders", lane=lane, kind=kind, state=state, token="t", seq=last.seq, positions=(), last=last)
        if pending is None
        else Head(
            stream="orders",
            lane=lane,
            kind=kind,
            state=state,
            token="t",
            seq=last.seq,
            positions=(),
            last=last,
            pending=pending,
        )
    )


def check(store: LedgerStore, table: str, ask: Ask) -> None:
    """Write windows of each state, and compare what the views show of them."""
    store.prepare()
    store.prepare()
    first = _record(
        _window(1, (0, 0, 30), (1, 5, 25), reason='it\'s "é"'),
        # In another order than the ranges, and without one of them.
        _tally(1, read=20, stored=12, skipped=1, invalid=3, failed=4, rows=24),
    )
    second = _record(_window(2))
    store.put(("history", "ingest", sortable(1)), encode(first))
    store.put(("history", "ingest", sortable(2)), encode(second))
    store.put(
        ("head", "ingest"), _head("ingest", second, Pending(window=_window(3, (0, 30, 40)), token="t", previous=None))
    )
    # As in a ledger that came from HBase: its last window is settled by the next run.
    replayed = _record(_window(1, (0, 3, 8)), _tally(0, read=2, stored=2, rows=2), lane="replay-a")
    store.put(("head", "replay-a"), _head("replay-a", replayed))
    # Values that have other forms.
    store.put(("beat", "ingest"), b"{}")
    store.put(("headless",), b"nothing")
    # And some that are damaged: what can be read is shown.
    for number, damaged in enumerate((b"no JSON", b"\xff\x00", b"", b"{", b"7", b'"text"', b"[]", b"{}")):
        store.put(("history", "damaged", sortable(number)), damaged)
        store.put(("head", f"damaged-{number}"), damaged)

    columns = "w.lane, w.seq, w.state, w.kind, w.run, w.reason, w.generation, w.partitions"
    counts = "w.messages_read, w.messages_stored, w.messages_skipped, w.dead_letters, w.rows_stored"
    windows = f"SELECT {columns}, {counts} FROM {table}_windows w ORDER BY w.lane, w.seq"
    nothing = (None,) * 5
    assert [tuple(row) for row in ask(windows)] == [
        ("ingest", 1, "committed", "ingest", "run 1", 'it\'s "é"', 7_001, 2, 20, 12, 1, 7, 24),
        ("ingest", 2, "committed", "ingest", "run 2", None, 7_002, 0, *nothing),
        ("ingest", 3, "pending", "ingest", "run 3", None, None, 1, *nothing),
        ("replay-a", 1, "committed", "replay", "run 1", None, 7_001, 1, 2, 2, 0, 0, 2),
    ]
    ends = "w.lane, w.seq, w.state, w.topic, w.incarnation, w.partition, w.from_offset, w.until_offset"
    ranges = f"SELECT {ends}, {counts} FROM {table}_ranges w ORDER BY w.lane, w.seq, w.partition"
    assert [tuple(row) for row in ask(ranges)] == [
        ("ingest", 1, "committed", _TOPIC, 1, 0, 0, 30, *nothing),
        ("ingest", 1, "committed", _TOPIC, 1, 1, 5, 25, 20, 12, 1, 7, 24),
        ("ingest", 3, "pending", _TOPIC, 1, 0, 30, 40, *nothing),
        ("replay-a", 1, "committed", _TOPIC, 1, 0, 3, 8, 2, 2, 0, 0, 2),
    ]
    times = f"SELECT w.pinned_at, w.committed_at FROM {table}_windows w WHERE w.lane = 'ingest' ORDER BY w.seq"
    found = [tuple(map(_moment, row)) for row in ask(times)]
    assert found == [(_utc(_AT), _utc(_AT + 86_400_000)), (_utc(_AT), _utc(_AT + 2 * 86_400_000)), (_utc(_AT), None)]


def questions() -> list[str]:
    """The queries of docs/plain-sql.md."""
    blocks = re.findall(r"```sql\n(.*?);\n```", (REPOSITORY / "docs" / "plain-sql.md").read_text(), re.DOTALL)
    return [one for one in blocks if one.startswith("SELECT")]


def _utc(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _moment(said: datetime | str | None) -> datetime | None:
    """SQLite's are texts; those of MySQL have no zone."""
    found = datetime.fromisoformat(said) if isinstance(said, str) else said
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)
