"""A place of results belongs to one stream and one ledger, and is marked as theirs."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.errors import LedgerContradiction, OwnedByAnother

# Of a table in HBase. Behind every row of results: their keys begin with a salt below 16.
OWNER_ROW = b"\xff\xfftidemark-owner"


def check_owner(place: str, owner: Mapping[str, str], stream: str, ledger: str) -> None:
    """Whether the mark of a place is this stream's and this ledger's.

    Raises OwnedByAnother when it is another stream's, LedgerContradiction when it is this stream's with another ledger:
    then that ledger was lost, or there are two.
    """
    if owner.get("stream") != stream:
        raise OwnedByAnother(
            f"{place} belongs to stream {owner.get('stream')}; this is stream {stream}. Name another place."
        )
    if owner.get("ledger") != ledger:
        raise LedgerContradiction(
            f"{place} holds what stream {stream} has written with ledger {owner.get('ledger')}, its ledger now is {ledger}. "
            "If that ledger was lost, restore it from a backup: a new one would read everything once more. If "
            "both are meant to be, name another place."
        )
