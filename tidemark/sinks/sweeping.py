"""Step 7 in the sinks: removes what older attempts left at the offsets of a committed window, and copies its dead letters."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.endpoint import TableMissing
from tidemark.errors import OwnedByAnother, ProcessingFailed, TidemarkError, Unreachable
from tidemark.ledger.erasures import WrittenPlace, still_there
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record, SinkReceipt, each_place
from tidemark.ledger.rollbacks import RegisterAndHeads, check_known
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Erasing
from tidemark.sinks.dead_letters.contract import DeadLetterSettings
from tidemark.sinks.dead_letters.copies import copies_at
from tidemark.sinks.dead_letters.kinds import required_kind
from tidemark.sinks.kinds import admin_of, publishes
from tidemark.sinks.taking_over import check_places

log = logging.getLogger(__name__)


class SinkSweeper:
    """Sweeps the places that receipts and attempts name, because today's stream file may name others."""

    def __init__(self, connections: Connections, letters: DeadLetterSettings | None = None) -> None:
        """`letters`: what today's stream file says of the copies of dead letters. None: no copies are made."""
        self._connections = connections
        self._letters = letters

    def reach(self, stream: str, places: Sequence[WrittenPlace]) -> None:
        for standing, sink in places:
            why = "Attempts may have written there, so an erasure clears it. Nothing was erased"
            with _at(sink, why, _forget(sink, stream)):
                admin_of(sink.type).reach(self._connections, sink.place, standing)

    def compare(self, ledger: Ledger, more: Iterable[SinkReceipt] = ()) -> None:
        if (known := RegisterAndHeads.now(ledger)) is None:
            return
        places = each_place((*known.places, *more))
        for sink in still_there(ledger, (place for place in places if publishes(place.type))):
            try:
                shown = [*admin_of(sink.type).shown(ledger, self._connections, sink.place)]
            except Exception as problem:
                # A place that is away says so when a window is written there.
                log.debug("what %s has shown was not found: %s", sink.where(), problem)
                continue
            check_known(ledger, known, f"the sink {sink.name} ({sink.type}, {sink.where()})", shown)

    def check_owners(self, ledger: Ledger, record: Record) -> None:
        settles = (place for place in record.places if record.owes_sweep or publishes(place.type))
        for sink in still_there(ledger, (place for place in settles if admin_of(place.type).owner_asked)):
            try:
                check_places(ledger, self._connections, [sink])
            except OwnedByAnother:
                raise
            except Exception as problem:
                # What is done there next says so with what to do.
                log.debug("whose %s is was not found: %s", sink.where(), problem)

    def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None:
        for sink in places:
            why = _owed(record, "leaves rows of older attempts to remove there")
            with _at(sink, why, _forget(sink, record.stream)):
                admin_of(sink.type).sweep(self._connections, sink.place, record, covers)

    def erase(self, record: Record, erased: RangeSet, places: Sequence[WrittenPlace]) -> None:
        for standing, sink in places:
            with _at(sink, _owed(record, "has erased what lies there"), _forget(sink, record.stream)):
                admin_of(sink.type).erase(self._connections, sink.place, Erasing(record, erased, standing))

    def hand_on(self, ledger: Ledger, record: Record) -> None:
        for sink in still_there(ledger, (place for place in record.places if publishes(place.type))):
            with _at(sink, _owed(record, "its rows are published there"), _forget(sink, record.stream)):
                admin_of(sink.type).publish(ledger, self._connections, sink.place, record)
        stored = record.receipt.dead_letters if record.receipt else None
        topic = self._letters.copies() if self._letters is not None else None
        if topic is None or stored is None or not any(tally.dead_letters for tally in record.tallies):
            return
        why = _owed(record, "copies of its dead letters go there")
        with _at(topic, why, "take copy_to_topic out of the stream file, and they are not copied"):
            letters = required_kind(stored.type).opened(stored.place, ledger, self._connections)
            copies_at(topic, self._connections).make(ledger, record, letters)


def _owed(record: Record, why: str) -> str:
    return f"Window {record.lane}/{record.seq} is committed, and {why}. Until that is done, no run of {record.stream} goes on"


def _forget(sink: SinkReceipt, stream: str) -> str:
    return (
        "see docs/erasure.md#a-place-that-cannot-be-cleared: "
        f"tidemark ledger forget-place {stream} {shlex.join(sink.words)} --reason ..."
    )


@contextmanager
def _at(sink: SinkReceipt, why: str, without: str) -> Iterator[None]:
    """Say at which place something failed, and how to go on `without` it. The error's class stays: it says who tries again."""
    where = f"the sink {sink.name} ({sink.type}, {sink.where()})"
    told = f"{why}. Bring it back and run again. If it is gone for good, {without}"
    try:
        yield
    except TidemarkError as problem:
        raise type(problem)(f"{where}: {str(problem).rstrip('.')}. {told}") from problem
    except Exception as problem:
        # Of an own sink, or a library of its own, it may be anything.
        away = isinstance(problem, OSError | TableMissing)
        said = f"{where}: {type(problem).__name__}: {problem}. {told}"
        raise (Unreachable if away else ProcessingFailed)(said) from problem
