"""Publishing a window of a table with the newest row of each key: after many windows, and beside a merge by hand.

The ledger is in the servers of the site, the table in a folder of this machine. Windows before the measured ones have no rows,
but the first one, which has a row of each key.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from bench.ledger import NoSweeps, new_store
from bench.pairs import Pairs, in_pairs
from bench.workbench import Workbench
from tidemark.clients.environment import from_environment
from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import (
    INGEST,
    Attempt,
    Head,
    LaneKind,
    Receipt,
    Record,
    SinkReceipt,
    TopicIncarnation,
    Window,
    WindowRange,
    positions,
)
from tidemark.ledger.register import change_topics, new_token, open_lane
from tidemark.ledger.stores.contract import LedgerStore
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.sinks.delta.latest.table import DeltaLatest, prepare
from tidemark.sinks.hbase.aggregates.publishing import AggregatedRows
from tidemark.sinks.hbase.keyed import publishing
from tidemark.sinks.hbase.keyed.encoding import encoded
from tidemark.sinks.hbase.keyed.table import KeyedTable, keyed_table
from tidemark.sinks.hbase.latest.publishing import NewestRows
from tidemark.sinks.latest.rows import BUCKET, DELETED, GENERATION, KEY_HASH, columns, history_of
from tidemark.sinks.latest.table import publish
from tidemark.sinks.parquet import files, types

_AT = TopicPartition("changes", 0)
_FIELDS = {"id": "integer", "value": "string"}
_KEYS, _CHANGES = 100_000, 1_000
_NAME = "by_id"
# Of the sink with aggregates.
_VALUES = {"rows": ("count", None), "most": ("max", "value")}


def after_many(bench: Workbench) -> Pairs:
    """After 1,000 windows, against after 100."""
    old, young = Publication(new_store(), 1_000), Publication(new_store(), 100)
    try:
        return in_pairs(bench.pairs, old.publish_next, young.publish_next)
    finally:
        old.close()
        young.close()


def beside_puts(bench: Workbench) -> Pairs:
    """Into HBase after 100 windows, against puts of the same cells, without the ledger and the rows that are there."""
    return _beside_puts(bench, "hbase_latest")


def totals_beside_puts(bench: Workbench) -> Pairs:
    """As `beside_puts`, of a table with the number of rows and the greatest value of each key."""
    return _beside_puts(bench, "hbase_aggregates")


def _beside_puts(bench: Workbench, kind: str) -> Pairs:
    named = f"bench_{new_token()}"
    table = Publication(new_store(), 100, kind=kind, in_hbase=keyed_table(from_environment, "hbase_default", named))
    puts = keyed_table(from_environment, "hbase_default", f"{named}_puts")
    puts.prepare("bench", "bench", ["id"], table.buckets)
    offsets = iter(range(_KEYS, 10**9, _CHANGES))

    def put() -> float:
        fresh = rows(next(offsets), _CHANGES, table.buckets)
        fresh = fresh.append_column(GENERATION, pa.repeat(pa.scalar(1, pa.int64()), fresh.num_rows))
        began = time.perf_counter()
        puts.put(encoded(fresh, _FIELDS, ["id"], kind), int(began * 1000))
        return time.perf_counter() - began

    try:
        return in_pairs(bench.pairs, table.publish_next, put)
    finally:
        table.close()


def beside_a_merge(bench: Workbench) -> Pairs:
    """After 100 windows, against delta-rs' merge of the same rows with the guard and the buckets in its condition."""
    table = Publication(new_store(), 100)
    by_hand = Path(tempfile.mkdtemp(prefix="merged"))
    write_deltalake(by_hand, rows(0, _KEYS, table.buckets), partition_by=[BUCKET])
    offsets = iter(range(_KEYS, 10**9, _CHANGES))

    def merge() -> float:
        fresh = rows(next(offsets), _CHANGES, table.buckets)
        began = time.perf_counter()
        touched = ", ".join(map(str, sorted({*fresh.column(BUCKET).to_pylist()})))
        merged = DeltaTable(by_hand).merge(
            fresh,
            predicate=f"t.id = s.id AND t.{BUCKET} = s.{BUCKET} AND t.{BUCKET} IN ({touched})",
            source_alias="s",
            target_alias="t",
        )
        merged.when_matched_update_all("s._offset > t._offset").when_not_matched_insert_all().execute()
        return time.perf_counter() - began

    try:
        return in_pairs(bench.pairs, table.publish_next, merge)
    finally:
        table.close()
        shutil.rmtree(by_hand)


class Publication:
    """A table, and a ledger with so many windows of it."""

    def __init__(
        self,
        store: LedgerStore,
        windows: int,
        buckets: int = 16,
        kind: str = "delta_latest",
        in_hbase: KeyedTable | None = None,
    ) -> None:
        """`kind`: the type of sink. In Delta, unless the table is `in_hbase`."""
        self.buckets, self.in_hbase, self._kind = buckets, in_hbase, kind
        self.folder = Path(tempfile.mkdtemp(prefix="newest"))
        base = f"file://{self.folder}"
        self._table = DeltaLatest(base)
        self._place = {"base": history_of(base), "location": base}
        self.ledger = Ledger(store, "bench")
        start = positions({_AT: 0})
        open_lane(self.ledger, INGEST, LaneKind.INGEST, run="bench", start=start)
        topic = TopicIncarnation(topic_id="id", incarnation=1, since=1, partitions=1)
        change_topics(self.ledger, lambda topics: {**topics, "changes": (topic,)})
        register = self.ledger.register()
        assert register is not None
        files.own(history_of(base), "bench", register[1].ledger, _NAME)
        if in_hbase is None:
            prepare(base, _FIELDS, "bench", register[1].ledger, ["id"], buckets, "snappy")
        else:
            types.keep(history_of(base), _FIELDS)
            values = _VALUES if kind == "hbase_aggregates" else None
            in_hbase.prepare("bench", register[1].ledger, ["id"], buckets, values=values)
        self._publish(self._committed(_KEYS, _KEYS))
        for _ in range(windows - 1):
            self._committed(_CHANGES, 0)

    def publish_next(self) -> float:
        """The seconds that it takes to publish one more window."""
        return self._publish(self._committed(_CHANGES, _CHANGES))

    def _publish(self, record: Record) -> float:
        began = time.perf_counter()
        if self.in_hbase is None:
            publish(self._table, self.ledger, _NAME, record)
        else:
            made = AggregatedRows if self._kind == "hbase_aggregates" else NewestRows
            publishing.publish(made(self.in_hbase, self._table.base), self.ledger, _NAME, record)
        return time.perf_counter() - began

    def _committed(self, offsets: int, number: int) -> Record:
        assert protocol.pin(self.ledger, NoSweeps(), INGEST, lambda head: _window(head, offsets)) is not None
        head = self.ledger.head(INGEST)
        assert head is not None
        run = Run(name="bench", code_version="bench", stream_digest="0" * 64)
        work = _Writes(self._kind, self._place, number, self.buckets)
        return protocol.process(self.ledger, NoSweeps(), work, unwatched, INGEST, head.head.seq + 1, run)

    def close(self) -> None:
        shutil.rmtree(self.folder)


def rows(first: int, number: int, buckets: int) -> pa.Table:
    """Changes of keys that are scattered over all buckets, or of all keys, from an offset on."""
    offsets = np.arange(first, first + number)
    ids = offsets * 7919 % _KEYS
    given = {"_topic": ["changes"] * number, "id": ids, "value": [f"value {one}" for one in offsets]}
    given |= {"_offset": offsets, KEY_HASH: ids, BUCKET: ids % buckets, "_digest": offsets}
    given |= {"_tombstone": [False] * number, DELETED: [False] * number}
    schema = pa.schema([one for one in columns(_FIELDS) if one.name != GENERATION])
    whole = {one.name: given.get(one.name, [1 if one.name == "_incarnation" else 0] * number) for one in schema}
    return pa.table(whole, schema=schema)


def _window(head: Head, offsets: int) -> Window:
    first = head.offsets()[_AT]
    one = WindowRange(
        topic=_AT.topic, incarnation=1, partition=0, start=first, until=first + offsets, log_start=0, log_end=2**40
    )
    isolation = "read_committed"
    return Window(
        seq=head.seq + 1, ranges=(one,), topic_ids={_AT.topic: "id"}, isolation=isolation, pinned_at=1, run="b"
    )


class _Writes:
    """Writes the first rows of a window, as Spark would."""

    def __init__(self, kind: str, place: dict[str, str], number: int, buckets: int) -> None:
        self._kind, self._place, self._number, self._buckets = kind, place, number, buckets

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        (self._range,) = window.ranges

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        self._place = self._written_to(attempt)
        there = Path(self._place["folder"].removeprefix("file://"))
        there.mkdir(parents=True)
        pq.write_table(rows(self._range.start, self._number, self._buckets), there / "part-0.parquet")

    def _written_to(self, attempt: Attempt) -> dict[str, str]:
        folder = f"{self._place['base']}/lane={INGEST}/seq={self._range.start}/generation={attempt.generation}"
        return {**self._place, "folder": folder}

    def verify(self) -> Receipt:
        one = self._range
        stored = Count.of(self._number, 0)
        tally = PartitionTally(topic=one.topic, incarnation=1, partition=0, rows=stored)
        sink = SinkReceipt(name=_NAME, type=self._kind, place=self._place)
        return Receipt(tallies=(tally,), sinks=(sink,), dead_letters=None, started_at=1, finished_at=2)
