"""The contract of a ledger's storage. HBase, ZooKeeper and SQL implement it; docs/adding-a-ledger.md adds another store.

The contract has two parts. `read` gives the newest value that the server has acknowledged. `swap` changes a value in one
atomic step, only if the value is still `expected`. Everything else in the ledger is built on these two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

Key = tuple[str, ...]
# Written to learn the server's time; its value has no meaning.
CLOCK_KEY: Key = ("clock",)
# {topic: {partition: next offset}}
Offsets = dict[str, dict[int, int]]


class ResetOffset(int):
    """A next offset in a topic that was recreated, or in a log that was cut: it may be below the one that was shown before."""


# Where the leader of each partition is: {(topic, partition): (host, port)}.
Leaders = dict[tuple[str, int], tuple[str, int]]


class WriteInDoubt(Exception):
    """A write was sent and no answer came: the server may have applied the write, or may apply it later."""


class LedgerStore(Protocol):
    """The ledger of one stream, as bytes under keys.

    Keys are tuples of short words without '/'; `sortable` writes the numbers in them, so that keys sort as numbers do.
    """

    @property
    def max_value_bytes(self) -> int:
        """The largest value that can be stored with room to spare."""
        ...

    @property
    def commits_records(self) -> bool:
        """Whether `commit` writes the head, the history record and the offsets for other tools in one step."""
        ...

    def prepare(self) -> None:
        """Create the ledger's tables or folders if they are missing. Raises WrongUse when existing ones would lose values."""
        ...

    def read(self, key: Key) -> bytes | None:
        """The value, or None if the key has no value. Raises Unreachable."""
        ...

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        """Every key that begins with `prefix`, ascending, with its value. Raises Unreachable."""
        ...

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        """The last `limit` keys that begin with `prefix`, descending, with their values. Raises Unreachable."""
        ...

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        """Read several keys in one request. Raises Unreachable."""
        ...

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        """Put `value` if the present value is exactly `expected` (None if the key has no value).

        False means that the value was not `expected` *when the server looked*: a gateway may have repeated a write that
        had won. Raises WriteInDoubt when no answer came, Unreachable when nothing was sent.
        """
        ...

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        """Swap the head. A store with `commits_records` puts the record and shows the offsets in the same step.

        `offsets` are None for all lanes but the ingest: other tools see only the ingest's.
        """
        ...

    def put(self, key: Key, value: bytes) -> None:
        """Put an advisory value (a heartbeat, a report); the last writer wins. Raises Unreachable."""
        ...

    def time(self) -> int | None:
        """The server's clock, in milliseconds since 1970; None for a store without a clock. Raises Unreachable."""
        ...

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        """Show the ingest's offsets in the layout that other tools of this store read, if `commit` did not.

        `committed_at` is in milliseconds since 1970. Repeatable: the same call writes the same thing. Raises Unreachable.
        """
        ...


@runtime_checkable
class SupportsOffsetLayouts(Protocol):
    """A store whose `commit` shows the ingest's offsets to other tools."""

    def show(self, offsets: Offsets) -> None:
        """Show these offsets now, whatever was shown before: the ledger was restored. Repeatable. Raises Unreachable."""
        ...


def sortable(number: int) -> str:
    """A non-negative 64-bit number as a word of a key, with leading zeros."""
    return f"{number:019d}"
