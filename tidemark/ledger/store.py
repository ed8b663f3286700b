"""What a ledger needs of the place where it is kept. HBase and ZooKeeper implement it; a third takes one file.

The contract: `read` gives the newest value that any write has been answered for; `swap` changes one value only if it is
still `expected`, in one atomic step. Everything else in the ledger is built on these two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

Key = tuple[str, ...]


class InDoubt(Exception):
    """A write was sent and no answer came: it may have been applied, or be applied later."""


class LedgerStore(Protocol):
    """The ledger of one stream, as bytes under keys.

    Keys are tuples of short words without '/'; numbers in them are written so that they sort (`sortable`).
    """

    @property
    def max_value_bytes(self) -> int:
        """The largest value that can be stored with room to spare."""
        ...

    def prepare(self) -> None:
        """Make what the ledger is kept in, where it is missing. Raises WrongUse when it would lose values."""
        ...

    def read(self, key: Key) -> bytes | None:
        """The value, or None where there is none. Raises Unreachable."""
        ...

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        """Every key that begins with `prefix`, ascending, with its value. Raises Unreachable."""
        ...

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        """The last `limit` keys that begin with `prefix`, descending, with their values. Raises Unreachable."""
        ...

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        """Put `value` if the present value is exactly `expected` (None: if there is none).

        False says that it was not `expected` *when the server looked*: a gateway may have repeated a write that had
        won. Raises InDoubt when no answer came, Unreachable when nothing was sent.
        """
        ...

    def commit(self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes) -> bool:
        """As `swap` on the head; a store that has transactions puts the history record in the same one."""
        ...

    def put(self, key: Key, value: bytes) -> None:
        """Put an advisory value (a heartbeat, a report); the last writer wins. Raises Unreachable."""
        ...

    def publish(self, group: str, committed_at: int, offsets: dict[str, dict[int, int]]) -> None:
        """Show {topic: {partition: next offset}} in the layout that other tools of this store read.

        Repeatable: the same call writes the same thing. Raises Unreachable.
        """
        ...


def sortable(number: int) -> str:
    """A non-negative 64-bit number as a word of a key, so that keys sort as numbers do."""
    return f"{number:019d}"
