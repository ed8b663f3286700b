"""Step 7's sweep of a committed window: removes what older attempts left at its offsets in the receipt's sinks."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.clients.connections import Connections
from tidemark.errors import WrongUse
from tidemark.ledger.erased import Written
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import PlainSink
from tidemark.sinks.kinds import kind_of


class SinkSweeper:
    """Sweeps the places that a receipt names, because today's stream file may name others."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def sweep(self, record: Record, covers: RangeSet) -> None:
        for sink in record.places:
            self._sweep_one(sink, record, covers)

    def _sweep_one(self, sink: SinkReceipt, record: Record, covers: RangeSet) -> None:
        plain = _plain(sink, f"the receipt of {record.lane}/{record.seq}")
        plain.sweep(self._connections, sink.place, record, covers)

    def erase(self, record: Record, covers: RangeSet, erased: RangeSet, places: Sequence[Written]) -> None:
        for standing, sink in places:
            plain = _plain(sink, f"a place of offsets that {record.lane}/{record.seq} has erased")
            plain.erase_beside(self._connections, sink.place, record, covers, erased, standing)


def _plain(sink: SinkReceipt, where: str) -> PlainSink:
    try:
        return kind_of(sink.type).without_spark()
    except WrongUse as problem:
        raise WrongUse(f"{where}: {problem}") from None
