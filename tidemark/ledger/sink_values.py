"""Values that sinks keep in a stream's ledger: one for each sink, changed only by compare-and-set.

Only the sink knows the meaning and the format of its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemark.ledger.ledger import Ledger
from tidemark.ledger.limits import check_size
from tidemark.ledger.stores.doubt import swap_surely

# The first words of the ledger's own keys.
RESERVED = frozenset(
    {
        "audited",
        "audits",
        "beat",
        "blocks",
        "clock",
        "closed",
        "covered",
        "head",
        "history",
        "receipt",
        "register",
        "report",
        "selection",
        "settled",
    }
)


@dataclass(frozen=True)
class SinkValues:
    """The values of one type of sink. Their keys begin with `word`, which no other type takes."""

    ledger: Ledger
    word: str

    def __post_init__(self) -> None:
        if self.word in RESERVED:
            raise ValueError(f"{self.word!r} is a word of the ledger's own; take another one")

    def name(self, sink: str) -> str:
        """The name of a sink's value in errors."""
        return "/".join((self.ledger.stream, self.word, sink))

    def find(self, sink: str) -> bytes | None:
        """The value, or None if the sink has no value. Raises Unreachable."""
        return self.ledger.store.read((self.word, sink))

    def of_all_sinks(self) -> Iterator[tuple[str, bytes]]:
        """Each sink and its value, also sinks that the stream file no longer names. Raises Unreachable."""
        return ((key[1], stored) for key, stored in self.ledger.store.scan((self.word,)))

    def check_room(self, value: bytes, what: str, advice: str) -> None:
        """Raises TooLarge when the value is too large for the ledger. The error names `what` is too large, and the `advice`."""
        check_size(self.ledger.store, value, what, advice)

    def swap(self, sink: str, expected: bytes | None, value: bytes, is_mine: Callable[[bytes], bool]) -> None:
        """Change the value from `expected`: the bytes that were read, or None if nothing was there.

        `is_mine` recognises this change in the stored value, by a random token (`register.new_token`), even after other
        writers have changed the value further. Raises CompareAndSetFailed when another writer changed the value first, and
        OutcomeUnknown. Raises WrongUse when the ledger was retired: the one that replaces it may not have the change, so
        nothing may be removed on its account.
        """
        swap_surely(self.ledger.store, (self.word, sink), expected, value, is_mine)
        self.ledger.check_in_use()
