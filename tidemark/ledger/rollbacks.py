"""A ledger whose database went back without being asked: to a standby that lacked commits, to a point in time, to a dump.

Nothing in the ledger tells. But tables say which window they have shown last, and a window is shown after its commit: a ledger
that does not know it has gone back. It is then treated as one that was restored from a backup (`forgetting.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidemark.ledger.book import Book
from tidemark.ledger.forgetting import forgetful
from tidemark.ledger.records import INGEST, Head, Register, SinkReceipt
from tidemark.ledger.register import change, check_clock

log = logging.getLogger(__name__)


def places_now(head: Head) -> Iterable[SinkReceipt]:
    """The places of the last window of a lane, whose head was just read: those of the ingest have all that was written."""
    return head.last.places if head.last is not None else ()


def check_known(book: Book, place: str, shown: Iterable[tuple[str, int]]) -> None:
    """Compare the windows that a place has shown, each by lane and generation, with the ledger.

    If it does not know one of them, the ledger goes on as a restored one. Raises ClockAhead.
    """
    register = book.register()
    if register is None:
        return
    for lane, generation in shown:
        stored = book.head(lane)
        last = stored.head.last if stored else None
        if last is None or last.attempt.generation < generation:
            _note(book, register[1], generation, f"{place} has shown generation {generation} of lane {lane}")
            return


def _note(book: Book, seen: Register, generation: int, why: str) -> None:
    why = f"the ledger went back: {why}, which the ledger does not know"
    log.warning(
        "%s: %s. It goes on as after a restoration: what it has forgotten is read again, and replays and erasures that it "
        "has forgotten have to be asked for again",
        book.stream,
        why,
    )
    now = book.clock()
    check_clock(book)
    ingest = book.head(INGEST)
    since = ingest.head.last.committed_at if ingest is not None and ingest.head.last is not None else now

    def edit(register: Register) -> Register:
        # Another run may have noted it.
        if register.restored != seen.restored:
            return register
        newest = max(register.generation, generation)
        return forgetful(register, newest=newest, since=since, now=now, why=why)

    change(book, edit)
