"""The limits that docs/ledger.md names: the largest window that is pinned can be committed, whatever its tallies say."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.covering import REPOSITORY
from tests.support.memory import MemoryStore
from tests.support.protocol_world import NoWork, Sweeps, hold
from tests.support.streams_in_memory import StreamInMemory
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.errors import TooLarge
from tidemark.ledger.ledger import Ledger, head_key
from tidemark.ledger.records import (
    Head,
    LaneKind,
    Receipt,
    SinkReceipt,
    UnknownFields,
    Window,
    WindowRange,
    positions,
)
from tidemark.ledger.register import open_lane
from tidemark.ledger.stores.hbase import HBaseLedgerStore
from tidemark.ledger.stores.sql import SQLLedgerStore
from tidemark.ledger.stores.zookeeper import ZooKeeperLedgerStore
from tidemark.offsets.ranges import MAX_OFFSET, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs.windows.ingest import preview

TOPIC = "t" * 20
LONG = 2**63 - 2
MAX = Count(LONG, "f" * 16)
# Of each ledger, with the column of its numbers in the table of docs/ledger.md.
LIMITS = [
    (HBaseLedgerStore.max_value_bytes, 2),
    (SQLLedgerStore.max_value_bytes, 3),
    (ZooKeeperLedgerStore.max_value_bytes, 4),
]


class LargestTallies(NoWork):
    """Says that it has read everything, in the largest numbers that there are."""

    def __init__(self, window: Window) -> None:
        self._window = window

    def verify(self) -> Receipt:
        tallies = tuple(
            PartitionTally(
                topic=one.topic,
                incarnation=one.incarnation,
                partition=one.partition,
                read=MAX,
                stored=MAX,
                skipped=MAX,
                invalid=MAX,
                failed=MAX,
                rows=MAX,
                content="f" * 16,
                source="f" * 16,
                first=LONG,
                last=LONG,
                bytes=LONG,
                first_timestamp=LONG,
                last_timestamp=LONG,
            )
            for one in self._window.ranges
        )
        # What messages may bring: keys of control characters, which JSON writes in six bytes each.
        names = {f"{number:02}".ljust(100, "\x01"): LONG for number in range(99)}
        unknown = UnknownFields.of(LONG, names)
        assert unknown is not None
        # And what a stream file may: as long as the rest of a record has room for.
        sink = SinkReceipt(name="s" * 60, type="parquet", place={"folder": "f" * 7_000})
        return structs.replace(super().verify(), tallies=tallies, unknown=unknown.for_a_receipt(), sinks=(sink,))


def plan_of(partitions: int) -> protocol.Planner:
    def plan(head: Head) -> Window:
        begin = head.offsets()
        ranges = tuple(
            WindowRange(
                topic=TOPIC,
                incarnation=1,
                partition=number,
                start=begin[TopicPartition(TOPIC, number)],
                until=MAX_OFFSET - 10 + head.seq,
                log_start=0,
                log_end=MAX_OFFSET,
                leader_epoch=99,
            )
            for number in range(partitions)
        )
        return Window(
            seq=head.seq + 1,
            ranges=ranges,
            topic_ids={TOPIC: "i" * 36},
            isolation="read_committed",
            pinned_at=10**12,
            run="r" * 60,
            goal=positions({one.at: one.until for one in ranges}),
        )

    return plan


def documented(column: int) -> int:
    """The number of partitions in the table of docs/ledger.md."""
    (line,) = [
        line
        for line in (REPOSITORY / "docs" / "ledger.md").read_text().splitlines()
        if "partitions in one window" in line
    ]
    return int(line.split("|")[column].strip().replace(",", ""))


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "column"), LIMITS)
def test_the_largest_window_that_is_pinned_can_be_committed(limit: int, column: int) -> None:
    partitions = documented(column)
    store = MemoryStore(max_value_bytes=limit)
    ledger = Ledger(store, "s")
    start = positions({TopicPartition(TOPIC, number): 10**9 for number in range(partitions)})
    open_lane(ledger, "ingest", LaneKind.INGEST, run="r", start=start)
    # A window behind another one: the head holds the last record and the pending window at once.
    for _ in range(2):
        assert protocol.pin(ledger, Sweeps(), "ingest", plan_of(partitions)) is not None
        protocol.abandon(ledger, "ingest", "r" * protocol.MAX_REASON, take_over=True)
        pending = protocol.pin(ledger, Sweeps(), "ingest", plan_of(partitions))
        assert pending is not None
        assert len(store.values[head_key("ingest")]) <= limit
        work = LargestTallies(pending.window)
        protocol.process(ledger, Sweeps(), work, hold, "ingest", pending.window.seq, Run("r" * 60, "v" * 60, "d" * 64))
        assert len(store.values[head_key("ingest")]) <= limit


@pytest.mark.parametrize(("limit", "column"), LIMITS)
def test_a_tenth_more_is_refused_when_it_is_pinned(limit: int, column: int) -> None:
    partitions = documented(column) * 11 // 10
    store = MemoryStore(max_value_bytes=limit)
    ledger = Ledger(store, "s")
    start = positions({TopicPartition(TOPIC, number): 10**9 for number in range(partitions)})
    open_lane(ledger, "ingest", LaneKind.INGEST, run="r", start=start)
    before = store.values[head_key("ingest")]
    with pytest.raises(
        TooLarge, match=f"a window over {partitions} partitions could make the head of s/ingest"
    ) as said:
        protocol.pin(ledger, Sweeps(), "ingest", plan_of(partitions))
    (room,) = re.findall(r"enough for some (\d+) such partitions", str(said.value))
    # As many as fit, and no fewer than the table says.
    assert documented(column) <= int(room) < partitions
    assert store.values[head_key("ingest")] == before


def test_a_preview_refuses_what_no_ledger_holds(tmp_path: Path) -> None:
    """As `tidemark plan` asks: before the first run, and not only at its pin."""
    for partitions, fits in ((documented(3), True), (5_000, False)):
        stream = StreamInMemory(tmp_path, store=MemoryStore(max_value_bytes=SQLLedgerStore.max_value_bytes))
        stream.ends(*[(0, 10**9)] * partitions)
        with (
            nullcontext()
            if fits
            else pytest.raises(TooLarge, match="a window over 5000 partitions could make the head")
        ):
            preview(stream.opened)
