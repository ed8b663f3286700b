"""How large a ledger value may become, and how much of that a window will need once it is committed."""

from __future__ import annotations

from tidemark.errors import TooLarge
from tidemark.ledger.codec import encode
from tidemark.ledger.records import Head, Pending
from tidemark.ledger.store import LedgerStore

# A partition's tally at its longest: 20-digit numbers everywhere, without the topic's name.
_TALLY_BYTES = 700
# Receipt, attempt and record around the tallies, with the longest names and places that a stream file can hold.
_RECORD_BYTES = 8_000


def check_size(store: LedgerStore, value: bytes, what: str, advice: str) -> None:
    if len(value) > store.max_value_bytes:
        raise TooLarge(f"{what} takes {len(value)} bytes; this ledger holds up to {store.max_value_bytes}: {advice}")


def check_pending(store: LedgerStore, head: Head, pending: Pending) -> None:
    """Refuse at pin what could become too large at commit, when the work would already be done.

    The largest head is the one with this window committed (as `last`, with its tallies) and one like it pending.
    """
    window = len(encode(pending))
    tallies = sum(_TALLY_BYTES + 4 * len(one.topic) for one in pending.window.ranges)
    largest = len(encode(head)) + 3 * window + tallies + _RECORD_BYTES
    if largest > store.max_value_bytes:
        raise TooLarge(
            f"a window over {len(pending.window.ranges)} partitions could make the head of {head.stream}/{head.lane} "
            f"{largest} bytes large; this ledger holds up to {store.max_value_bytes}: read fewer topics in one stream"
        )
