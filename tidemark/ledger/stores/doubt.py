"""One write, and a definite answer: was it mine?"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemark.errors import LedgerContradiction, LedgerUnreadable, OutcomeUnknown, Unreachable
from tidemark.ledger.stores.contract import Key, LedgerStore, WriteInDoubt

# Longer than an HBase region takes to move after its server died (about 10 s on one machine), and shorter than a person
# waits. An attempt that gives up here loses nothing: the next run finds out what happened.
PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2


class CompareAndSetFailed(Exception):
    """Another writer has changed the value: `current` is what is stored now."""

    def __init__(self, current: bytes | None) -> None:
        super().__init__("the value has been changed by somebody else")
        self.current = current


def swap_surely(
    store: LedgerStore,
    key: Key,
    expected: bytes | None,
    value: bytes,
    is_mine: Callable[[bytes], bool],
    *,
    write: Callable[[], bool] | None = None,
    patience: float = PATIENCE_SECONDS,
) -> None:
    """Change `key` from `expected` to `value`, and return only when that is certain.

    After an answer in doubt, the function repeats the write with the same `expected` until the answer is definite.
    Even *false* is in doubt, since a gateway may have repeated a write that had won. So the function reads the value:
    `is_mine` looks for the attempt's token in what is stored now (and, for a head, in the history).

    `write` replaces `store.swap` where the write does more. Raises CompareAndSetFailed once the value differs from
    `expected` and is not mine; OutcomeUnknown when neither is certain within `patience` seconds, and when a server that has
    left a write in doubt refuses the next request, whatever it says: it has a new master, a full disk, another password.
    What a store raises before any doubt goes on as it is, for then nothing was written, and so does what the ledger itself
    contradicts.
    """
    attempt = write or (lambda: store.swap(key, expected, value))
    deadline = time.monotonic() + patience
    doubtful = False
    while True:
        try:
            if attempt():
                return
            # A gateway may have repeated a write that had won.
            doubtful = True
            if _found(store, key, expected, is_mine):
                return
            reason = "the write was refused although the value is still the expected one"
        except WriteInDoubt as problem:
            doubtful, reason = True, str(problem)
        except Unreachable as problem:
            reason = str(problem)
        except (CompareAndSetFailed, LedgerContradiction, LedgerUnreadable):
            raise
        except Exception as problem:
            if not doubtful:
                raise
            raise _unknown(key, str(problem) or type(problem).__name__) from problem
        if time.monotonic() > deadline:
            raise _unknown(key, reason)
        time.sleep(_PAUSE_SECONDS)


def _found(store: LedgerStore, key: Key, expected: bytes | None, is_mine: Callable[[bytes], bool]) -> bool:
    """Whether what is stored now is mine; False for the expected value. Raises CompareAndSetFailed."""
    current = store.read(key)
    if current is not None and is_mine(current):
        return True
    if current != expected:
        raise CompareAndSetFailed(current)
    return False


def _unknown(key: Key, reason: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the write to {'/'.join(key)} was sent, and whether it was applied is not known ({reason}). "
        "Nothing is lost: run the same command again, it finds out and goes on."
    )
