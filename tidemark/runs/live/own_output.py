"""Whether a stream would read what it writes: each row or copy would become a message, and that another one, without an end.

The stream file is checked for its own connections. Two connections may lead to one cluster, as for two users of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.errors import WrongUse
from tidemark.ledger.records import INGEST
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.kinds import kind_of


def check_own_output(opened: OpenStream) -> None:
    """Raises WrongUse for a topic that the stream reads and writes, by whatever connections; Unreachable, NotAuthorized."""
    source = opened.stream.source
    for what, connection, topics in _written(opened):
        both = [topic for topic in topics if source.reads(topic)]
        if not both or connection == source.kafka:
            continue
        there = KafkaLog(kafka_endpoint(opened.connections(connection))).topics(both, source.isolation)
        for topic, here in opened.log.topics(both, source.isolation).items():
            if topic in there and there[topic].topic_id == here.topic_id:
                raise WrongUse(
                    f"{what} writes to {topic} by the connection {connection}, which is the topic that the stream reads by "
                    f"{source.kafka}: it would read what it writes. Name another topic"
                )


def _written(opened: OpenStream) -> Iterator[tuple[str, str, list[str]]]:
    """The stores that write to topics, by which connection, and to which."""
    for sink in opened.stream.sinks:
        place = kind_of(sink.type).make_admin().place(opened, sink, INGEST, 1, 0)
        if place and "topics" in place:
            yield f"sink {sink.name}", place["connection"], place["topics"].split(",")
    if (copies := opened.stream.dead_letters.copies()) is not None:
        yield "dead_letters.copy_to_topic", copies.place["connection"], [copies.place["topics"]]
