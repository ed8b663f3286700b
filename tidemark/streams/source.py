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

from tidemark.streams.fetch import FetchSettings
from tidemark.streams.parts import ConnectionName, Items, Part, Topic
from tidemark.times import two_readings


def _python_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise ValueError(f"not a regular expression: {problem}") from problem
    return text


# For the names of topics.
PythonRegex = Annotated[str, Field(min_length=1, max_length=249), AfterValidator(_python_regex)]


PartitionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}/[0-9]{1,10}$")]


class StartTime(Part):
    """The first message at or after a time, for each partition by itself; `if_none` where there is no such message."""

    time: AwareDatetime
    if_none: Literal["fail", "end"] = "fail"


class StartOffsets(Part):
    """An offset for each `topic/partition`; `others` for the partitions that are not named."""

    offsets: Annotated[dict[PartitionName, Annotated[int, Field(ge=0, le=2**63 - 2)]], Field(min_length=1)]
    others: Literal["earliest", "latest"] = "earliest"


def _start(given: object) -> object:
    """A time may stand by itself, as text or as YAML reads it. A number is not taken for one."""
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
    BeforeValidator(_start),
]


OnOutOfRange = Literal["fail", "earliest", "latest"]
OnChange = Literal["fail", "accept"]
OnDeleted = Literal["fail", "leave"]


class TopicPolicies(Part):
    """What to do, for one topic, when Kafka no longer has what the ledger knows; what is not said is as for the others."""

    on_out_of_range: OnOutOfRange | None = None
    on_recreated: OnChange | None = None
    on_truncated: OnChange | None = None
    on_deleted: OnDeleted | None = None


class Source(Part):
    """Where the messages come from. `start` counts only until the lane has a position.

    Exactly one of `topics`, `pattern` and `partitions` says what is read.
    """

    kafka: ConnectionName = "kafka_default"
    topics: Annotated[Items[Topic], Field(min_length=1)] | None = None
    # Topics whose whole name matches, but for those that match one of `exclude`.
    pattern: PythonRegex | None = None
    exclude: Items[PythonRegex] = ()
    # Only these partitions of these topics.
    partitions: (
        Annotated[
            dict[Topic, Annotated[Items[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1)]],
            Field(min_length=1),
        ]
        | None
    ) = None
    start: Start = "earliest"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    fetch: FetchSettings = FetchSettings()
    # A consumer group that shows the committed offsets to other tools; nobody may be a member of it.
    export_group: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] | None = None
    # What to do when Kafka has removed offsets before they were read, or has another topic or log than the one that was read.
    # What is lost, and every change that is accepted, stands in the ledger.
    on_out_of_range: OnOutOfRange = "fail"
    on_recreated: OnChange = "fail"
    on_truncated: OnChange = "fail"
    on_deleted: OnDeleted = "fail"
    by_topic: dict[Topic, TopicPolicies] = Field(default_factory=dict)

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
        """The topics that are named; of a pattern, none."""
        return self.topics or tuple(self.partitions or ())

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is read. Kafka's own topics never match a pattern."""
        if self.pattern is None:
            return topic in self.named()
        if topic.startswith("__") or not re.fullmatch(self.pattern, topic):
            return False
        return not any(re.fullmatch(one, topic) for one in self.exclude)
