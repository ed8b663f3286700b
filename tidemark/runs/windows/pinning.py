"""The one way to pin a window, in every lane. It first notes and checks what Kafka says."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.commit import protocol
from tidemark.ledger.records import INGEST, Head, Pending, Window
from tidemark.planning.checking import check_reached
from tidemark.planning.inputs import KafkaState
from tidemark.runs.live.kafka_now import note_partitions
from tidemark.runs.live.open_stream import OpenStream

# The next window for a settled head (None when there is nothing to read), and what was known about Kafka then.
Plan = Callable[[Head], tuple[Window | None, KafkaState]]


def pin(opened: OpenStream, lane: str, plan: Plan) -> Pending | None:
    """Step 1 of the protocol, after noting where the order of a topic's messages has changed.

    Raises what `plan` raises. Raises LogTruncated when a log was cut below what the ingest has read, also without positions.
    """

    def noted(head: Head) -> Window | None:
        window, known = plan(head)
        if lane == INGEST:
            check_reached(known, head)
        ingest = head if lane == INGEST else _ingest(opened)
        note_partitions(opened, known, ingest)
        return window

    return protocol.pin(opened.ledger, opened.sweeper, lane, noted)


def _ingest(opened: OpenStream) -> Head | None:
    stored = opened.ledger.head(INGEST)
    return stored.head if stored else None
