"""What a ledger needs of the place where it is kept. HBase and ZooKeeper implement it; a third takes one file.

The contract: `read` gives the newest value that any write has been answered for; `swap` changes one value only if it is
still `expected`, in one atomic step. Everything else in the ledger is built on these two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

Key = tuple[str, ...]
# {topic: {partition: next offset}}
Offsets = dict[str, dict[int, int]]


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

    @property
    def commits_records(self) -> bool:
        """Whether `commit` puts the history record together with the head, and the offsets for other tools."""
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

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        """As `read`, for several keys in one question. Raises Unreachable."""
        ...

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        """Put `value` if the present value is exactly `expected` (None: if there is none).

        False says that it was not `expected` *when the server looked*: a gateway may have repeated a write that had
        won. Raises InDoubt when no answer came, Unreachable when nothing was sent.
        """
        ...

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        """As `swap` on the head. A store with `commits_records` puts the record and shows the offsets in the same step.

        `offsets` are None where other tools are not to see them: of lanes that are not the ingest.
        """
        ...

    def put(self, key: Key, value: bytes) -> None:
        """Put an advisory value (a heartbeat, a report); the last writer wins. Raises Unreachable."""
        ...

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        """Show the ingest's offsets in the layout that other tools of this store read, if `commit` did not.

        `committed_at` is in milliseconds since 1970. Repeatable: the same call writes the same thing. Raises Unreachable.
        """
        ...


def sortable(number: int) -> str:
    """A non-negative 64-bit number as a word of a key, so that keys sort as numbers do."""
    return f"{number:019d}"
