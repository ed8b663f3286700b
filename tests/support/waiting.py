"""Waiting for a condition on real servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TooLate(AssertionError):
    """A deadline has passed, which proves no fault."""


def until(look: Callable[[], T | None], late: str, seconds: float = 300) -> T:
    """The result of `look` as soon as it is true. Raises TooLate after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() >= deadline:
            raise TooLate(f"{late} after {seconds:.0f} s")
        time.sleep(0.1)
    return found
