"""A stream with its servers: what every program that works on a stream opens first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tidemark.connections import (
    Connections,
    from_environment,
    hbase2_endpoint,
    hbase_endpoint,
    kafka_bootstrap,
    lake_folder,
    zookeeper_endpoint,
)
from tidemark.errors import WrongUse
from tidemark.hbase.gateway import Gateway
from tidemark.kafka.log import KafkaLog
from tidemark.ledger.book import Book
from tidemark.ledger.hbase import HBaseLedgerStore
from tidemark.ledger.store import LedgerStore
from tidemark.ledger.zookeeper import OffsetLayouts, ZooKeeperLedgerStore
from tidemark.results.aggregate_table import AggregateTable
from tidemark.results.hbase_table import ResultTable
from tidemark.results.sweeping import SinkSweeper
from tidemark.streams.delta_sink import DeltaSink
from tidemark.streams.loading import StreamFile, load
from tidemark.streams.model import Ledger, Stream, ZooKeeperLedger
from tidemark.streams.parquet_sink import ParquetSink
from tidemark.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from tidemark.hbase.thrift2 import Gateway2
    from tidemark.results.latest_table import LatestTable


@dataclass(frozen=True)
class OpenStream:
    """A stream file with its ledger, its Kafka cluster and its connections. Opening reads nothing and writes nothing."""

    file: StreamFile
    book: Book
    log: KafkaLog
    sweeper: SinkSweeper
    connections: Connections

    @property
    def stream(self) -> Stream:
        return self.file.stream

    def result_table(self, connection: str, table: str) -> ResultTable:
        return ResultTable(Gateway(hbase_endpoint(self.connections(connection))), table)

    def latest_table(self, connection: str, table: str) -> LatestTable:
        from tidemark.results.latest_table import LatestTable

        return LatestTable(self.gateway2(connection), table)

    def aggregate_table(self, connection: str, table: str) -> AggregateTable:
        return AggregateTable(Gateway(hbase_endpoint(self.connections(connection))), table)

    def gateway2(self, connection: str) -> Gateway2:
        # Thrift 2 takes a third of a second to load, and most streams do without it.
        from tidemark.hbase.thrift2 import Gateway2

        return Gateway2(hbase2_endpoint(self.connections(connection)))

    def dead_letter_table(self) -> ResultTable:
        return self.result_table(self.stream.dead_letters.hbase, self.stream.dead_letters.table)

    def parquet_sink(self, name: str | None) -> ParquetSink:
        """The sink `parquet` of this name, or the only one. Raises WrongUse naming those that there are."""
        sinks = [one for one in self.stream.sinks if isinstance(one, ParquetSink) and name in (None, one.name)]
        if len(sinks) != 1:
            known = ", ".join(one.name for one in self.stream.sinks if isinstance(one, ParquetSink)) or "none"
            raise WrongUse(f"{self.stream.stream}: name one sink of type parquet; there are: {known}")
        return sinks[0]

    def files_base(self, sink: ParquetSink | DeltaSink) -> str:
        """The folder that a sink of files writes below, as a URI."""
        base = lake_folder(self.connections(sink.files))
        root = base if "://" in base else f"file://{PurePosixPath(base) if base else ''}"
        return f"{root}/{sink.folder}"


def open_stream(path: Path, connections: Connections = from_environment) -> OpenStream:
    """Open the stream of a file. Raises InvalidStreamFile, ConnectionMissing."""
    file = load(path)
    stream = file.stream
    log = KafkaLog(kafka_bootstrap(connections(stream.source.kafka)))
    group = stream.source.export_group
    return OpenStream(
        file=file,
        book=Book(
            ledger_store(stream.ledger, stream.stream, connections),
            stream.stream,
            export=partial(log.commit_group, group) if group else None,
        ),
        log=log,
        sweeper=SinkSweeper(connections),
        connections=connections,
    )


def ledger_store(ledger: Ledger, stream: str, connections: Connections) -> LedgerStore:
    if isinstance(ledger, ZooKeeperLedger):
        zookeeper = ZooKeeper(zookeeper_endpoint(connections(ledger.zookeeper)))
        layouts = OffsetLayouts(stream, ledger.consumers, ledger.storm)
        return ZooKeeperLedgerStore(zookeeper, ledger.path, stream, layouts)
    gateway = Gateway(hbase_endpoint(connections(ledger.hbase)))
    return HBaseLedgerStore(gateway, ledger.table, stream, ledger.offsets_table)
