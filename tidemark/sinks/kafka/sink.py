"""The sink `kafka` without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.errors import LedgerContradiction
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.sinks.contract import Columns, SinkAdmin, SinkContext
from tidemark.sinks.kafka.messages import kafka_messages, newest_origins
from tidemark.sinks.kafka.settings import KafkaSink
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import place, text


class KafkaAdmin(SinkAdmin):
    # No sweep: no message can be removed from a topic.
    keeps_fields = False
    left_by_erasing = "what it has written of them stays in its topics; `tidemark results` leaves it out"

    def place(self, opened: SinkContext, settings: KafkaSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        return {"connection": settings.kafka, "topics": ",".join(settings.targets())}

    def data_sets(self, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        first = kafka_endpoint(connections(place["connection"])).servers.split(",")[0]
        return [(f"kafka://{first}", topic) for topic in place["topics"].split(",")]

    def check_unused(self, opened: SinkContext, settings: KafkaSink) -> None:
        # No message can carry a mark of its ledger. Those of a stream that begins are of another ledger.
        stream, cluster = opened.ledger.stream, kafka_endpoint(opened.connections(settings.kafka))
        for topic, origin in newest_origins(cluster, settings.targets()):
            if origin.stream == stream:
                at, window = f"{origin.place.partition}@{origin.place.offset}", f"{origin.lane}/{origin.seq}"
                raise LedgerContradiction(
                    f"the topic {topic} of Kafka at {cluster} holds messages that stream {stream} has written, as of {at} in "
                    f"window {window}, and its ledger has no window: the connection leads to another ledger, or this one was "
                    "lost. If it was lost, restore it from a backup (tidemark ledger restore STREAM FILE): a new one would "
                    "read and write everything once more. If the stream is meant to begin again, name another topic, or delete "
                    "this one"
                )

    def rows_at(
        self, opened: SinkContext, settings: KafkaSink, at: Coordinate, record: Record
    ) -> list[StoredRow] | str:
        from tidemark.sinks.kafka.message_lookup import messages_of

        place = next((one.place for one in record.places if one.name == settings.name), None)
        if place is None:
            return []
        cluster = kafka_endpoint(opened.connections(place["connection"]))
        return messages_of(cluster, place["topics"].split(","), opened.ledger.stream, at, record)

    def rows(self, opened: SinkContext, settings: KafkaSink, limit: int) -> Iterator[dict[str, Any]]:
        """Topic, key and value of each message."""
        cluster = kafka_endpoint(opened.connections(settings.kafka))
        for message in kafka_messages(opened.ledger, cluster, settings.targets(), settings.name):
            shown = {"topic": message.topic, "key": text(message.key), "value": text(message.value)}
            yield {**place(message.origin.place), **shown}

    def in_columns(self, settings: KafkaSink, fields: Sequence[str], rows: Sequence[dict[str, Any]]) -> Columns:
        shown = ("coordinate", "topic", "key", "value")
        return Columns(shown, [[row[name] for name in shown] for row in rows])
