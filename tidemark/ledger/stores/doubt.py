"""One write, and a definite answer: was it mine?"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemark.errors import OutcomeUnknown, Unreachable
from tidemark.ledger.stores.contract import InDoubt, Key, LedgerStore

# Longer than an HBase region takes to move after its server died (about 10 s on one machine), and shorter than a person
# waits. An attempt that gives up here loses nothing: the next run finds out what happened.
PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2


class NotMine(Exception):
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

    `write` replaces `store.swap` where the write does more. Raises NotMine once the value differs from `expected` and
    is not mine; OutcomeUnknown when neither is certain within `patience` seconds.
    """
    attempt = write or (lambda: store.swap(key, expected, value))
    deadline = time.monotonic() + patience
    while True:
        try:
            if attempt():
                return
            current = store.read(key)
            if current is not None and is_mine(current):
                return
            if current != expected:
                raise NotMine(current)
            reason = "the write was refused although the value is still the expected one"
        except (InDoubt, Unreachable) as problem:
            reason = str(problem)
        if time.monotonic() > deadline:
            raise OutcomeUnknown(
                f"the write to {'/'.join(key)} was sent, and whether it was applied is not known ({reason}). "
                "Nothing is lost: run the same command again, it finds out and goes on."
            )
        time.sleep(_PAUSE_SECONDS)
