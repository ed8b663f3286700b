"""The copy of each committed dead letter in a topic, with the headers that Kafka Connect gives, for the tools that read those.

    the message's own headers, in their order; then:
    __connect.errors.topic                  where the message was read
    __connect.errors.partition
    __connect.errors.offset
    __connect.errors.connector.name         the stream
    __connect.errors.exception.message      the reason
    __connect.errors.exception.class.name   the class of an exception, if there was one
    tidemark.errors.incarnation             of the topic: a number that rises when it was recreated
    tidemark.errors.window                  that has stored the dead letter: LANE/NUMBER
    tidemark.errors.generation              of the attempt that has stored it
    tidemark.errors.outcome                 invalid or failed
    tidemark.errors.detail                  what differs from message to message, if there is anything
    tidemark.errors.timestamp               the message's own time, if it has one
    tidemark.errors.left_out                what the copy lacks, since the topic takes no message so large

Key and value are the message's own bytes. All values of these headers are UTF-8 text, numbers are decimal.

Copies are made when a window is settled, from what is stored: so nothing is copied that does not count, or was erased. A window
is not settled before all of its dead letters are acknowledged. Until then no run of the stream goes on, and the next one copies
them, or copies them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from tidemark.clients.connections import Connections
from tidemark.clients.kafka.endpoint import KafkaEndpoint, kafka_endpoint
from tidemark.errors import TopicUnknown, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.offsets.authority import Authority
from tidemark.sinks.contract import SinkAdmin
from tidemark.sinks.dead_letters import headers_of
from tidemark.sinks.dead_letters.contract import DeadLetters
from tidemark.sinks.stored_rows import StoredRow

if TYPE_CHECKING:
    from tidemark.clients.kafka.sending import Headers, OutgoingMessage

# What a topic takes unless it was told otherwise, and the most that a producer sends.
_USUAL_BYTES = 1_000_000
# Messages that are in memory at once.
_AT_ONCE = 100


class CopiesAdmin(SinkAdmin):
    # No sweep, no erasure: no message can be removed from a topic.
    left_by_erasing = "copies of dead letters stay in the topic, until Kafka deletes them"


@dataclass(frozen=True)
class Copies:
    """The topic that a stream file names for them."""

    cluster: KafkaEndpoint
    topic: str

    def check(self) -> None:
        """Raises TopicUnknown for a topic that is not there, and WrongUse for one that would keep one message of each key.

        Its owner creates it, and knows what partitions and retention it needs.
        """
        from tidemark.clients.kafka.log import KafkaLog

        log = KafkaLog(self.cluster)
        if log.missing([self.topic]):
            raise TopicUnknown(
                f"dead_letters.copy_to_topic is {self.topic}, and Kafka at {self.cluster} has no such topic: create it"
            )
        if log.compacted([self.topic]):
            raise WrongUse(
                f"dead_letters.copy_to_topic is {self.topic}, which is compacted: it refuses messages without a key, and keeps "
                "one message of each. Name a topic with the cleanup.policy delete"
            )

    def make(self, ledger: Ledger, record: Record, letters: DeadLetters) -> None:
        """Copy the dead letters of a committed window that count now. Repeatable: then there are more copies.

        Raises Unreachable, and what `Sender.send` raises.
        """
        from tidemark.clients.kafka.log import KafkaLog
        from tidemark.clients.kafka.sending import Sender

        rows = _counting(ledger, record, letters)
        if (first := next(rows, None)) is None:
            return
        # A producer would look for a minute for a topic that is not there.
        self.check()
        most = KafkaLog(self.cluster).message_limits([self.topic]).get(self.topic, _USUAL_BYTES)
        # A topic refuses a larger batch, even if each message in it is small enough.
        settings = {"max_request_size": max(most, _USUAL_BYTES), "batch_size": min(most, 131_072), "linger_ms": 20}
        with closing(Sender(self.cluster, **settings)) as sender:
            messages = (message_of(self.topic, ledger.stream, row, most) for row in chain([first], rows))
            while some := list(islice(messages, _AT_ONCE)):
                sender.send(some)


def _counting(ledger: Ledger, record: Record, letters: DeadLetters) -> Iterator[StoredRow]:
    """The offsets of a window that count, and so were not erased."""
    generation = record.attempt.generation
    counting = Authority([(generation, ledger.authority().held_by(generation, ledger.covers(record.window)))])
    places = {tally.at for tally in record.tallies if tally.dead_letters}
    for hull in counting.covered().only(places).hull():
        yield from (row for _, row in letters.rows(counting, hull) if row is not None)


def message_of(topic: str, stream: str, row: StoredRow, most: int) -> OutgoingMessage:
    """The copy of a dead letter. What makes it larger than `most` bytes is left out, and a header says so."""
    from tidemark.clients.kafka.sending import OutgoingMessage

    fields = row.fields
    message = OutgoingMessage(
        f"the copy of the dead letter {row.place.partition}@{row.place.offset}",
        topic,
        fields.get("key"),
        fields.get("value"),
        (*headers_of(fields), *_headers(stream, row)),
    )
    if message.size <= most:
        return message
    left_out = {
        "value": len(message.value or b""),
        "headers": len(fields.get("headers", b"")),
        "key": len(message.key or b""),
    }
    said = ", ".join(f"the {name} of {size} bytes" for name, size in left_out.items() if size)
    header = ("tidemark.errors.left_out", f"{said}: the topic takes {most} bytes".encode())
    named = [(name, value) for name, value in _headers(stream, row) if name != "tidemark.errors.detail"]
    return message._replace(key=None, value=None, headers=(*named, header))


def _headers(stream: str, row: StoredRow) -> Headers:
    at, fields = row.place.partition, row.fields
    values: Mapping[str, bytes | str | int | None] = {
        "__connect.errors.topic": at.topic,
        "__connect.errors.partition": at.partition,
        "__connect.errors.offset": row.place.offset,
        "__connect.errors.connector.name": stream,
        "__connect.errors.exception.message": fields.get("reason"),
        "__connect.errors.exception.class.name": fields.get("error"),
        "tidemark.errors.incarnation": at.incarnation,
        "tidemark.errors.window": f"{row.mark.lane}/{row.mark.seq}",
        "tidemark.errors.generation": row.mark.generation,
        "tidemark.errors.outcome": fields.get("outcome"),
        "tidemark.errors.detail": fields.get("detail"),
        "tidemark.errors.timestamp": fields.get("timestamp"),
    }
    return [
        (name, value if isinstance(value, bytes) else str(value).encode())
        for name, value in values.items()
        if value is not None
    ]


def copies_at(place: SinkReceipt, connections: Connections) -> Copies:
    """`place`: as the stream file's settings name it."""
    return Copies(kafka_endpoint(connections(place.place["connection"])), place.place["topics"])
