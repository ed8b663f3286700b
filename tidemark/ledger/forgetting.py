"""A ledger that has forgotten what came after some moment: it was made of a backup, or its database went back by itself.

What it has forgotten is still in the sinks, and whoever worked for it may still be at work. So it draws no number again that a
lost attempt can have had, and it gets another name: marks of owners and tables tell by it that something was forgotten.
"""

from __future__ import annotations

import secrets

from msgspec import structs

from tidemark.ledger.records import AcceptedClock, Register
from tidemark.ledger.register import MAX_CLOCK_DIFFERENCE_MS


def forgetful(register: Register, *, newest: int, since: int, now: int, why: str) -> Register:
    """The register of a ledger that may have forgotten all from `since` on. Times are in milliseconds since 1970.

    `newest`: the highest generation that is known of it. Lost attempts may have counted on from there, one in a millisecond at
    most, or may have had a clock that was ahead.
    """
    generation = max(newest + max(0, now - since), now) + MAX_CLOCK_DIFFERENCE_MS
    restored = _later(register.restored, now)
    return structs.replace(
        register,
        ledger=f"{origin(register.ledger)}/{restored}",
        restored=restored,
        generation=generation,
        # Draws count on from there until the clocks have come that far.
        clock=AcceptedClock(generation=generation, reason=why, at=now),
    )


def origin(ledger: str) -> str:
    """What the ids of a ledger and of all that were made of its backups have in common."""
    return ledger.partition("/")[0]


def replaces(ledger: str, other: str) -> bool:
    """Whether a ledger takes the place of another one: both are of one origin, and it was restored later."""
    return origin(ledger) == origin(other) and ledger > other


def _later(restored: str, now: int) -> str:
    """When a ledger is restored, as a text that sorts after that of every earlier restoration, and is no other's."""
    before = int(restored.partition("-")[0]) if restored else 0
    return f"{max(now, before + 1):015d}-{secrets.token_hex(8)}"
