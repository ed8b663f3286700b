"""A row as all sinks know it: its place, its mark, and its fields."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.offsets.ranges import TopicPartition

FLAG_TOMBSTONE = 1
MARK_FORMAT = 1
_MARK = struct.Struct(">BBQQQ")


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """The place of a row: the coordinate of its message, and its index among the rows of that."""

    partition: TopicPartition
    offset: int
    index: int


class Mark(NamedTuple):
    """The contents of a row's mark: the attempt and the window that wrote the row, and the digest of its contents."""

    generation: int
    digest: int
    lane: str
    seq: int
    tombstone: bool = False

    def encode(self) -> bytes:
        flags = FLAG_TOMBSTONE if self.tombstone else 0
        return _MARK.pack(MARK_FORMAT, flags, self.generation, self.digest, self.seq) + self.lane.encode()

    @classmethod
    def decode(cls, stored: bytes) -> Mark:
        """Raises ValueError for bytes that are not a mark that this version knows."""
        if len(stored) < _MARK.size or stored[0] != MARK_FORMAT:
            raise ValueError(f"not a mark of format {MARK_FORMAT}: {stored[:40]!r}")
        _, flags, generation, digest, seq = _MARK.unpack_from(stored)
        return cls(generation, digest, stored[_MARK.size :].decode(), seq, bool(flags & FLAG_TOMBSTONE))


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row that counts: its place, its mark, and its fields as text or bytes. Null fields are absent."""

    place: Place
    mark: Mark
    fields: Mapping[str, bytes]
