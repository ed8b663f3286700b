"""The items that people look through, one item a message or a row, and how much of it one question may read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.ledger.incarnations import Topics
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange

# A message of a megabyte may have 300,000 headers, each of which takes memory besides its name and its value.
_OF_A_HEADER = 50


@dataclass(frozen=True)
class Item:
    """A message, or a row that was made of one. `timestamp`: ms since 1970. `fields`: of a dead letter or a row.

    `index` tells the rows of one message apart. `record`: what the value says, where it is a record or compressed. `deleted`:
    of a newest row, whether it says that its key is gone.
    """

    at: Coordinate
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    fields: Mapping[str, bytes] = field(default_factory=dict)
    index: int = 0
    record: bytes | None = None
    deleted: bool | None = None

    @property
    def bytes(self) -> int:
        parts = [self.key, self.value, *(one for _, one in self.headers), *self.fields.values()]
        names = sum(len(name) + _OF_A_HEADER for name, _ in self.headers)
        return names + sum(len(one) for one in parts if one is not None)


@dataclass
class SearchBudget:
    """How much one question may still look at: items, bytes, and until when by the monotonic clock."""

    items: float
    bytes: float
    until: float
    looked: int = 0
    read: int = 0

    @classmethod
    def of(cls, items: float, size: float, seconds: float) -> SearchBudget:
        return cls(items, size, time.monotonic() + seconds)

    def count(self, item: Item) -> None:
        self.looked += 1
        self.read += item.bytes

    def ended(self) -> str | None:
        """Which bound is reached, in a word; None while there is more to be had."""
        if time.monotonic() > self.until:
            return "time"
        if self.looked >= self.items:
            return "messages"
        return "bytes" if self.read >= self.bytes else None


@dataclass(frozen=True)
class SearchResult:
    """The answer to one question: items in their order, and of which offsets it knows now that there are no others.

    `go_on`: what the next question is given to go on from there; None at the end. `ended`: the bound that ended it, in a
    word, or `count` for the number asked. `not_read`: items whose value was too large, or took too long, to be read as JSON.
    `left_out`: how many rows of messages with very many are not among the items, at least.
    `topics`: as the ledger knows them.
    """

    items: tuple[Item, ...]
    searched: tuple[OffsetRange, ...]
    go_on: str | None
    ended: str | None
    looked: int
    read: int
    erased: int = 0
    not_read: int = 0
    left_out: int = 0
    topics: Topics = field(default_factory=dict)
