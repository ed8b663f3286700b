"""The places of a ledger that was restored: it takes them over, and a ledger that lost them changes nothing there any more.

A ledger that another one has taken the place of may come back: with its server, in a worker with an old connection, as a copy.
It does not know what the other one has committed, and would remove that.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Book
from tidemark.ledger.erasures import places_to_clear
from tidemark.ledger.records import SinkReceipt, each_place
from tidemark.sinks.contract import Opened, SinkSettings
from tidemark.sinks.kinds import plain_of
from tidemark.sinks.owners import check_not_replaced, check_owner


def take_over(book: Book, connections: Connections) -> list[str]:
    """Mark all places where attempts may have written as this ledger's. Returns in words where that could not be done.

    There, the first window that writes does it. Raises what `check_owner` raises.
    """
    left = []
    for written in places_to_clear(book):
        place = written.place
        try:
            _take_over(book, connections, place)
        except Exception as problem:
            left.append(f"the sink {place.name} ({place.type}, {place.where()}): {problem}")
    return left


def _take_over(book: Book, connections: Connections, place: SinkReceipt) -> None:
    plain, ledger = plain_of(place.type), _ledger(book)
    owner = plain.owner(connections, place.place, book.stream)
    if owner and ledger and check_owner(place.where(), owner, book.stream, ledger):
        plain.take_over(connections, place.place, book.stream, ledger)


def check_places(book: Book, connections: Connections, places: Iterable[SinkReceipt]) -> None:
    """Raises OwnedByAnother for a place that belongs to a ledger which took the place of this one."""
    ledger = _ledger(book)
    for place in each_place(places) if ledger else ():
        owner = plain_of(place.type).owner(connections, place.place, book.stream)
        check_not_replaced(place.where(), owner, book.stream, ledger)


def check_sink(opened: Opened, settings: SinkSettings) -> None:
    """As `check_places`, for the place of a sink of the stream file."""
    place = plain_of(settings.type).place(opened, settings, "", 0, 0)
    check_places(opened.book, opened.connections, [SinkReceipt(name=settings.name, type=settings.type, place=place)])


def _ledger(book: Book) -> str:
    register = book.register()
    return register[1].ledger if register is not None else ""
