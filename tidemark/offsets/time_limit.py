"""A time limit for one long computation: the caller sets it, and the loops inside check it.

Sets of ranges and the clients of servers check it, so no loop over windows, ranges or pages of an answer runs for long.
Only the pages set a limit. Only for code that writes nothing: it may end anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tidemark.errors import TookTooLong

# The end by the monotonic clock, and what to say then.
_limit: ContextVar[tuple[float, str] | None] = ContextVar("limit", default=None)


@contextmanager
def limited(seconds: float, said: str) -> Iterator[None]:
    """A block that raises TookTooLong with this text once it has run this long."""
    before = _limit.set((time.monotonic() + seconds, said))
    try:
        yield
    finally:
        _limit.reset(before)


def look() -> None:
    """Raises TookTooLong when the limit has passed; without one, does nothing."""
    limit = _limit.get()
    if limit is not None and time.monotonic() > limit[0]:
        raise TookTooLong(limit[1])
