"""The sink `kafka` without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.sinks.contract import Columns, Opened, PlainSink
from tidemark.sinks.kafka.messages import kafka_messages
from tidemark.sinks.kafka.settings import KafkaSink
from tidemark.sinks.texts import place, text


class PlainKafka(PlainSink):
    # No sweep: no message can be removed from a topic.
    left_by_erasing = "its messages stay in the topics that it has written; `tidemark results` leaves them out"

    def place(self, opened: Opened, settings: KafkaSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        return {"connection": settings.kafka, "topics": ",".join(settings.targets())}

    def rows(self, opened: Opened, settings: KafkaSink, limit: int) -> Iterator[dict[str, Any]]:
        """Topic, key and value of each message."""
        cluster = kafka_endpoint(opened.connections(settings.kafka))
        for message in kafka_messages(opened.book, cluster, settings.targets(), settings.name):
            shown = {"topic": message.topic, "key": text(message.key), "value": text(message.value)}
            yield {**place(message.origin.place), **shown}

    def in_columns(self, settings: KafkaSink, fields: Sequence[str], rows: Sequence[dict[str, Any]]) -> Columns:
        shown = ("coordinate", "topic", "key", "value")
        return Columns(shown, [[row[name] for name in shown] for row in rows])
