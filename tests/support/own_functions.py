"""Users' functions, as a stream file names them. A message's value says what they do with the message."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark import Message, PermanentFailure

_calls: Counter[tuple[str, int, int]] = Counter()

Rows = dict[str, Any] | list[dict[str, Any]] | Iterator[dict[str, Any]] | None


class OutOfStock(ValueError):
    pass


def work(message: Message) -> Rows:
    """`row X`, `rows N`, `skip`, `fail N` (so many times), `permanent WHY`, `bad`, `hang`, `die`. Nothing for a tombstone."""
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
    while verb == "hang":
        with suppress(BaseException):
            time.sleep(600)
    if verb == "die":
        os._exit(9)
    if verb == "bad":
        return {"word": 5, "number": 5}
    return _row(rest, message.offset)


def corrected(message: Message) -> Rows:
    """As `work`, with the bug fixed: nothing fails."""
    if message.value is not None and message.value.startswith(b"fail"):
        return _row("corrected", message.offset)
    return work(message)


def slow(message: Message) -> Rows:
    """Notes the call in a file beside the one that the value names, and fails."""
    Path((message.value or b"").decode()).write_text(f"{time.time()}")
    raise OutOfStock("again")


def whole(message: Message) -> Rows:
    """One row with everything that a function sees."""
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


def drawn(message: Message) -> Rows:
    """A row that differs each time."""
    return _row(secrets.token_hex(8), message.offset)


def drawn_beside(messages: DataFrame) -> DataFrame:
    """A transform: as `drawn`."""
    return messages.withColumn("word", F.udf(lambda offset: secrets.token_hex(8))(F.col("_offset")))
