"""The messages of the sink `kafka`, read by a plain consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from tests.support.live_streams import LiveStream
from tests.support.oracle import Place


def written(live: LiveStream, *topics: str) -> Iterator[tuple[dict[str, str], str, bytes | None, bytes | None]]:
    """All messages in the sink's topics, by kafka-python alone: headers, topic, key, value."""
    with closing(KafkaConsumer(**live.kafka.settings, group_id=None)) as consumer:
        for topic in topics:
            for number in sorted(consumer.partitions_for_topic(topic)):
                at = KafkaTopicPartition(topic, number)
                consumer.assign([at])
                consumer.seek_to_beginning(at)
                end = consumer.end_offsets([at])[at]
                while consumer.position(at) < end:
                    for record in consumer.poll(timeout_ms=500).get(at, ()):
                        headers = {name: value.decode() for name, value in record.headers}
                        yield headers, topic, record.key, record.value


def counting(live: LiveStream, *topics: str) -> list[tuple[Place, tuple[str, bytes | None, bytes | None]]]:
    """The messages that count, by an independent reading of the topics and of the ledger."""
    generations = live.independent.generations()
    found = []
    for headers, *content in written(live, *topics):
        if headers.get("tidemark.stream") != live.name:
            continue
        topic, partition, offset, index = (
            headers[f"tidemark.{name}"] for name in ("topic", "partition", "offset", "index")
        )
        if generations.get((topic, int(partition), int(offset))) == int(headers["tidemark.generation"]):
            found.append(((topic, int(partition), int(offset), int(index)), tuple(content)))
    return found
