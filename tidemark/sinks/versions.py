"""The name of a lane's versions in a table, which takes nothing of a lane that is older than what it has of it.

And what is said of a version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record

T = TypeVar("T")
Where = TypeVar("Where")
# What a version says of the window that it was made for.
LANE_SHOWN, GENERATION_SHOWN = "tidemark.lane", "tidemark.generation"
# So many versions back, the window is looked for that a table has shown last: other programs make versions too.
NOTES_READ = 20
# In what is said of a version that takes out what was erased.
ERASES = "tidemark.erases"


def versions_of(ledger: Ledger) -> str:
    """The name of a ledger's versions in a table. After a restore, they begin again.

    A ledger that is restored to before a wrong clock draws lower generations than the table has seen of it. As versions of
    the old name, the table would skip them until the clocks have caught up. Each restore gives another name.
    """
    restored = _restored(ledger)
    return f"{ledger.stream}/restored {restored}" if restored else ledger.stream


def was_restored(ledger: Ledger) -> bool:
    """Whether a table may have rows of windows that the ledger knows no more, at offsets that it reads again."""
    return bool(_restored(ledger))


def _restored(ledger: Ledger) -> str:
    register = ledger.register()
    return register[1].restored if register else ""


def said_of(record: Record) -> dict[str, str]:
    """The entry in a version of a table for the window that it shows."""
    return {
        LANE_SHOWN: record.lane,
        "tidemark.window": f"{record.lane}/{record.seq}",
        GENERATION_SHOWN: str(record.attempt.generation),
        "tidemark.attempt": record.attempt.token,
    }


def steadily(read: Callable[[dict[Where, object]], T], now: Callable[[Where], object]) -> T:
    """The result of a reader, which begins again if it fails and a table has another version `now` than it has seen.

    A later version may have moved or removed files.
    """
    while True:
        seen: dict[Where, object] = {}
        try:
            return read(seen)
        except Exception:
            if all(now(where) == version for where, version in seen.items()):
                raise
