"""A ledger in memory while it is put together. A backup is written of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemark.ledger.store import Key, Offsets


class DraftStore:
    """A LedgerStore that nobody else sees, without a server and without a clock."""

    commits_records = False

    def __init__(self, max_value_bytes: int) -> None:
        self.max_value_bytes = max_value_bytes
        self._values: dict[Key, bytes] = {}

    def prepare(self) -> None: ...

    def read(self, key: Key) -> bytes | None:
        return self._values.get(key)

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        return [self._values.get(key) for key in keys]

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        return iter(sorted(one for one in self._values.items() if one[0][: len(prefix)] == prefix))

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        return list(self.scan(prefix))[::-1][:limit]

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        if self._values.get(key) != expected:
            return False
        self._values[key] = value
        return True

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        return self.swap(head, expected, value)

    def put(self, key: Key, value: bytes) -> None:
        self._values[key] = value

    def time(self) -> int | None:
        return None

    def publish(self, committed_at: int, offsets: Offsets) -> None: ...
