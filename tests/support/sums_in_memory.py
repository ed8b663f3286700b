"""A stream with a table of aggregates in memory, whose contributions are written as the sink `hbase_aggregates` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cells_in_memory import CellsInMemory, TableInMemory
from tests.support.claiming import claim_lane
from tests.support.protocol_world import hold
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.ledger.records import INGEST, Attempt, LaneKind, Receipt, SinkReceipt, Window, reads_again
from tidemark.ledger.register import note_places
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing
from tidemark.runs.requests.approval import People
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.first_reads import FirstWindows
from tidemark.sinks.hbase.aggregates.rows import block_qualifier, encode, row_key
from tidemark.sinks.hbase.aggregates.table import place_of
from tidemark.sinks.sweeping import SinkSweeper

ANN = People("ann")
REASON = "request 4711"


class Killed(BaseException):
    """The process was killed here."""


def receipt(*places: SinkReceipt) -> Receipt:
    return Receipt(tallies=(), sinks=places, dead_letters=None, started_at=1, finished_at=2)


class Contributions:
    """One contribution for each key and unit, as the sink `hbase_aggregates` names its columns."""

    def __init__(self, sums: Sums, lane: str) -> None:
        self._sums = sums
        self._lane = lane

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._window, self._covers = window, covers

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        note_places(self._sums.stream.opened.book, [self._sums.place])
        if self._window.counts_for("sums") and self._sums.writes:
            made = Counter(
                (self._sums.key_of(offset), b"d:" + self._column(offset))
                for one in self._covers
                for offset in range(one.start, one.until)
            )
            for (row, column), number in made.items():
                states = [("n", b"%d" % number)]
                cell = encode(attempt.generation, self._lane, self._window.seq, number, 0, states)
                self._sums.cells.put(row, column, attempt.generation, cell)
        if self._sums.dies:
            raise Killed

    def _column(self, offset: int) -> bytes:
        book, block = self._sums.stream.opened.book, self._sums.block
        first = FirstWindows(book.committed())
        number = first.at(at(0), offset) if reads_again(self._lane) else None
        covers = first.covers[number] if number is not None else book.covers(self._window)
        start = covers.at_or_above(at(0), offset - offset % block)
        assert start is not None
        return block_qualifier(at(0), start)

    def verify(self) -> Receipt:
        return receipt(self._sums.place) if self._sums.writes else receipt()


def key_of(offset: int) -> bytes:
    return row_key([f"user-{offset}".encode()])


class Sums:
    """A stream with a table of aggregates. Without `writes`, the stream file does not name the table yet."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        block: int,
        key_of: Callable[[int], bytes] = key_of,
    ) -> None:
        self.key_of = key_of
        settings = f"name: sums, table: sums, key: id, values: {{n: count}}, block_offsets: {block}"
        sink = f"  - {{type: hbase_aggregates, {settings}}}\n"
        self.stream = StreamInMemory(folder, text=TEXT.replace("dead_letters:", f"{sink}dead_letters:"))
        self.cells = CellsInMemory()
        self.block = block
        self.place = SinkReceipt(name="sums", type="hbase_aggregates", place=place_of("hbase_default", "sums", block))
        self.writes, self.dies = True, False
        self.table = table = TableInMemory(self.cells, "sums", block)
        monkeypatch.setattr("tidemark.sinks.hbase.aggregates.sink.aggregate_table", lambda *_: table)
        # The other sinks of the stream file are tables of rows, which nothing here writes.
        monkeypatch.setattr("tidemark.sinks.hbase.sink.PlainHBase.erase", lambda *_: None)
        monkeypatch.setattr("tidemark.sinks.hbase.sink.PlainHBase.reach", lambda *_: None)
        sweeper = SinkSweeper(self.stream.opened.connections)
        self.stream.opened = replace(self.stream.opened, sweeper=sweeper)

    def work(self, lane: str, run: str) -> None:
        opened = self.stream.opened
        while lanes.plan_lane(opened, lane, run) if lane != INGEST else ingest.plan_ingest(opened, run):
            head = opened.book.head(lane)
            assert head is not None
            work = Contributions(self, lane)
            protocol.process(opened.book, opened.sweeper, work, hold, lane, head.head.seq + 1, Run(run, "v", "d"))
        lanes.finish(opened, lane)

    def ingest(self, *ends: int) -> None:
        for end in ends:
            self.stream.ends((0, end))
            self.work(INGEST, f"run {end}")

    def erase(self, offset: int) -> None:
        wanted = offsets((0, offset, offset + 1))
        run = f"erase {offset}"
        chosen = erasing.choose(self.stream.opened, wanted)
        self.work(erasing.open_erasure(self.stream.opened, run, chosen, REASON, ANN), run)

    def replay(self, wanted: RangeSet, run: str) -> str:
        return claim_lane(self.stream.opened, LaneKind.REPLAY, run, wanted, "bug 17", sinks=("sums",))

    def left_of(self, offset: int) -> dict[str, list[int]]:
        return self.cells.timestamps(self.key_of(offset))
