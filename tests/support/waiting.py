"""Waiting for a condition on real servers, and what still runs once it holds."""

from __future__ import annotations

import threading
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


def running_threads() -> set[threading.Thread]:
    """Threads of this process without timers: a kept connection of another test begins one at any time."""
    return {thread for thread in threading.enumerate() if not isinstance(thread, threading.Timer)}
