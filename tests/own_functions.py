"""Functions of one's own, as a stream file names them. What they do with a message, its value says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemark import Message, PermanentFailure

_calls: Counter[tuple[str, int, int]] = Counter()

Rows = dict[str, Any] | list[dict[str, Any]] | Iterator[dict[str, Any]] | None


class OutOfStock(ValueError):
    pass


def work(message: Message) -> Rows:
    """`row X`, `rows N`, `skip`, `fail N` (so many times), `permanent WHY`, `bad`; of a tombstone nothing."""
    if message.value is None:
        return None
    at = (message.topic, message.partition, message.offset)
    _calls[at] += 1
    verb, _, rest = message.value.decode().partition(" ")
    if verb == "permanent":
        raise PermanentFailure(rest or "never")
    if verb == "fail" and _calls[at] <= int(rest):
        raise OutOfStock(f"none of {message.offset}")
    if verb == "rows":
        return [_row(f"{number}", number) for number in range(int(rest))]
    if verb == "skip":
        return []
    if verb == "bad":
        return {"word": 5, "number": 5}
    return _row(rest, message.offset)


def corrected(message: Message) -> Rows:
    """As `work`, after the bug was found: nothing fails any more."""
    if message.value is not None and message.value.startswith(b"fail"):
        return _row("corrected", message.offset)
    return work(message)


def slow(message: Message) -> Rows:
    """Notes that it was called, beside the file that the value names, and fails."""
    Path((message.value or b"").decode()).write_text(f"{time.time()}")
    raise OutOfStock("again")


def whole(message: Message) -> Rows:
    """All that a function sees, in one row."""
    return {
        "key": message.key,
        "value": message.value,
        "headers": repr(message.headers),
        "time": message.timestamp,
        "kind": message.timestamp_type,
        "half": message.offset / 2,
        "even": message.offset % 2 == 0,
    }


def _row(word: str, number: int) -> dict[str, Any]:
    return {"number": number, "word": word}
