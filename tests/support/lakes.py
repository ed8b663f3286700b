"""A stream with the sink `parquet`, over a Kafka and a ledger in memory, and real files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.claiming import claim_lane
from tests.support.erasures import ANN, REASON, Killed, receipt
from tests.support.protocol_world import hold
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.ledger.records import INGEST, Attempt, LaneKind, Receipt, Record, SinkReceipt, Window
from tidemark.ledger.register import note_places
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing, steering
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.parquet.sink import ParquetAdmin
from tidemark.sinks.sweeping import SinkSweeper

SCHEMA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_incarnation", pa.int32()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_index", pa.int32()),
        ("_tombstone", pa.bool_()),
        ("_digest", pa.int64()),
    ]
)


def with_a_row(base: str) -> None:
    """Write a file with a row below a folder, of an attempt that may count."""
    folder = Path(files.attempt_folder(base, "ingest", 1, 1).removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"_offset": [1]}), folder / "part-0.parquet")


class Lake:
    """A stream with the sink `parquet`, whose attempts write real files."""

    def __init__(self, folder: Path, more: str = "") -> None:
        text = TEXT.replace("type: hbase\n    table: orders", "type: parquet\n    name: lake\n    folder: lake")
        self.folder = folder
        self.stream = StreamInMemory(folder, text=text + more)
        self.base = f"file://{folder}/lake"
        self.stream.opened = replace(self.stream.opened, sweeper=SinkSweeper(self.stream.opened.connections))
        self.dies = False
        self.lane = ""
        self.name = "lake"

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._window, self._covers = window, covers

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        self._place = self.write(self._covers, self.lane, self._window.seq, attempt.generation)
        note_places(self.stream.opened.ledger, [self._place])
        if self.dies:
            raise Killed

    def write(self, covers: RangeSet, lane: str, seq: int, generation: int) -> SinkReceipt:
        folder = files.attempt_folder(self.base, lane, seq, generation)
        rows = [
            dict(zip(SCHEMA.names, ("orders", 1, 0, offset, 0, False, 0), strict=True))
            for one in covers
            for offset in range(one.start, one.until)
        ]
        path = Path(folder.removeprefix("file://"))
        if not folders.has_mark(self.base):
            files.own(self.base, "orders", self.stream.opened.ledger.register()[1].ledger, self.name)
        path.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path / "part-0.parquet")
        return SinkReceipt(name=self.name, type="parquet", place={"base": self.base, "folder": folder})

    def verify(self) -> Receipt:
        return receipt(self._place)

    def work(self, lane: str, run: str) -> Record:
        opened = self.stream.opened
        self.lane = lane
        head = opened.ledger.head(lane)
        assert head is not None
        return protocol.process(opened.ledger, opened.sweeper, self, hold, lane, head.head.seq + 1, Run(run, "v", "d"))

    def ingest(self) -> None:
        self.stream.ends((0, 10))
        assert ingest.plan_ingest(self.stream.opened, "run 1") is not None
        self.work(INGEST, "run 1")

    def cancelled_replay(self) -> str:
        opened = self.stream.opened
        lane = claim_lane(opened, LaneKind.REPLAY, "wrong", offsets((0, 3, 8)), "bug 17")
        lanes.plan_lane(opened, lane, "wrong")
        self.dies = True
        with pytest.raises(Killed):
            self.work(lane, "wrong")
        self.dies = False
        steering.cancel(opened, lane, "asked for the wrong hour")
        return lane

    def erase(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The table of the dead letters, which nothing here writes.
        monkeypatch.setattr("tidemark.sinks.hbase.sink.HBaseAdmin.erase", lambda *_: None)
        monkeypatch.setattr("tidemark.sinks.hbase.sink.HBaseAdmin.reach", lambda *_: None)
        opened = self.stream.opened
        lane = erasing.open_erasure(opened, "e", erasing.choose(opened, offsets((0, 5, 6))), REASON, ANN)
        erasing.erase(opened, lane, "e")

    def holding(self, offset: int) -> list[str]:
        """The folders whose files have a row of an offset, as a plain reader finds them."""
        return sorted(
            str(one.parent.relative_to(self.folder / "lake"))
            for one in (self.folder / "lake").rglob("*.parquet")
            if offset in pq.read_table(one, partitioning=None).column("_offset").to_pylist()
        )

    def remains(self) -> str:
        return ParquetAdmin().remains(self.stream.opened, "lake", offsets((0, 5, 6)))
