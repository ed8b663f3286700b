"""A stream with many partitions and a long history of its ingest, written straight into its ledger."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tests.support.bulk import load
from tests.support.protocol_world import NoWork, hold
from tidemark.commit import protocol
from tidemark.ledger.codec import encode
from tidemark.ledger.ledger import head_key, record_key
from tidemark.ledger.records import INGEST, Record, WindowRange, positions
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest, lanes

# Partitions that a window moves, and offsets of each.
EACH, SIZE = 10, 1_000
_AT_ONCE = 500


def give_history(opened: OpenStream, windows: int, each: int = EACH) -> None:
    """Commit a first window for real, without rows, and then so many more as if others had followed it.

    Each moves `each` partitions in turn by a thousand offsets. The topic needs messages in all of its partitions.
    """
    run = lanes.this_run(opened, "history")
    pending = ingest.plan_ingest(opened, "history")
    assert pending is not None
    protocol.process(opened.ledger, opened.sweeper, NoWork(), hold, INGEST, pending.window.seq, run)
    found = opened.ledger.head(INGEST)
    assert found is not None
    last = found.head.last
    assert last is not None
    batch: dict[Key, bytes] = {record_key(INGEST, last.seq): encode(last)}
    for record in _following(last, found.head.offsets(), windows, each):
        last = record
        batch[record_key(INGEST, record.seq)] = encode(record)
        if len(batch) == _AT_ONCE:
            # The last one of them is written with the next ones: a store gets all but the newest.
            load(opened.ledger.store, batch)
            batch = {record_key(INGEST, record.seq): encode(record)}
    load(opened.ledger.store, batch)
    head = replace(found.head, seq=last.seq, positions=last.positions, last=last)
    assert opened.ledger.store.swap(head_key(INGEST), found.bytes, encode(head))


def _following(first: Record, offsets: dict[TopicPartition, int], windows: int, each: int) -> Iterator[Record]:
    now, partitions = dict(offsets), sorted(offsets)
    for number in range(1, windows + 1):
        moved = [partitions[(number * each + one) % len(partitions)] for one in range(min(each, len(partitions)))]
        ranges = tuple(
            WindowRange(
                topic=at.topic,
                incarnation=at.incarnation,
                partition=at.partition,
                start=now[at],
                until=now[at] + SIZE,
                log_start=0,
                log_end=now[at] + SIZE,
            )
            for at in sorted(moved)
        )
        now.update({at: now[at] + SIZE for at in moved})
        seq, generation = first.seq + number, first.attempt.generation + number
        yield replace(
            first,
            window=replace(first.window, seq=seq, ranges=ranges),
            attempt=replace(first.attempt, generation=generation),
            positions=positions(now),
            committed_at=first.committed_at + number,
        )
