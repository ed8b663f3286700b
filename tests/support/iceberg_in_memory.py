"""A stream whose ledger is in memory, with a real Iceberg table: its work writes the files that Spark would write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction

from tests.support.claiming import claim_lane
from tests.support.protocol_world import hold
from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.clients.connections import Connection
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Listener, Run, Step
from tidemark.ledger.records import INGEST, Attempt, LaneKind, Receipt, Record, SinkReceipt, Window
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import CatalogTable, located
from tidemark.sinks.iceberg.reading import iceberg_tables
from tidemark.sinks.iceberg.settings import IcebergSink, place_of
from tidemark.sinks.sweeping import SinkSweeper

SINK = "  - type: iceberg\n    folder: orders_iceberg\n    table: lake.orders\n"

LETTERS = (
    "dead_letters:\n  type: hbase\n  table: orders_dead\n",
    "dead_letters:\n  type: parquet\n  folder: orders_dead\n",
)


@dataclass
class IcebergInMemory(StreamInMemory):
    """Each message is a row whose `id` is its offset, `first` added."""

    first: int = 0
    text: str = TEXT.replace("  - type: hbase\n    table: orders\n", SINK).replace(*LETTERS)

    # Those that the files of an attempt have.
    columns: ClassVar[Sequence[str]]

    def __post_init__(self) -> None:
        super().__post_init__()
        before = self.opened
        sweeper = SinkSweeper(self._connection)
        self.opened = OpenStream(before.file, before.ledger, before.log, sweeper, self._connection)

    def _connection(self, name: str) -> Connection:
        if name == "iceberg_default":
            return Connection(name, host=str(self.folder / "catalog.db"), kind="sqlite")
        return super()._connection(name)

    @property
    def sink(self) -> IcebergSink:
        (found,) = (one for one in self.opened.stream.sinks if isinstance(one, IcebergSink))
        return found

    @property
    def where(self) -> CatalogTable:
        return located(self.opened.connections, place_of(self.sink, self.sink.base(self.opened.connections)))

    def process(self, lane: str, run: str = "run 1", *, until: Step | None = None) -> Record:
        """Process the lane's pending window; a process that is killed after a step raises Killed."""
        ledger = self.opened.ledger
        found = ledger.head(lane)
        assert found is not None
        self.prepare()
        work = Writing(self, lane, found.head.seq + 1, run)

        def heard(step: Step) -> None:
            if step == until:
                raise Killed(step)

        self.now += 1
        this = Run(run, "v1", "d")
        return protocol.process(ledger, self.opened.sweeper, work, hold, lane, work.seq, this, on_step=heard)

    def prepare(self) -> None:
        iceberg_table.prepare(self.where, self.opened.fields, self.opened.ledger.stream, "ledger")

    def receipt(self, lane: str, seq: int, generation: int) -> SinkReceipt:
        base = self.where.base
        folder = iceberg_table.attempt_folder(base, lane, seq, generation)
        return SinkReceipt(name="iceberg", type="iceberg", place={**place_of(self.sink, base), "folder": folder})

    def ingest(self, run: str = "run 1", *, until: Step | None = None) -> Record | None:
        self.now += 1
        if ingest.plan_ingest(self.opened, run) is None:
            return None
        return self.process(INGEST, run, until=until)

    def replay(self, wanted: RangeSet, run: str, *, until: Step | None = None) -> Record:
        self.now += 1
        lane = claim_lane(self.opened, LaneKind.REPLAY, run, wanted, "a test")
        assert lanes.plan_lane(self.opened, lane, run) is not None
        done = self.process(lane, run, until=until)
        lanes.finish(self.opened, lane)
        return done

    def table(self) -> Table:
        """As a program has it that knows only the catalog."""
        catalog = SqlCatalog(self.where.catalog, uri=f"sqlite:///{self.where.server.host}")
        return catalog.load_table(self.where.table)

    def seen(self) -> list[tuple[int, int]]:
        """Partition and offset of each row that others see."""
        rows = self.table().scan(selected_fields=("_partition", "_offset")).to_arrow().to_pylist()
        return sorted((row["_partition"], row["_offset"]) for row in rows)

    def counting(self) -> list[tuple[int, int]]:
        """Partition and offset of each row that Tidemark's reader gives."""
        tables = iceberg_tables(self.opened.ledger, "iceberg", self.opened.connections)
        return sorted((row["_partition"], row["_offset"]) for table in tables for row in table.to_pylist())

    def files(self) -> set[str]:
        """All data files of the lake."""
        base = self.where.base.removeprefix("file://")
        return {f"file://{path}" for path in Path(base).glob("data/**/*.parquet")}


class Killed(Exception):
    """Raised where a process is killed."""


@dataclass
class Writing:
    """Writes a row for each message, as the sink's files have it."""

    world: IcebergInMemory
    lane: str
    seq: int
    run: str

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._covers = covers

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        self._receipt = self.world.receipt(self.lane, self.seq, attempt.generation)
        offsets = [(one.partition, offset) for one in self._covers for offset in range(one.start, one.until)]
        rows = {
            "_topic": [at.topic for at, _ in offsets],
            "_incarnation": [at.incarnation for at, _ in offsets],
            "_partition": [at.partition for at, _ in offsets],
            "_offset": [offset for _, offset in offsets],
            "_index": [0] * len(offsets),
            "_tombstone": [False] * len(offsets),
            "_digest": [offset for _, offset in offsets],
            "id": [self.world.first + offset for _, offset in offsets],
            "_generation": [attempt.generation] * len(offsets),
        }
        there = Path(self._receipt.place["folder"].removeprefix("file://"))
        there.mkdir(parents=True)
        pq.write_table(pa.table(rows, schema=COLUMNS).select(self.world.columns), there / "part-0.parquet")
        on_step(Step.SINK_STORED)

    def verify(self) -> Receipt:
        tallies = tuple(
            PartitionTally(
                topic=at.topic,
                incarnation=at.incarnation,
                partition=at.partition,
                rows=Count(self._covers.only([at]).count(), "0" * 16),
            )
            for at in self._covers.partitions
        )
        return Receipt(tallies=tallies, sinks=(self._receipt,), dead_letters=None, started_at=1, finished_at=2)


COLUMNS = pa.schema(
    [
        *[("_topic", pa.string()), ("_incarnation", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64())],
        *[("_index", pa.int32()), ("_tombstone", pa.bool_()), ("_digest", pa.int64())],
        *[("id", pa.int64()), ("_generation", pa.int64())],
    ]
)
IcebergInMemory.columns = COLUMNS.names


def as_the_library_does(
    transaction: Transaction, gone: Iterable[DataFile], added: Iterable[DataFile], summary: Mapping[str, str]
) -> None:
    """A snapshot as the versions before made it."""
    update, old = transaction.update_snapshot(snapshot_properties=dict(summary)), [*gone]
    with update.overwrite() if old else update.merge_append() as made:
        for one in old:
            made.delete_data_file(one)
        for new in added:
            made.append_data_file(new)
