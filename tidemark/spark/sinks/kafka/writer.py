"""Results in Kafka: a message for each row, with its origin in the headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from kafka.codec import gzip_encode
from kafka.record.default_records import DefaultRecordBatchBuilder
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import IntegerType

from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.sending import OutgoingMessage, Sender
from tidemark.clients.schema_registry import RegistryEndpoint, SchemaRegistry, registry_endpoint
from tidemark.errors import TopicUnknown
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Acknowledgements
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.kafka import messages as kafka_messages
from tidemark.sinks.kafka.avro import schema_of, subject_of
from tidemark.sinks.kafka.messages import Origin
from tidemark.sinks.kafka.settings import MESSAGE_KEY, KafkaSink
from tidemark.sinks.stored_rows import Place
from tidemark.spark.columns import JSON_TIMES, KEY, TOMBSTONE, field, text
from tidemark.spark.sinks.acknowledging import COUNTED, acknowledge, acknowledged
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.sizes import at_most, refusal, too_large

# The writer sends this many messages, waits for their acknowledgements, and then checks the fence again.
_WRITE_ROWS = 5_000
# Times have microseconds, as in the other sinks.
_JSON = {"ignoreNullFields": "false", **JSON_TIMES}

# A message's bytes besides key and value: kafka-python's estimate, with headers for the longest coordinate.
_LONGEST = Origin(
    "x" * 63, Place(TopicPartition("x" * 249, 2**31 - 1, 2**16 - 1), 2**63 - 1, 2**31 - 1), 2**63, "x" * 63, 2**63
)
MESSAGE_BYTES = DefaultRecordBatchBuilder.estimate_size_in_bytes(b"", b"", _LONGEST.headers())


class KafkaResults:
    """The sink `kafka`.

    kafka-python writes it in Spark's tasks. Spark's own Kafka sink does not say which messages the broker has
    acknowledged, and does not check a fence while it writes.
    """

    def __init__(
        self,
        config: KafkaSink,
        cluster: KafkaEndpoint,
        stream: str,
        fields: Fields,
        registry: RegistryEndpoint | None = None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._stream = stream
        self._fields = fields
        self._registry = registry

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def needs_messages(self) -> bool:
        return self._config.key == MESSAGE_KEY

    def prepare(self, stream: str, ledger: str) -> None:
        """Check that the topics exist. Their owner creates them, and knows what partitions and retention they need."""
        missing = KafkaLog(self._cluster).missing(self._config.targets())
        if missing:
            raise TopicUnknown(
                f"sink {self.name} writes to {', '.join(missing)}, and Kafka at {self._cluster} has no such topic: create it"
            )
        if self._registry is not None:
            registry = SchemaRegistry(self._registry)
            self._schemas = {
                topic: registry.register(subject_of(topic), self._schema) for topic in self._config.targets()
            }

    def refusal(self, fields: Fields) -> Column:
        return F.coalesce(self._nowhere(), self._without_key(), self._too_large(fields))

    def _nowhere(self) -> Column:
        """The refusal of a row that names none of the topics, if the sink has no `topic` for the others."""
        reason = F.lit(f"sink {self.name}: {self._config.topic_field} names none of its topics, and there is no other")
        return F.when(self._topic().isNull(), refusal(reason))

    def _without_key(self) -> Column:
        """The refusal of a null key for a compacted topic: the broker refuses such a message."""
        topic = self._topic()
        reason = F.concat(F.lit(f"sink {self.name}: the key is null, and topic "), topic, F.lit(" is compacted"))
        return F.when(topic.isin(*self._compacted) & self._key().isNull(), refusal(reason))

    def _too_large(self, fields: Fields) -> Column:
        key, value = self._key(), self._value()
        key_size, value_size = (F.coalesce(F.octet_length(part), F.lit(0)) for part in (key, value))
        size = key_size + value_size + MESSAGE_BYTES
        # JSON makes at most six bytes of one. Only messages that may be too large by this bound are built and measured.
        may_be = at_most(fields, 6) + key_size + MESSAGE_BYTES
        what = f"sink {self.name}: the message"
        most, limit = F.lit(self._config.settings.max_request_size), self._limit()
        plain = self._config.settings.compression_type == "none"
        if plain:
            most = F.least(most, limit)
        refused = F.when(may_be > most, too_large(what, size, most))
        if plain or not self._limits_below_requests:
            return refused
        # A topic's limit holds for the compressed batch. `store` sends a message alone that is larger uncompressed.
        large = (may_be > limit) & (size > limit)
        compressed = _gzipped(F.when(large, key), F.when(large, value)) + MESSAGE_BYTES
        return F.coalesce(refused, F.when(large, too_large(f"{what}, compressed,", compressed, limit)))

    @cached_property
    def _limits(self) -> dict[str, int]:
        """The largest batch of each topic, in bytes, for topics whose settings Tidemark may read."""
        return KafkaLog(self._cluster).message_limits(self._config.targets())

    @cached_property
    def _compacted(self) -> set[str]:
        """The topics that take no message without a key, among those whose settings Tidemark may read."""
        return KafkaLog(self._cluster).compacted(self._config.targets())

    def _limit(self) -> Column:
        """The largest batch of a row's topic, or the largest request if Tidemark may not read the topic's settings."""
        limit_ = F.lit(self._config.settings.max_request_size)
        for topic, limit in self._limits.items():
            limit_ = F.when(self._topic() == topic, F.lit(limit)).otherwise(limit_)
        return limit_

    @property
    def _limits_below_requests(self) -> bool:
        return any(limit < self._config.settings.max_request_size for limit in self._limits.values())

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        topic, key, value = self.message()
        messages = rows.select(*COUNTED, topic.alias("target"), key.alias("message_key"), value.alias("message_value"))
        settings = self._config.settings.model_dump()
        # A topic refuses a larger batch, even if each message in it is small enough.
        settings["batch_size"] = min([settings["batch_size"], *self._limits.values()])
        writer = _MessageWriter(self._cluster, settings, self._stream, context)
        return acknowledged(messages, writer, few=context.few)

    def message(self) -> tuple[Column, Column, Column]:
        """The topic, key and value of a row's message."""
        return self._topic(), self._key(), self._value()

    def receipt(self, context: WriteContext) -> SinkReceipt:
        place = {"connection": self._config.kafka, "topics": ",".join(self._config.targets())}
        return SinkReceipt(name=self.name, type=kafka_messages.TYPE, place=place)

    @cached_property
    def _schema(self) -> str:
        """The Avro schema of values."""
        return schema_of(self._stream, self._fields)

    @cached_property
    def _schemas(self) -> dict[str, int]:
        """The number of the schema in the registry, by topic; 0 for one that nothing was written with yet."""
        if self._registry is None:
            return {}
        registry = SchemaRegistry(self._registry)
        return {topic: registry.registered(subject_of(topic), self._schema) or 0 for topic in self._config.targets()}

    def _topic(self) -> Column:
        config = self._config
        # Null for a row without a topic. Such a row is refused before the writing.
        otherwise = F.lit(config.topic).cast("string")
        if config.topic_field is None:
            return otherwise
        named = field(config.topic_field).cast("string")
        return F.when(named.isin(*config.topics), named).otherwise(otherwise)

    def _key(self) -> Column:
        key = self._config.key
        if key is None:
            return F.lit(None).cast("binary")
        return F.col(KEY) if key == MESSAGE_KEY else text(key, self._fields[key])

    def _value(self) -> Column:
        if self._config.value is not None:
            value = text(self._config.value, self._fields[self._config.value])
        elif self._registry is not None:
            value = F.concat(self._wire_format(), to_avro(F.struct(*map(field, self._fields)), self._schema))
        else:
            # The text includes null fields, so that every message has the same keys.
            value = F.to_json(F.struct(*(field(name) for name in self._fields)), _JSON)
        return F.when(~F.col(TOMBSTONE), value.cast("binary"))

    def _wire_format(self) -> Column:
        """The bytes before a record, as Confluent's programs have them: a 0, and the number of its schema."""
        prefix = F.lit(None).cast("binary")
        for topic, number in self._schemas.items():
            prefix = F.when(self._topic() == topic, F.lit(bytearray(number.to_bytes(5, "big")))).otherwise(prefix)
        return prefix


def results_of(opened: OpenStream, config: KafkaSink, cluster: KafkaEndpoint) -> KafkaResults:
    """The writer of a sink of a stream. Asks no server."""
    registry = None if config.registry is None else registry_endpoint(opened.connections(config.registry))
    return KafkaResults(config, cluster, opened.stream.name, opened.fields, registry)


@dataclass(frozen=True)
class _MessageWriter:
    """Runs in Spark's Python workers: batches of rows in, acknowledgements out."""

    cluster: KafkaEndpoint
    settings: dict[str, Any]
    stream: str
    context: WriteContext

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as opened:
            sender = None
            for batch in batches:
                for start in range(0, batch.num_rows, _WRITE_ROWS):
                    self.context.fence.check_now_and_then()
                    sender = sender or opened.enter_context(closing(self._sender()))
                    piece = batch.slice(start, _WRITE_ROWS)
                    columns = [column.to_pylist() for column in piece.columns]
                    sender.send(self._messages(columns))
                    yield acknowledge(columns, self.context)

    def _sender(self) -> Sender:
        compression = self.settings["compression_type"]
        settings = {**self.settings, "compression_type": None if compression == "none" else compression}
        return Sender(self.cluster, **settings)

    def _messages(self, columns: list[list[Any]]) -> Iterator[OutgoingMessage]:
        context = self.context
        for topic, incarnation, partition, offset, index, _, _, _, target, key, value in zip(*columns, strict=True):
            place = Place(TopicPartition(topic, partition, incarnation), offset, index)
            headers = Origin(self.stream, place, context.generation, context.lane, context.seq).headers()
            yield OutgoingMessage(f"the result of {place.partition}@{place.offset}", target, key, value, headers)


@F.udf(IntegerType())
def _gzipped(key: bytes | None, value: bytes | None) -> int:
    """The bytes of key and value after the producer's compression, or uncompressed if that is less."""
    plain = bytes(key or b"") + bytes(value or b"")
    return min(len(plain), len(gzip_encode(plain)))
