"""The streams that `./run pages` shows: one of each state that a page has something to say of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.claiming import claim_lane
from tests.support.known_streams import KnownStream
from tests.support.streams_in_memory import offsets
from tidemark.audit.levels import Level
from tidemark.clients.kafka.slots import Slot
from tidemark.ledger.ledger import record_key
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.runs.auditing import audit_without_spark
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.windows import lanes
from tidemark.views.messages.fates import Fate

HOUR = 3_600
BAD_FILE = "stream: prices\nsource:\n  topic: prices\n"
UNREACHABLE = "invoices"
# A message comes each second: so many are read in a window of an hour, and so many windows there are.
_WINDOWS = 12


def shown(folder: Path) -> list[KnownStream]:
    return [*_healthy(folder), _with_a_hole(folder), _behind(folder), _new(folder), _unreachable(folder)]


def _healthy(folder: Path) -> Iterator[KnownStream]:
    """With dead letters, a replay, an erasure, an audit, and a replay that somebody has begun."""
    orders = _filled(folder, "orders")
    orders.replay("orders__replay/manual__1", (4_000, 4_200), (9_000, 9_010))
    orders.erase(offsets((0, 7_777, 7_778)), "orders__erase/manual__1")
    audit_without_spark(orders.opened, "orders__audit/scheduled__1", Level.LEDGER)
    run = "orders__replay/manual__2"
    lane = claim_lane(
        orders.opened, LaneKind.REPLAY, run, offsets((0, 12_000, 20_000)), "a better parser", Requesters("ann", "bob")
    )
    lanes.plan_lane(orders.opened, lane, run)
    yield orders
    yield _filled(folder, "customers")


def _with_a_hole(folder: Path) -> KnownStream:
    """A window that the ledger has lost, as after a restored backup of another day."""
    payments = _filled(folder, "payments")
    del payments.store.values[record_key(INGEST, 5)]
    return payments


def _behind(folder: Path) -> KnownStream:
    """No run for six hours."""
    return _filled(folder, "shipments", windows=_WINDOWS - 6)


def _new(folder: Path) -> KnownStream:
    return _filled(folder, "returns", windows=0)


def _unreachable(folder: Path) -> KnownStream:
    return _filled(folder, UNREACHABLE, windows=1)


def _filled(folder: Path, name: str, windows: int = _WINDOWS) -> KnownStream:
    """A stream of the last hours, of which some windows were read, each at its time."""
    began = (int(time.time()) // HOUR - _WINDOWS) * HOUR
    contents = [_content(offset) for offset in range(_WINDOWS * HOUR + HOUR // 4)]
    made = KnownStream(folder, contents, name=name, since_ms=began * 1_000, max_records=HOUR)
    for window in range(windows):
        made.ends((0, (window + 1) * HOUR))
        made.now = (began + (window + 1) * HOUR + 150) * 1_000
        made.ingest(f"{name}__ingest/scheduled__{window + 1}")
    made.now = int(time.time() * 1_000)
    made.ends((0, len(contents) if windows < _WINDOWS else _WINDOWS * HOUR))
    return made


def _content(offset: int) -> Fate | Slot:
    """Now and then a message that is no row, and the end of a transaction."""
    if offset % 997 == 0:
        return Fate.DEAD_LETTER
    if offset % 1_000 == 999:
        return Slot.MARKER
    return Fate.SKIPPED if offset % 250 == 0 else Fate.STORED
