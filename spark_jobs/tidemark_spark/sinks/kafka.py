"""Results in Kafka: a message for each row, with headers that say what it is a result of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from kafka import KafkaProducer
from kafka.codec import gzip_encode
from kafka.errors import KafkaError
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.serializer import Serializer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from tidemark.errors import ProcessingFailed, TidemarkError, TopicUnknown, Unreachable
from tidemark.kafka.log import KafkaLog
from tidemark.ledger.records import SinkReceipt
from tidemark.ranges import TopicPartition
from tidemark.results import kafka_messages
from tidemark.results.hbase_rows import Place
from tidemark.results.kafka_messages import Origin
from tidemark.streams.kafka_sink import MESSAGE_KEY, KafkaSink
from tidemark.streams.schemes import Fields
from tidemark.tallies import Acknowledgements
from tidemark_spark.columns import KEY, TOMBSTONE, field, text
from tidemark_spark.sinks.acknowledging import COUNTED, acknowledge, acknowledged
from tidemark_spark.sinks.contract import Mission
from tidemark_spark.sinks.sizes import at_most, refusal, too_large

# As many messages are acknowledged before the fence is looked at again and the next ones are sent.
_WRITE_ROWS = 5_000
# Times to the microsecond, as the other sinks have them.
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

# Of a message all but key and value: as kafka-python estimates it, with headers for the longest of all coordinates.
_LONGEST = Origin(
    "x" * 63, Place(TopicPartition("x" * 249, 2**31 - 1, 2**16 - 1), 2**63 - 1, 2**31 - 1), 2**63, "x" * 63, 2**63
)
MESSAGE_BYTES = DefaultRecordBatchBuilder.estimate_size_in_bytes(b"", b"", _LONGEST.headers())

# Stands for a value that is null: kafka-python refuses a message without key and value, which Kafka takes.
_NULL = object()


class KafkaResults:
    """The sink `kafka`.

    Written by kafka-python in Spark's tasks and not by Spark's own Kafka sink, which says neither which messages the broker
    has acknowledged nor looks at a fence while it writes.
    """

    def __init__(self, config: KafkaSink, servers: str, stream: str, fields: Sequence[str]) -> None:
        self._config = config
        self._servers = servers
        self._stream = stream
        self._fields = tuple(fields)

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        """Topics are not made: nobody but their owner knows how many partitions and how much retention they need."""
        missing = sorted(set(self._config.targets()) - KafkaLog(self._servers).names())
        if missing:
            raise TopicUnknown(
                f"sink {self.name} writes to {', '.join(missing)}, and Kafka at {self._servers} has no such topic: create it"
            )

    def refusal(self, fields: Fields) -> Column:
        return F.coalesce(self._nowhere(), self._without_key(), self._too_large(fields))

    def _nowhere(self) -> Column:
        """The reason for a row that names none of the topics, where there is no topic for all others."""
        reason = F.lit(f"sink {self.name}: {self._config.topic_field} names none of its topics, and there is no other")
        return F.when(self._topic().isNull(), refusal(reason))

    def _without_key(self) -> Column:
        """The reason for a null key where the broker refuses it, because it could never compact it."""
        topic = self._topic()
        reason = F.concat(F.lit(f"sink {self.name}: the key is null, and topic "), topic, F.lit(" is compacted"))
        return F.when(topic.isin(*self._compacted) & self._key().isNull(), refusal(reason))

    def _too_large(self, fields: Fields) -> Column:
        key, value = self._key(), self._value()
        key_size, value_size = (F.coalesce(F.octet_length(part), F.lit(0)) for part in (key, value))
        size = key_size + value_size + MESSAGE_BYTES
        # What a JSON text makes of a byte is six at most; only what may be too large is made to be measured.
        may_be = at_most(fields, 6) + key_size + MESSAGE_BYTES
        what = f"sink {self.name}: the message"
        most, limit = F.lit(self._config.settings.max_request_size), self._limit()
        plain = self._config.settings.compression_type == "none"
        if plain:
            most = F.least(most, limit)
        refused = F.when(may_be > most, too_large(what, size, most))
        if plain or not self._limits_below_requests:
            return refused
        # A topic's own limit is that of a compressed batch. What is larger before goes in one of its own, see `store`.
        large = (may_be > limit) & (size > limit)
        compressed = _gzipped(F.when(large, key), F.when(large, value)) + MESSAGE_BYTES
        return F.coalesce(refused, F.when(large, too_large(f"{what}, compressed,", compressed, limit)))

    @cached_property
    def _limits(self) -> dict[str, int]:
        """The largest batch that each topic takes, in bytes, as far as we may see their settings."""
        return KafkaLog(self._servers).message_limits(self._config.targets())

    @cached_property
    def _compacted(self) -> set[str]:
        """The topics that take no message without a key, as far as we may see their settings."""
        return KafkaLog(self._servers).compacted(self._config.targets())

    def _limit(self) -> Column:
        """The largest batch that a row's topic takes; that of a request where we may not see the topic's settings."""
        found = F.lit(self._config.settings.max_request_size)
        for topic, limit in self._limits.items():
            found = F.when(self._topic() == topic, F.lit(limit)).otherwise(found)
        return found

    @property
    def _limits_below_requests(self) -> bool:
        return any(limit < self._config.settings.max_request_size for limit in self._limits.values())

    def store(self, rows: DataFrame, mission: Mission) -> Acknowledgements:
        messages = rows.select(
            *COUNTED,
            self._topic().alias("target"),
            self._key().alias("message_key"),
            self._value().alias("message_value"),
        )
        settings = self._config.settings.model_dump()
        # A topic refuses what is larger as a whole, although each message of it is small enough.
        settings["batch_size"] = min([settings["batch_size"], *self._limits.values()])
        writer = _Writer(self._servers, settings, self._stream, mission)
        return acknowledged(messages, writer)

    def receipt(self, mission: Mission) -> SinkReceipt:
        place = {"connection": self._config.kafka, "topics": ",".join(self._config.targets())}
        return SinkReceipt(name=self.name, type=kafka_messages.TYPE, place=place)

    def _topic(self) -> Column:
        config = self._config
        # Null where a row has no topic to go to; none of those gets as far as the writing.
        otherwise = F.lit(config.topic).cast("string")
        if config.topic_field is None:
            return otherwise
        named = field(config.topic_field).cast("string")
        return F.when(named.isin(*config.topics), named).otherwise(otherwise)

    def _key(self) -> Column:
        key = self._config.key
        if key is None:
            return F.lit(None).cast("binary")
        return F.col(KEY) if key == MESSAGE_KEY else text(key)

    def _value(self) -> Column:
        if self._config.value is not None:
            value = text(self._config.value)
        else:
            # With the fields that are null, so that every message has the same keys.
            value = F.to_json(F.struct(*(field(name) for name in self._fields)), _JSON)
        return F.when(~F.col(TOMBSTONE), value.cast("binary"))


@dataclass(frozen=True)
class _Writer:
    """Runs in Spark's Python workers: batches of rows in, acknowledgements out."""

    servers: str
    settings: dict[str, Any]
    stream: str
    mission: Mission

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as opened:
            producer = None
            for batch in batches:
                for start in range(0, batch.num_rows, _WRITE_ROWS):
                    self.mission.fence.check_now_and_then()
                    producer = producer or opened.enter_context(closing(self._producer()))
                    piece = batch.slice(start, _WRITE_ROWS)
                    columns = [column.to_pylist() for column in piece.columns]
                    self._send(producer, columns)
                    yield acknowledge(columns, self.mission)

    def _producer(self) -> KafkaProducer:
        settings = {**self.settings, "compression_type": _compression(self.settings["compression_type"])}
        try:
            # Idempotent, which is kafka-python's default: what it sends again by itself is there once.
            return KafkaProducer(
                bootstrap_servers=self.servers.split(","),
                allow_auto_create_topics=False,
                value_serializer=_OrNull(),
                **settings,
            )
        except KafkaError as problem:
            raise Unreachable(f"Kafka at {self.servers} did not answer: {problem}") from problem

    def _send(self, producer: KafkaProducer, columns: list[list[Any]]) -> None:
        """Send a piece, and return when the broker has acknowledged every message of it."""
        mission = self.mission
        sent = []
        for topic, incarnation, partition, offset, index, _, _, target, key, value in zip(*columns, strict=True):
            place = Place(TopicPartition(topic, partition, incarnation), offset, index)
            headers = Origin(self.stream, place, mission.generation, mission.lane, mission.seq).headers()
            try:
                sent.append(
                    (place, target, producer.send(target, _NULL if value is None else value, key, headers=headers))
                )
            except KafkaError as problem:
                raise self._failed(place, target, problem) from problem
        producer.flush()
        for place, target, future in sent:
            try:
                future.get(timeout=0)
            except KafkaError as problem:
                raise self._failed(place, target, problem) from problem

    def _failed(self, place: Place, target: str, problem: KafkaError) -> TidemarkError:
        what = f"the result of {place.partition}@{place.offset} for topic {target}"
        if problem.retriable:
            return Unreachable(f"Kafka at {self.servers} did not acknowledge {what}: {problem}")
        return ProcessingFailed(f"Kafka at {self.servers} has refused {what}: {problem}")


class _OrNull(Serializer):  # type: ignore[misc]
    def serialize(self, topic: str, headers: Any, data: object) -> object:
        return None if data is _NULL else data


@F.udf(IntegerType())
def _gzipped(key: bytes | None, value: bytes | None) -> int:
    """The bytes that key and value take as the producer compresses them, or as they are where that is less."""
    plain = bytes(key or b"") + bytes(value or b"")
    return min(len(plain), len(gzip_encode(plain)))


def _compression(name: str) -> str | None:
    return None if name == "none" else name
