"""The generation of each lane's last window that readers of an Iceberg table see, in properties of the table.

    tidemark.lane.VERSIONS/LANE        the generation
    tidemark.lanes-below.VERSIONS      of lanes that have no such property: all windows with generations below this one

Properties do not expire as snapshots do. A replay has a lane of its own, so lanes that are closed are forgotten in bulk: none
of them will publish a window of before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidemark.ledger.ledger import Ledger, StoredHead
from tidemark.ledger.newest import open_heads
from tidemark.ledger.records import INGEST
from tidemark.sinks.versions import versions_of

_LANE, _BELOW = "tidemark.lane.", "tidemark.lanes-below."
# With more lanes than this, those that are closed are forgotten. Each costs a commit some microseconds.
MAX_LANES = 500


def lane_property(versions: str, lane: str) -> str:
    return f"{_LANE}{versions}/{lane}"


def below_property(versions: str) -> str:
    return f"{_BELOW}{versions}"


def published(properties: Mapping[str, str], versions: str, lane: str) -> int:
    """The generation of a lane's last window that readers of the table see, or a higher one if the lane was forgotten."""
    known = properties.get(lane_property(versions, lane))
    return int(known) if known is not None else int(properties.get(below_property(versions), "1")) - 1


def published_before(properties: Mapping[str, str], lane: str, generation: int) -> bool:
    """Whether the table may have shown a window under the versions of the ledger that was there before a restoration.

    The restored ledger settles the last window of a lane once more.
    """
    ended = f"/{lane}"
    known = (int(at) for name, at in properties.items() if name.startswith(_LANE) and name.endswith(ended))
    below = (int(at) - 1 for name, at in properties.items() if name.startswith(_BELOW))
    return any(at >= generation for at in (*known, *below))


def newest_shown(properties: Mapping[str, str], versions: str) -> Iterable[tuple[str, int]]:
    """The lane whose last window is the newest that readers see, with its generation. The ingest's, too."""
    mine = f"{_LANE}{versions}/"
    lanes = {name.removeprefix(mine): int(at) for name, at in properties.items() if name.startswith(mine)}
    newest = max(lanes, key=lambda lane: lanes[lane], default=None)
    return ((lane, lanes[lane]) for lane in {newest, INGEST} if lane in lanes)


@dataclass(frozen=True)
class ForgottenLanes:
    """The properties of lanes that a table forgets, and the generation below which these have published everything."""

    properties: tuple[str, ...]
    below: int


Forget = Callable[[Mapping[str, str]], ForgottenLanes | None]


def keep_all(_: Mapping[str, str]) -> None: ...


def forgotten(ledger: Ledger, publishing: str, properties: Mapping[str, str]) -> ForgottenLanes | None:
    """The lanes to forget, when there are many; None otherwise. `publishing` is the lane whose window is being published.

    Reads the ledger, after the table: a lane that is opened later draws higher generations.
    """
    versions = versions_of(ledger)
    mine = [name for name in properties if name.startswith(f"{_LANE}{versions}/")]
    if len(mine) <= MAX_LANES or (stored := ledger.register()) is None:
        return None
    register = stored[1]
    heads = open_heads(ledger, register)
    waiting = [
        generation
        for lane, head in heads.items()
        if lane != publishing
        for generation in _waiting(ledger, head, published(properties, versions, lane))
    ]
    below = min(waiting, default=register.generation + 1)
    kept = {lane_property(versions, lane) for lane in (*register.lanes, publishing)}
    gone = tuple(name for name in mine if name not in kept and int(properties[name]) < below)
    return ForgottenLanes(gone, below) if gone else None


def _waiting(ledger: Ledger, stored: StoredHead, known: int) -> Iterable[int]:
    """The generations of a lane's windows that may still be published."""
    head = stored.head
    if head.pending is not None and head.pending.attempt is not None:
        yield head.pending.attempt.generation
    last = head.last
    # Without a receipt, it was committed before it was written.
    if last is not None and last.attempt.generation > known and (last.receipt is None or not ledger.is_settled(last)):
        yield last.attempt.generation
