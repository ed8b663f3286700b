"""The settings of a sink in Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from tidemark.settings.parts import ConnectionName, FieldName, Items, Name, Part, Topic, form
from tidemark.sinks.contract import OwnedPlace, SettingsContext, SinkSettings
from tidemark.sinks.kafka.avro import not_a_name

# Names the key of the source message. No field has this name: it is one of Tidemark's own.
MESSAGE_KEY = "_key"


class ProducerSettings(Part):
    """The producer's settings that may be given, by Kafka's own names; all others are refused.

    What decides whether a message is acknowledged, where it goes and who may see it is not for a stream file to change.
    """

    model_config = ConfigDict(validate_by_alias=True, validate_by_name=False)

    acks: Annotated[
        Literal["all"], Field(description="Which replicas must acknowledge a message. No other value is allowed.")
    ] = "all"
    # Kafka's other codecs need libraries that Tidemark does not require.
    compression_type: Annotated[
        Literal["none", "gzip"], Field(alias="compression.type", description="How batches are compressed.")
    ] = "none"
    # Long enough to fill a batch, and negligible next to the time that a window takes.
    linger_ms: Annotated[
        int, Field(alias="linger.ms", ge=0, le=60_000, description="How long a batch waits for more messages.")
    ] = 20
    batch_size: Annotated[
        int, Field(alias="batch.size", ge=1, le=16_777_216, description="The size of a batch, in bytes.")
    ] = 131_072
    max_request_size: Annotated[
        int,
        Field(
            alias="max.request.size",
            ge=1_024,
            le=1_073_741_824,
            description="The largest message, in bytes: see [rows that are too large](#rows-that-are-too-large).",
        ),
    ] = 1_048_576
    request_timeout_ms: Annotated[
        int,
        Field(
            alias="request.timeout.ms", ge=1_000, le=600_000, description="How long the producer waits for a response."
        ),
    ] = 30_000
    delivery_timeout_ms: Annotated[
        int,
        Field(
            alias="delivery.timeout.ms",
            ge=1_000,
            le=3_600_000,
            description="How long the producer tries to deliver a message. At least `linger.ms` and `request.timeout.ms` "
            "together.",
        ),
    ] = 120_000

    @model_validator(mode="after")
    def _in_time(self) -> ProducerSettings:
        # Kafka's own rule for producers.
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ValueError("delivery.timeout.ms has to be at least linger.ms and request.timeout.ms together")
        return self


class KafkaSink(SinkSettings):
    """A message for each result row: in `topic`, or in that of `topics` which the row's `topic_field` names."""

    type: Literal["kafka"]
    name: Name = Field(default="kafka", description="The name of the sink. Two sinks of one type need names.")
    kafka: ConnectionName = Field(default="kafka_default", description="The connection.")
    topic: Topic | None = Field(default=None, description="The topic of the messages.")
    topic_field: FieldName | None = Field(
        default=None,
        description="The field that names a row's topic, one of `topics`. Rows with any other value go to `topic`, or, "
        "without `topic`, their messages become dead letters. A tombstone has no such value, since its fields are null.",
    )
    # The receipt of a window has no room for more.
    topics: Annotated[Items[Topic], Field(max_length=16, description="The allowed values of `topic_field`.")] = ()
    key: Annotated[str, form(r"^([A-Za-z][A-Za-z0-9_-]{0,62}|_key)$", "the name of a field, or _key")] | None = Field(
        default=None,
        description="The field that is the message's key, or `_key` for the key of the source message.",
    )
    value: FieldName | None = Field(
        default=None, description="The field that is the message's value; by default, all fields as a JSON object."
    )
    value_format: Literal["json", "avro"] = Field(
        default="json",
        description="The format of a value of all fields: a JSON object, or an Avro record [by a registry](#avro-values).",
    )
    registry: ConnectionName | None = Field(
        default=None, description="With `value_format: avro`: the connection of the schema registry."
    )
    settings: ProducerSettings = Field(
        default=ProducerSettings(), description="Settings of the producer, by Kafka's names: below."
    )

    @model_validator(mode="after")
    def _somewhere(self) -> KafkaSink:
        if self.topic is None and self.topic_field is None:
            raise ValueError("expected topic, or topic_field with topics")
        if (self.topic_field is None) != (not self.topics):
            raise ValueError("topic_field and topics go together: a row may name no topic but those")
        if len(set(self.topics)) < len(self.topics):
            raise ValueError("topics: one is named twice")
        if wrong := sorted(topic for topic in self.targets() if topic in (".", "..") or topic.startswith("__")):
            raise ValueError(f"{wrong[0]} is not a topic to write to")
        return self

    @model_validator(mode="after")
    def _formatted(self) -> KafkaSink:
        if (self.value_format == "avro") != (self.registry is not None):
            raise ValueError("value_format: avro and registry go together: the registry has the schema of the values")
        if self.value_format == "avro" and self.value is not None:
            raise ValueError(
                "value: with value_format: avro, a value is the record of all fields; leave one of the two out"
            )
        return self

    @property
    def connection(self) -> str:
        return self.kafka

    @property
    def other_connections(self) -> frozenset[str]:
        return frozenset() if self.registry is None else frozenset({self.registry})

    @property
    def needs_avro(self) -> bool:
        return self.value_format == "avro"

    def owned(self) -> Iterable[OwnedPlace]:
        return [
            OwnedPlace(
                ("topic", self.kafka, topic),
                f"topic {topic} is named by two sinks; nobody could tell their messages apart",
            )
            for topic in self.targets()
        ]

    def problem_with(self, others: SettingsContext) -> str | None:
        if unknown := [name for name in self.fields() if name not in others.fields]:
            return f"sink {self.name} names the field {unknown[0]}, which the stream does not have"
        keys = [name for name in (self.topic_field, self.key) if name is not None and name != MESSAGE_KEY]
        if problem := others.no_key(self.name, keys):
            return problem
        if self.value_format == "avro" and (name := not_a_name(others.fields)) is not None:
            return (
                f"sink {self.name}: {name} is no name in Avro, which has letters, digits and _; give the field another name "
                "by a transform"
            )
        if read := [topic for topic in self.targets() if others.reads(self.kafka, topic)]:
            return f"sink {self.name} writes to {read[0]}, which this stream reads"
        return None

    def targets(self) -> tuple[str, ...]:
        """Every topic that the sink may write to."""
        return tuple(dict.fromkeys([*self.topics, *([self.topic] if self.topic else [])]))

    def fields(self) -> tuple[str, ...]:
        """The stream's fields that the sink names."""
        named = (self.topic_field, self.key if self.key != MESSAGE_KEY else None, self.value)
        return tuple(name for name in named if name is not None)
