"""What a stream file may say of a sink in Kafka."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from tidemark.streams.parts import ConnectionName, FieldName, Items, Name, Part, Topic

# The key of the message itself, where a stream's own fields begin with a letter.
MESSAGE_KEY = "_key"


class ProducerSettings(Part):
    """The producer's settings that may be given, by Kafka's own names; all others are refused.

    What decides whether a message is acknowledged, where it goes and who may see it is not for a stream file to change.
    """

    model_config = ConfigDict(validate_by_alias=True, validate_by_name=False)

    acks: Literal["all"] = "all"
    # The others that Kafka knows need libraries that are not among the requirements.
    compression_type: Annotated[Literal["none", "gzip"], Field(alias="compression.type")] = "none"
    # Long enough to fill a batch, and nothing beside the time that a window takes.
    linger_ms: Annotated[int, Field(alias="linger.ms", ge=0, le=60_000)] = 20
    batch_size: Annotated[int, Field(alias="batch.size", ge=1, le=16_777_216)] = 131_072
    max_request_size: Annotated[int, Field(alias="max.request.size", ge=1_024, le=1_073_741_824)] = 1_048_576
    request_timeout_ms: Annotated[int, Field(alias="request.timeout.ms", ge=1_000, le=600_000)] = 30_000
    delivery_timeout_ms: Annotated[int, Field(alias="delivery.timeout.ms", ge=1_000, le=3_600_000)] = 120_000

    @model_validator(mode="after")
    def _in_time(self) -> ProducerSettings:
        # Kafka's own rule for producers.
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ValueError("delivery.timeout.ms has to be at least linger.ms and request.timeout.ms together")
        return self


class KafkaSink(Part):
    """A message for each result row: in `topic`, or in that of `topics` which the row's `topic_field` names."""

    type: Literal["kafka"]
    name: Name = "kafka"
    kafka: ConnectionName = "kafka_default"
    topic: Topic | None = None
    topic_field: FieldName | None = None
    # As many as the receipt of a window has room for.
    topics: Annotated[Items[Topic], Field(max_length=16)] = ()
    # A field, the key of the message itself, or none.
    key: Annotated[str, Field(pattern=r"^([A-Za-z][A-Za-z0-9_-]{0,62}|_key)$")] | None = None
    # A field; without one, all of them as JSON.
    value: FieldName | None = None
    settings: ProducerSettings = ProducerSettings()

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

    def targets(self) -> tuple[str, ...]:
        """Every topic that the sink may write to."""
        return tuple(dict.fromkeys([*self.topics, *([self.topic] if self.topic else [])]))

    def fields(self) -> tuple[str, ...]:
        """The stream's fields that the sink names."""
        named = (self.topic_field, self.key if self.key != MESSAGE_KEY else None, self.value)
        return tuple(name for name in named if name is not None)
