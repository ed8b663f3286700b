"""The places of a ledger that was restored: it takes them over, and a ledger that lost them changes nothing there any more.

A ledger that another one has taken the place of may come back: with its server, in a worker with an old connection, as a copy.
It does not know what the other one has committed, and would remove that.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.clients.connections import Connections
from tidemark.ledger.erasures import places_to_clear
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import SinkReceipt, each_place
from tidemark.sinks.contract import SinkContext, SinkSettings
from tidemark.sinks.kinds import admin_of
from tidemark.sinks.owners import check_not_replaced, check_owner


def take_over(ledger: Ledger, connections: Connections) -> list[str]:
    """Mark all places where attempts may have written as this ledger's. Returns in words where that could not be done.

    There, the first window that writes does it. Raises what `check_owner` raises.
    """
    left = []
    for written in places_to_clear(ledger):
        place = written.place
        try:
            _take_over(ledger, connections, place)
        except Exception as problem:
            left.append(f"the sink {place.name} ({place.type}, {place.where()}): {problem}")
    return left


def _take_over(ledger: Ledger, connections: Connections, place: SinkReceipt) -> None:
    admin, identity = admin_of(place.type), _identity(ledger)
    owner = admin.owner(connections, place.place, ledger.stream)
    if owner and identity and check_owner(place.where(), owner, ledger.stream, identity):
        admin.take_over(connections, place.place, ledger.stream, identity)


def check_places(ledger: Ledger, connections: Connections, places: Iterable[SinkReceipt]) -> None:
    """Raises OwnedByAnother for a place that belongs to a ledger which took the place of this one."""
    identity = _identity(ledger)
    for place in each_place(places) if identity else ():
        owner = admin_of(place.type).owner(connections, place.place, ledger.stream)
        check_not_replaced(place.where(), owner, ledger.stream, identity)


def check_sink(opened: SinkContext, settings: SinkSettings) -> None:
    """As `check_places`, for the place of a sink of the stream file."""
    place = admin_of(settings.type).place(opened, settings, "", 0, 0)
    check_places(opened.ledger, opened.connections, [SinkReceipt(name=settings.name, type=settings.type, place=place)])


def _identity(ledger: Ledger) -> str:
    register = ledger.register()
    return register[1].ledger if register is not None else ""
