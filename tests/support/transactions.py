"""A producer that commits or aborts."""

from __future__ import annotations

from kafka import KafkaProducer

from tests.support.live_streams import LiveStream


def transaction(live: LiveStream, producer: KafkaProducer, count: int, *, end: str) -> None:
    """Send messages to partition 0 in a transaction that is committed, aborted or left open."""
    producer.begin_transaction()
    for key, value in live.example.generate(count, 10_000):
        producer.send(live.topics[0], value, key, partition=0)
    producer.flush()
    if end == "commit":
        producer.commit_transaction()
    elif end == "abort":
        producer.abort_transaction()
