"""The part `source` of a stream file: what is read, where it begins, and what to do when Kafka has changed."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from tidemark.offsets.times import two_readings
from tidemark.settings.parts import ConnectionName, Items, Part, Topic, form
from tidemark.streams.fetch import FetchSettings


def _python_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise ValueError(f"not a regular expression: {problem}") from problem
    return text


# For the names of topics.
PythonRegex = Annotated[str, Field(min_length=1, max_length=249), AfterValidator(_python_regex)]


PartitionName = Annotated[str, form(r"^[A-Za-z0-9._-]{1,249}/[0-9]{1,10}$", "a partition, as topic/0")]


class StartTime(Part):
    """The first message at or after a time, for each partition by itself; `if_none` where there is no such message."""

    time: Annotated[AwareDatetime, Field(description="A time with its zone.")]
    if_none: Literal["fail", "end"] = Field(
        default="fail", description="`end`: a partition without a message at or after the time begins at its end."
    )


class StartOffsets(Part):
    """An offset for each `topic/partition`; `others` for the partitions that are not named."""

    offsets: Annotated[
        dict[PartitionName, Annotated[int, Field(ge=0, le=2**63 - 2)]],
        Field(min_length=1, description="The first offset to read, for each `topic/partition`."),
    ]
    others: Literal["earliest", "latest"] = Field(default="earliest", description="Where the other partitions begin.")


def _start(given: object) -> object:
    """A time may stand alone, as text or as YAML reads it. A number is not read as a time."""
    if isinstance(given, dict) and "time" in given:
        return {**given, "time": _time(given["time"])}
    if isinstance(given, dict) or given in ("earliest", "latest"):
        return given
    return {"time": _time(given)}


def _time(given: object) -> object:
    if isinstance(given, bool | int | float):
        raise ValueError(two_readings(given))
    if isinstance(given, str):
        try:
            return datetime.fromisoformat(given)
        except ValueError:
            raise ValueError(
                "expected earliest, latest, a time with its zone like 2026-11-21T07:00:00Z, or offsets"
            ) from None
    return given


def _start_type(given: object) -> str | None:
    if isinstance(given, str):
        return "word"
    keys = given.keys() if isinstance(given, dict) else set()
    return "offsets" if "offsets" in keys or isinstance(given, StartOffsets) else "time"


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("word")]
    | Annotated[StartTime, Tag("time")]
    | Annotated[StartOffsets, Tag("offsets")],
    Discriminator(_start_type),
    BeforeValidator(_start, json_schema_input_type=Literal["earliest", "latest"] | datetime | StartTime | StartOffsets),
]


OnOutOfRange = Literal["fail", "earliest", "latest"]
OnChange = Literal["fail", "accept"]
OnDeleted = Literal["fail", "leave"]


class TopicPolicies(Part):
    """The policy for one topic when Kafka no longer has what the ledger knows; what is not said is as for the others."""

    on_out_of_range: OnOutOfRange | None = Field(default=None, description="As under `source`, for this topic.")
    on_recreated: OnChange | None = Field(default=None, description="As under `source`, for this topic.")
    on_truncated: OnChange | None = Field(default=None, description="As under `source`, for this topic.")
    on_deleted: OnDeleted | None = Field(default=None, description="As under `source`, for this topic.")


class Source(Part):
    """Where the messages come from. `start` counts only until the lane has a position.

    Exactly one of `topics`, `pattern` and `partitions` says what is read.
    """

    kafka: ConnectionName = Field(
        default="kafka_default",
        description="The connection, with TLS and a login if Kafka needs them: [kafka-security.md](kafka-security.md).",
    )
    topics: Annotated[Items[Topic], Field(min_length=1)] | None = Field(
        default=None, description="The names of the topics."
    )
    pattern: PythonRegex | None = Field(
        default=None,
        description="A regular expression (Python's) for whole names of topics. Names that begin with `__` never match. Each "
        "plan looks up the topics again.",
    )
    exclude: Items[PythonRegex] = Field(
        default=(), description="Regular expressions for the whole names of topics that `pattern` leaves out."
    )
    partitions: (
        Annotated[
            dict[Topic, Annotated[Items[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1)]],
            Field(min_length=1),
        ]
        | None
    ) = Field(default=None, description="`{orders: [0, 3]}`: only these partitions of these topics.")
    start: Start = Field(
        default="earliest",
        description="Where the ingest begins: [below](#start). It applies until the lane has a position.",
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed", description="Planning and reading use the same isolation level."
    )
    fetch: FetchSettings = Field(
        default=FetchSettings(), description="The consumer's settings, by Kafka's names: [below](#fetch)."
    )
    export_group: (
        Annotated[str, form(r"^[A-Za-z0-9._-]{1,200}$", "a group: letters, digits, dots, _ and -, at most 200 long")]
        | None
    ) = Field(
        default=None,
        description="A consumer group that shows the committed offsets to lag monitors. It must have no members "
        "([migrating.md](migrating.md#for-tools-that-read-offsets)).",
    )
    # The ledger records lost offsets and every accepted change.
    on_out_of_range: OnOutOfRange = Field(
        default="fail",
        description="When retention or DeleteRecords removed offsets before they were read. `earliest`, `latest`: continue "
        "at the first or the last available offset; the rest is lost or skipped.",
    )
    on_recreated: OnChange = Field(
        default="fail",
        description="When a topic was deleted and recreated. Its id shows this even if its offsets look valid. `accept`: "
        "read it as a new incarnation, from its log start.",
    )
    on_truncated: OnChange = Field(
        default="fail",
        description="When a log was truncated below the position (a restored disk, an unclean election). Leader epochs show "
        "this even if the log has grown again. `accept`: continue from the cut, as a new incarnation.",
    )
    on_deleted: OnDeleted = Field(
        default="fail",
        description="When a topic that was read no longer exists. `leave`: keep its position, and read the other topics.",
    )
    by_topic: dict[Topic, TopicPolicies] = Field(
        default_factory=dict, description="`{orders: {on_recreated: accept}}`: these policies for one topic."
    )

    @model_validator(mode="after")
    def _one_way(self) -> Source:
        ways = [name for name in ("topics", "pattern", "partitions") if getattr(self, name) is not None]
        if len(ways) != 1:
            said = " and ".join(ways) or "none of them"
            raise ValueError(f"expected one of topics, pattern and partitions, found {said}")
        if self.exclude and self.pattern is None:
            raise ValueError("exclude goes with pattern")
        return self

    @model_validator(mode="after")
    def _once(self) -> Source:
        named = self.named()
        if len(set(named)) < len(named):
            raise ValueError("a topic is named twice")
        if bad := {".", ".."} & set(named):
            raise ValueError(f"{bad.pop()!r} is not a topic name")
        for topic, numbers in (self.partitions or {}).items():
            if len(set(numbers)) < len(numbers):
                raise ValueError(f"partitions: one of {topic} is named twice")
        offsets = self.start.offsets if isinstance(self.start, StartOffsets) else {}
        for key, topics in (
            ("start.offsets", {name.rpartition("/")[0] for name in offsets}),
            ("by_topic", self.by_topic),
        ):
            if others := sorted(topic for topic in topics if not self.reads(topic)):
                raise ValueError(f"{key} names {others[0]}, which is not among the topics")
        return self

    def named(self) -> tuple[str, ...]:
        """The topics that the stream file names; none with a pattern."""
        return self.topics or tuple(self.partitions or ())

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is read. Kafka's own topics never match a pattern."""
        if self.pattern is None:
            return topic in self.named()
        if topic.startswith("__") or not re.fullmatch(self.pattern, topic):
            return False
        return not any(re.fullmatch(one, topic) for one in self.exclude)
