"""What a stream file may say. Strict: unknown keys are refused, `"5"` is not 5, and nothing is guessed."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    model_validator,
)

from tidemark.times import two_readings

T = TypeVar("T")

# YAML knows lists only; here they become immutable.
Items = Annotated[tuple[T, ...], Strict(False)]

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Table = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
ConnectionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,99}$")]
# A column of a table and of a file: what HBase takes as a qualifier, Parquet as a column and SQL between backticks.
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]


def _java_regex(text: str) -> str:
    """Java's syntax, as Spark's; what both Java and Python know is checked here, the rest when Spark compiles it."""
    try:
        re.compile(re.sub(r"\(\?<([A-Za-z])", r"(?P<\1", text))
    except re.error as problem:
        raise ValueError(f"not a regular expression: {problem}") from problem
    return text


Regex = Annotated[str, AfterValidator(_java_regex)]


def _python_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise ValueError(f"not a regular expression: {problem}") from problem
    return text


# For the names of topics.
PythonRegex = Annotated[str, Field(min_length=1, max_length=249), AfterValidator(_python_regex)]
FieldType = Literal["string", "integer", "double", "timestamp", "boolean"]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


PartitionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}/[0-9]{1,10}$")]


class StartTime(_Part):
    """The first message at or after a time, for each partition by itself; `if_none` where there is no such message."""

    time: AwareDatetime
    if_none: Literal["fail", "end"] = "fail"


class StartOffsets(_Part):
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


class TopicPolicies(_Part):
    """What to do, for one topic, when Kafka no longer has what the ledger knows; what is not said is as for the others."""

    on_out_of_range: OnOutOfRange | None = None
    on_recreated: OnChange | None = None
    on_truncated: OnChange | None = None
    on_deleted: OnDeleted | None = None


class Source(_Part):
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
    # A consumer group that shows the committed offsets to other tools; nobody may be a member of it.
    export_group: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] | None = None
    # What to do when Kafka has removed offsets before they were read, or has another topic or log than the one that was read.
    # What is lost, and every change that is accepted, stands in the ledger.
    on_out_of_range: OnOutOfRange = "fail"
    on_recreated: OnChange = "fail"
    on_truncated: OnChange = "fail"
    on_deleted: OnDeleted = "fail"
    by_topic: dict[Topic, TopicPolicies] = {}

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


class Pattern(_Part):
    """One form that a line may have: its groups, in order, are the named fields."""

    name: FieldName
    regex: Regex
    fields: Annotated[Items[FieldName], Field(min_length=1)]
    # How this form writes its timestamps, in the words of Spark's datetime patterns.
    timestamp: str | None = None

    @model_validator(mode="after")
    def _as_many(self) -> Pattern:
        groups = re.compile(re.sub(r"\(\?<([A-Za-z])", r"(?P<\1", self.regex)).groups
        if groups != len(self.fields):
            raise ValueError(f"the regex has {groups} groups, and {len(self.fields)} fields are named")
        return self


class RegexScheme(_Part):
    """UTF-8 text that matches one of several patterns; the first that matches gives the fields."""

    type: Literal["regex"]
    fields: Annotated[dict[FieldName, FieldType], Field(min_length=1)]
    patterns: Annotated[Items[Pattern], Field(min_length=1)]

    @model_validator(mode="after")
    def _known_fields(self) -> RegexScheme:
        for pattern in self.patterns:
            if set(pattern.fields) != set(self.fields) or len(pattern.fields) != len(self.fields):
                missing = sorted(set(self.fields) ^ set(pattern.fields))
                raise ValueError(
                    f"pattern {pattern.name} and `fields` do not name the same fields once each: {missing}"
                )
            if "timestamp" in self.fields.values() and pattern.timestamp is None:
                raise ValueError(f"pattern {pattern.name} needs `timestamp`, the form of its times")
        return self


class JsonScheme(_Part):
    """A JSON object a message; keys that are not named are passed over, a value of another type is invalid."""

    type: Literal["json"]
    fields: Annotated[dict[FieldName, FieldType], Field(min_length=1)]


Scheme = Annotated[RegexScheme | JsonScheme, Field(discriminator="type")]


class Check(_Part):
    """A Spark SQL condition under which a message that parsed is invalid all the same."""

    invalid_when: Annotated[str, Field(min_length=1)]
    reason: Annotated[str, Field(min_length=1, max_length=200)]


class HBaseSink(_Part):
    """A row for each result row, by coordinate."""

    type: Literal["hbase"]
    name: Name = "hbase"
    hbase: ConnectionName = "hbase_default"
    table: Table


class ParquetSink(_Part):
    """A folder for each window and attempt, below the connection's path."""

    type: Literal["parquet"]
    name: Name = "parquet"
    files: ConnectionName = "lake_default"
    folder: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*$")]


Sink = Annotated[HBaseSink | ParquetSink, Field(discriminator="type")]


class DeadLetters(_Part):
    """The HBase table of the messages that were set aside."""

    hbase: ConnectionName = "hbase_default"
    table: Table


class HBaseLedger(_Part):
    """Where the ledger is; `offsets_table` is the layout that other tools read, null for none."""

    type: Literal["hbase"] = "hbase"
    hbase: ConnectionName = "hbase_default"
    table: Table = "tidemark_ledger"
    offsets_table: Table | None = "stream_kafka_offsets"


NodePath = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", max_length=200)]


class ZooKeeperLedger(_Part):
    """The ledger in ZooKeeper. `consumers` and `storm` are roots of offset nodes that other tools read, null for none."""

    type: Literal["zookeeper"]
    zookeeper: ConnectionName = "zookeeper_default"
    path: NodePath = "/tidemark"
    consumers: NodePath | None = "/consumers"
    storm: NodePath | None = None


def _ledger_type(given: object) -> object:
    return given.get("type", "hbase") if isinstance(given, dict) else getattr(given, "type", None)


Ledger = Annotated[
    Annotated[HBaseLedger, Tag("hbase")] | Annotated[ZooKeeperLedger, Tag("zookeeper")], Discriminator(_ledger_type)
]


class Limits(_Part):
    """`max_records`, `max_bytes`: the most that one window reads; a run goes on, window after window, to the end that it saw.

    `max_behind`: how far behind the end a run may begin, per partition; what lies before that is skipped, and named in the
    ledger. `warn_retention_hours`: how long before Kafka deletes an unread offset it is said.
    """

    max_records: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[int, Field(ge=1)] | None = None
    max_behind: Annotated[int, Field(ge=1)] | None = None
    # A day: somebody sees it during working hours, and it is far below the seven days that Kafka keeps by default.
    warn_retention_hours: Annotated[int, Field(ge=0)] = 24


class Schedule(_Part):
    cron: str = "0 * * * *"
    timezone: str = "UTC"


class Engine(_Part):
    """How Airflow runs the Spark jobs. With `master`, any other resolved master is refused."""

    spark: ConnectionName = "spark_default"
    master: str | None = None
    conf: dict[str, str] = {}
    pool: str = "default_pool"
    retries: Annotated[int, Field(ge=0, le=100)] = 3
    retry_delay_seconds: Annotated[int, Field(ge=1)] = 60
    timeout_minutes: Annotated[int, Field(ge=1)] = 50


class Stream(_Part):
    """A stream file."""

    stream: Name
    description: str = ""
    source: Source
    scheme: Scheme
    checks: Items[Check] = ()
    sinks: Annotated[Items[Sink], Field(min_length=1)]
    dead_letters: DeadLetters
    ledger: Ledger = HBaseLedger()
    limits: Limits = Limits()
    # What a crash may cost, see docs/stream-files.md.
    guarantee: Literal["at_least_once", "at_most_once", "none"] = "at_least_once"
    schedule: Schedule = Schedule()
    engine: Engine = Engine()

    @model_validator(mode="after")
    def _sinks_apart(self) -> Stream:
        names = [sink.name for sink in self.sinks]
        if len(set(names)) < len(names):
            raise ValueError(f"sinks: two have the name {max(names, key=names.count)!r}; give each its own")
        tables = [sink.table for sink in self.sinks if isinstance(sink, HBaseSink)]
        tables.append(self.dead_letters.table)
        if isinstance(self.ledger, HBaseLedger):
            tables += [table for table in (self.ledger.table, self.ledger.offsets_table) if table]
        if len(set(tables)) < len(tables):
            raise ValueError(f"table {max(tables, key=tables.count)!r} is named for two purposes")
        return self

    def connections(self) -> set[str]:
        """The names of all connections that the stream uses, Spark's aside."""
        ledger = self.ledger.hbase if isinstance(self.ledger, HBaseLedger) else self.ledger.zookeeper
        used = {self.source.kafka, self.dead_letters.hbase, ledger}
        return used | {sink.hbase if isinstance(sink, HBaseSink) else sink.files for sink in self.sinks}
