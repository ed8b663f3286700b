"""Step 7's sweep of a committed window: removes what older attempts left at its offsets in the receipt's sinks."""

from __future__ import annotations

from tidemark.clients.connections import Connections
from tidemark.errors import WrongUse
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.kinds import kind_of


class SinkSweeper:
    """Sweeps the places that a receipt names, because today's stream file may name others."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def sweep(self, record: Record, covers: RangeSet) -> None:
        for sink in record.places:
            self._sweep_one(sink, record, covers)

    def _sweep_one(self, sink: SinkReceipt, record: Record, covers: RangeSet) -> None:
        try:
            kind = kind_of(sink.type)
        except WrongUse as problem:
            raise WrongUse(f"the receipt of {record.lane}/{record.seq}: {problem}") from None
        kind.without_spark().sweep(self._connections, sink.place, record, covers)
