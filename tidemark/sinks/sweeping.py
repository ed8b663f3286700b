"""Step 7's sweep of a committed window: removes what older attempts left at its offsets in the receipt's sinks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.gateway import TableMissing
from tidemark.errors import ProcessingFailed, TidemarkError, Unreachable
from tidemark.ledger.erased import Written
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Erasing
from tidemark.sinks.kinds import plain_of


class SinkSweeper:
    """Sweeps the places that receipts and attempts name, because today's stream file may name others."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def reach(self, stream: str, places: Sequence[Written]) -> None:
        for standing, sink in places:
            with _at(sink, stream, "Attempts may have written there, so an erasure clears it. Nothing was erased"):
                plain_of(sink.type).reach(self._connections, sink.place, standing)

    def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None:
        for sink in places:
            with _at(sink, record.stream, _owed(record, "leaves rows of older attempts to remove there")):
                plain_of(sink.type).sweep(self._connections, sink.place, record, covers)

    def erase(self, record: Record, erased: RangeSet, places: Sequence[Written]) -> None:
        for standing, sink in places:
            with _at(sink, record.stream, _owed(record, "has erased what lies there")):
                plain_of(sink.type).erase(self._connections, sink.place, Erasing(record, erased, standing))


def _owed(record: Record, why: str) -> str:
    return f"Window {record.lane}/{record.seq} is committed, and {why}. Until that is done, no run of {record.stream} goes on"


@contextmanager
def _at(sink: SinkReceipt, stream: str, why: str) -> Iterator[None]:
    """Say at which place something failed, and how to go on without it. The error's class stays: it says who tries again."""
    where = f"the sink {sink.name} ({sink.type}, {sink.where()})"
    told = (
        f"{why}. Bring it back and run again. If it is gone for good, see "
        "docs/erasure.md#a-place-that-cannot-be-cleared: "
        f"tidemark ledger forget-place {stream} {shlex.join(sink.words)} --reason ..."
    )
    try:
        yield
    except TidemarkError as problem:
        raise type(problem)(f"{where}: {str(problem).rstrip('.')}. {told}") from problem
    except Exception as problem:
        # Of an own sink, or a library of its own, it may be anything.
        away = isinstance(problem, OSError | TableMissing)
        said = f"{where}: {type(problem).__name__}: {problem}. {told}"
        raise (Unreachable if away else ProcessingFailed)(said) from problem
