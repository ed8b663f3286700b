"""A ledger whose database went back without being asked: to a standby that lacked commits, to a point in time, to a dump.

Nothing in the ledger tells. But tables say which window they have shown last, and a window is shown after its commit. A ledger
that does not know it has gone back. It is then treated as one that was restored from a backup (`forgetting.py`).

That is asked before each draw of a generation (`Ledger.before_draw`), because a ledger that went back draws what it must not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.ledger.forgetting import forgetful
from tidemark.ledger.ledger import Ledger, StoredHead
from tidemark.ledger.newest import open_heads
from tidemark.ledger.records import INGEST, Register, SinkReceipt, each_place
from tidemark.ledger.register import change, check_clock, latest_clock

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RegisterAndHeads:
    """The register and the heads of the open lanes."""

    register: Register
    heads: Mapping[str, StoredHead]

    @classmethod
    def now(cls, ledger: Ledger) -> RegisterAndHeads | None:
        stored = ledger.register()
        return None if stored is None else cls(stored[1], open_heads(ledger, stored[1]))

    @property
    def places(self) -> Iterable[SinkReceipt]:
        """All where attempts may have written, those of closed lanes among them: a replay may have written one sink alone.

        What the ledger has forgotten of a place that it does not know, the stream file has to name.
        """
        # Ledgers of earlier versions have not noted all places of their windows.
        lasts = (stored.head.last for stored in self.heads.values())
        committed = (place for last in lasts if last is not None for place in last.places)
        return each_place((*self.register.places, *committed))

    def has(self, lane: str, generation: int) -> bool:
        """Whether an open lane has committed so far."""
        last = self.heads[lane].head.last if lane in self.heads else None
        return last is not None and last.attempt.generation >= generation


def check_known(ledger: Ledger, known: RegisterAndHeads, place: str, shown: Iterable[tuple[str, int]]) -> None:
    """Compare the windows that a place has shown, each by lane and generation, with the ledger.

    If it does not know one of them, the ledger goes on as a restored one. `known` was read before the place was asked, so
    what it lacks is looked for again. Raises ClockAhead.
    """
    missing = [one for one in shown if not known.has(*one)]
    if not missing:
        return
    register = ledger.register()
    if register is None:
        return
    for lane, generation in missing:
        stored = ledger.head(lane)
        last = stored.head.last if stored else None
        if last is None or last.attempt.generation < generation:
            why = f"{place} has shown generation {generation} of lane {lane}"
            _note(ledger, register[1], generation, why)
            return


def _note(ledger: Ledger, seen: Register, generation: int, why: str) -> None:
    why = f"the ledger went back: {why}, which the ledger does not know"
    log.warning(
        "%s: %s. It goes on as after a restoration: what it has forgotten is read again, and replays and erasures that it "
        "has forgotten have to be asked for again",
        ledger.stream,
        why,
    )
    check_clock(ledger)
    now = latest_clock(ledger)
    ingest = ledger.head(INGEST)
    since = ingest.head.last.committed_at if ingest is not None and ingest.head.last is not None else now

    def edit(register: Register) -> Register:
        # Another run may have noted it.
        if register.restored != seen.restored:
            return register
        newest = max(register.generation, generation)
        return forgetful(register, newest=newest, since=since, now=now, why=why)

    change(ledger, edit)
