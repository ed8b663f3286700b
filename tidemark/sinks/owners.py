"""The owner of a place of results: one stream with one ledger. The place carries their mark."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.errors import LedgerContradiction, OwnedByAnother

# The row of an HBase table's mark. This row sorts after all results, whose keys begin with a salt below 16.
OWNER_ROW = b"\xff\xfftidemark-owner"


def check_owner(place: str, owner: Mapping[str, str], stream: str, ledger: str) -> None:
    """Check that a place carries the mark of this stream and this ledger.

    Raises OwnedByAnother for the mark of another stream. Raises LedgerContradiction for this stream with another
    ledger: that ledger was lost, or the stream has two.
    """
    if owner.get("stream") != stream:
        raise OwnedByAnother(
            f"{place} belongs to stream {owner.get('stream')}; this is stream {stream}. Name another place."
        )
    if owner.get("ledger") != ledger:
        raise LedgerContradiction(
            f"{place} holds what stream {stream} has written with ledger {owner.get('ledger')}, its ledger now is {ledger}. "
            "If that ledger was lost, restore it from a backup (tidemark ledger restore STREAM FILE): a new one would read "
            "everything once more. If both are meant to be, name another place."
        )
