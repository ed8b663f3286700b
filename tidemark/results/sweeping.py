"""Step 7's sweep: what older attempts left at a committed window's offsets is removed from every sink of its receipt."""

from __future__ import annotations

from tidemark.connections import Connections, hbase_endpoint
from tidemark.errors import WrongUse
from tidemark.hbase.gateway import Gateway
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.ranges import RangeSet
from tidemark.results import aggregate_rows, kafka_messages, latest_rows
from tidemark.results.hbase_table import ResultTable


class SinkSweeper:
    """Sweeps the places that a receipt names: today's stream file may name others."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def sweep(self, record: Record, covers: RangeSet) -> None:
        for sink in record.places:
            self._sweep_one(sink, record, covers)

    def _sweep_one(self, sink: SinkReceipt, record: Record, covers: RangeSet) -> None:
        if sink.type == "hbase":
            gateway = Gateway(hbase_endpoint(self._connections(sink.place["connection"])))
            ResultTable(gateway, sink.place["table"]).sweep(covers, record.attempt.generation)
        elif sink.type == "parquet":
            # Arrow takes a third of a second to load, and most programs that open a stream never sweep.
            from tidemark.results import parquet_files

            parquet_files.sweep(sink.place["base"], record)
        elif sink.type == "delta":
            from tidemark.results import delta_table

            delta_table.sweep(sink.place["base"], record, covers)
        elif sink.type == latest_rows.TYPE:
            # Nobody knows which keys an older attempt has written, and what it wrote lies below or does not count.
            return
        elif sink.type == aggregate_rows.TYPE:
            # As there: a key that a window no longer contributes to keeps a cell that does not count.
            return
        elif sink.type == kafka_messages.TYPE:
            # Nobody can remove messages from a topic: readers leave out what does not count.
            return
        else:
            raise WrongUse(f"the receipt of {record.lane}/{record.seq} names a sink of unknown type {sink.type!r}")
