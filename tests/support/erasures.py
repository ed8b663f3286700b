"""Who asks for erasures and why, and the attempts that were killed before them."""

from __future__ import annotations

from tidemark.ledger.records import Receipt, SinkReceipt
from tidemark.runs.requests.approval import Requesters

ANN = Requesters("ann")
REASON = "request 4711"


class Killed(BaseException):
    """The process was killed here."""


def receipt(*places: SinkReceipt) -> Receipt:
    return Receipt(tallies=(), sinks=places, dead_letters=None, started_at=1, finished_at=2)
