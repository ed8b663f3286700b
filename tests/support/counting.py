"""A ledger store that counts its reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.ledger.stores.contract import Key, LedgerStore


class CountingStore:
    """Any store, with its reads counted. One call of `read`, `read_several`, `scan` or `newest` is one read.

    `values` counts the values that reads gave, or looked for in vain.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self.reads = 0
        self.values = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, key: Key) -> bytes | None:
        self.reads += 1
        self.values += 1
        return self._store.read(key)

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        self.reads += 1
        for one in self._store.scan(prefix):
            self.values += 1
            yield one

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        found = self._store.newest(prefix, limit)
        self.reads += 1
        self.values += len(found)
        return found

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        self.reads += 1
        self.values += len(keys)
        return self._store.read_several(keys)
