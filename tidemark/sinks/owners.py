"""The owner of a place of results: one stream with one ledger. The place carries their mark."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.errors import LedgerContradiction, OwnedByAnother
from tidemark.ledger.forgetting import replaces

# The row of an HBase table's mark. This row sorts after all results, whose keys begin with a salt below 16.
OWNER_ROW = b"\xff\xfftidemark-owner"


def check_owner(place: str, owner: Mapping[str, str], stream: str, ledger: str) -> bool:
    """Check that a place carries the mark of this stream and this ledger. Returns True where it has that of an earlier one.

    That is the mark of a ledger which this one was restored from, or of another one restored from its backups: the caller
    writes its own instead. Raises OwnedByAnother for the mark of another stream, and for that of a ledger which was restored
    later than this one. Raises LedgerContradiction for this stream with another ledger: that ledger was lost, or the stream
    has two.
    """
    if owner.get("stream") != stream:
        raise OwnedByAnother(
            f"{place} belongs to stream {owner.get('stream')}; this is stream {stream}. Name another place."
        )
    check_not_replaced(place, owner, stream, ledger)
    theirs = owner.get("ledger", "")
    if replaces(ledger, theirs):
        return True
    if theirs != ledger:
        raise LedgerContradiction(
            f"{place} holds what stream {stream} has written with ledger {theirs or None}, its ledger now is {ledger}. "
            "If that ledger was lost, restore it from a backup (tidemark ledger restore STREAM FILE): a new one would read "
            "everything once more. If both are meant to be, name another place."
        )
    return False


def check_not_replaced(place: str, owner: Mapping[str, str], stream: str, ledger: str) -> None:
    """Raises OwnedByAnother for the mark of a ledger that took the place of this one: it was restored later."""
    if replaces(owner.get("ledger", ""), ledger):
        raise OwnedByAnother(
            f"{place} belongs to another ledger of stream {stream}, which took the place of this one: it was restored from a "
            "backup. Nothing more is written or removed there for this one. Name the ledger in use in the stream file"
        )
