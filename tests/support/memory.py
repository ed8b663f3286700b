"""A ledger store in memory, for faults that a real server cannot be made to have: answers lost at every single step.

Other tests check the contract itself on the real stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidemark.ledger.stores.contract import Key, Offsets, WriteInDoubt


class MemoryStore:
    """Keeps values in a dict. Each `swap` takes the next of `faults`: see the constants."""

    commits_records = False

    def __init__(self, max_value_bytes: int = 1 << 20) -> None:
        self.max_value_bytes = max_value_bytes
        self.values: dict[Key, bytes] = {}
        self.faults: list[str] = []
        self.swaps = 0
        self.published: list[tuple[int, Offsets]] = []
        self.before_swap: Callable[[Key], None] = lambda key: None
        self.server_time: Callable[[], int] | None = None
        # The stores of other streams of the same ledger, by the streams' names.
        self.beside: dict[str, MemoryStore] = {}

    def streams(self) -> list[str]:
        """As `SupportsStreamList`: the other streams that a test has put beside this one."""
        return sorted(self.beside)

    def of_stream(self, name: str) -> MemoryStore:
        return self.beside[name]

    def prepare(self) -> None:
        pass

    def read(self, key: Key) -> bytes | None:
        return self.values.get(key)

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        return iter(sorted((k, v) for k, v in self.values.items() if k[: len(prefix)] == prefix))

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        return list(self.scan(prefix))[::-1][:limit]

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        return [self.values.get(key) for key in keys]

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        self.before_swap(key)
        self.swaps += 1
        fault = self.faults.pop(0) if self.faults else None
        if fault == LOST_NOT_APPLIED:
            raise WriteInDoubt("the connection was lost")
        applied = self.values.get(key) == expected
        if applied:
            self.values[key] = value
        if fault == LOST_APPLIED:
            raise WriteInDoubt("the connection was lost")
        if fault == FALSE_THOUGH_APPLIED:
            return False
        return applied

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        return self.swap(head, expected, value)

    def put(self, key: Key, value: bytes) -> None:
        self.values[key] = value

    def time(self) -> int | None:
        return self.server_time() if self.server_time else None

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        self.published.append((committed_at, offsets))


class TransactionalStore(MemoryStore):
    """As ZooKeeper: the commit puts the history record together with the head."""

    commits_records = True

    def __init__(self, max_value_bytes: int = 1 << 20) -> None:
        super().__init__(max_value_bytes)
        # The offsets that each commit has shown to other tools, in its own transaction.
        self.shown: list[Offsets | None] = []

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        self.shown.append(offsets)
        if record in self.values:
            self.before_swap(head)
            return False
        try:
            return self.swap(head, expected, value)
        finally:
            # Also when the answer is lost: both values were written, or neither.
            if self.values.get(head) == value:
                self.values[record] = recorded


LOST_APPLIED = "the write was applied, its answer lost"
LOST_NOT_APPLIED = "the write was lost"
FALSE_THOUGH_APPLIED = "a gateway repeated a write that had won"
FAULTS = (LOST_APPLIED, LOST_NOT_APPLIED, FALSE_THOUGH_APPLIED)
