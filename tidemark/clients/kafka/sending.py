"""Sending messages, and knowing that the broker has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafka import KafkaProducer
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.serializer import Serializer

from tidemark.clients.kafka.admission import kafka_errors, lacking
from tidemark.clients.kafka.clients import python_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.errors import ProcessingFailed, TidemarkError, Unreachable

Headers = Sequence[tuple[str, bytes | None]]

# Stands for a null value: Kafka takes a message without key and value, but kafka-python refuses it.
_NULL = object()


class OutgoingMessage(NamedTuple):
    """A message to send. `of` says in an error what it is, such as `the result of logs/0@5`."""

    of: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """Its bytes at most, as kafka-python estimates them."""
        return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(self.key or b"", self.value or b"", self.headers))


class Sender:
    """Sends messages to a cluster. kafka-python's default is an idempotent producer: its own retries write a message once."""

    def __init__(self, cluster: KafkaEndpoint, **settings: Any) -> None:
        """`settings`: kafka-python's. Raises what `kafka_errors` raises."""
        self._cluster = cluster
        with kafka_errors(cluster):
            self._producer = KafkaProducer(
                **python_settings(cluster), allow_auto_create_topics=False, value_serializer=_OrNull(), **settings
            )

    def close(self) -> None:
        self._producer.close()

    def send(self, messages: Iterable[OutgoingMessage]) -> None:
        """Send messages, and return when the broker has acknowledged every one of them.

        Raises Unreachable, NotAuthorized, and ProcessingFailed for a message that the broker refuses.
        """
        sent = []
        for message in messages:
            value = _NULL if message.value is None else message.value
            try:
                sent.append(
                    (message, self._producer.send(message.topic, value, message.key, headers=list(message.headers)))
                )
            except KafkaError as problem:
                raise self._failed(message, problem) from problem
        self._producer.flush()
        for message, future in sent:
            try:
                future.get(timeout=0)
            except KafkaError as problem:
                raise self._failed(message, problem) from problem

    def _failed(self, message: OutgoingMessage, problem: KafkaError) -> TidemarkError:
        if isinstance(problem, TopicAuthorizationFailedError):
            return lacking(self._cluster, "Write", f"topic {message.topic}")
        if isinstance(problem, ClusterAuthorizationFailedError):
            return lacking(self._cluster, "Write", f"topic {message.topic} (or IdempotentWrite on the cluster)")
        what = f"{message.of} for topic {message.topic}"
        if problem.retriable:
            return Unreachable(f"Kafka at {self._cluster} did not acknowledge {what}: {problem}")
        return ProcessingFailed(f"Kafka at {self._cluster} has refused {what}: {problem}")


class _OrNull(Serializer):  # type: ignore[misc]
    def serialize(self, topic: str, headers: Any, data: object) -> object:
        return None if data is _NULL else data
