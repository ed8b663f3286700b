"""What a stream file may say. Strict: unknown keys are refused, `"5"` is not 5, and nothing is guessed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.delta_sink import DeltaSink
from tidemark.streams.explode import Explode
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.latest_sink import HBaseLatestSink
from tidemark.streams.parquet_sink import ParquetSink
from tidemark.streams.parts import (
    MOST_CELL_BYTES,
    CellBytes,
    ConnectionName,
    FieldName,
    Items,
    Name,
    Part,
    Regions,
    Table,
)
from tidemark.streams.retry import Retry
from tidemark.streams.schemes import AvroScheme, Fields, FunctionScheme, Scheme
from tidemark.streams.source import Source
from tidemark.streams.transform import Transform


class Check(Part):
    """A Spark SQL condition under which a message that parsed is invalid all the same."""

    invalid_when: Annotated[str, Field(min_length=1)]
    reason: Annotated[str, Field(min_length=1, max_length=200)]


class HBaseSink(Part):
    """A row for each result row, by coordinate. What it says besides its name counts when the table is made."""

    type: Literal["hbase"]
    name: Name = "hbase"
    hbase: ConnectionName = "hbase_default"
    table: Table
    max_cell_bytes: CellBytes = MOST_CELL_BYTES
    # Field to qualifier; a field that is not named has its own name.
    columns: dict[FieldName, FieldName] = Field(default_factory=dict)
    # All fields in one cell.
    packed: bool = False
    regions: Regions = 1

    @model_validator(mode="after")
    def _cells(self) -> HBaseSink:
        if self.packed and self.columns:
            raise ValueError("packed and columns exclude each other: in a packed cell the fields have their own names")
        return self


Sink = Annotated[
    HBaseSink | HBaseLatestSink | HBaseAggregatesSink | ParquetSink | DeltaSink | KafkaSink, Field(discriminator="type")
]


class DeadLetters(Part):
    """The HBase table of the messages that were set aside.

    `max_redrives`: how often a redrive takes the same message. Of a message, what is larger than `max_cell_bytes` is left out.
    """

    hbase: ConnectionName = "hbase_default"
    table: Table
    max_redrives: Annotated[int, Field(ge=0)] = 3
    max_cell_bytes: CellBytes = MOST_CELL_BYTES

    @property
    def most_bytes(self) -> int:
        """Of a part of a message, without what a cell is made of beside its value."""
        return max(self.max_cell_bytes - 1_024, self.max_cell_bytes // 2)


class HBaseLedger(Part):
    """Where the ledger is; `offsets_table` is the layout that other tools read, null for none."""

    type: Literal["hbase"] = "hbase"
    hbase: ConnectionName = "hbase_default"
    table: Table = "tidemark_ledger"
    offsets_table: Table | None = "stream_kafka_offsets"


NodePath = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", max_length=200)]


class ZooKeeperLedger(Part):
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


class MaxInvalid(Part):
    """The most invalid messages of a window: how many, which share of what it reads, or both."""

    number: Annotated[int, Field(ge=0)] | None = None
    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _either(self) -> MaxInvalid:
        if self.number is None and self.share is None:
            raise ValueError("give `number`, `share` or both; without a limit, leave max_invalid out")
        return self


class Limits(Part):
    """`max_records`, `max_bytes`: the most that one window reads; a run goes on, window after window, to the end that it saw.

    `max_behind`: how far behind the end a run may begin, per partition; what lies before that is skipped, and named in the
    ledger. `warn_retention_hours`: how long before Kafka deletes an unread offset it is said. `max_invalid`: a window with
    more invalid messages fails.
    """

    max_records: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[int, Field(ge=1)] | None = None
    max_behind: Annotated[int, Field(ge=1)] | None = None
    # A day: somebody sees it during working hours, and it is far below the seven days that Kafka keeps by default.
    warn_retention_hours: Annotated[int, Field(ge=0)] = 24
    max_invalid: MaxInvalid | None = None


class Schedule(Part):
    cron: str = "0 * * * *"
    timezone: str = "UTC"


class Engine(Part):
    """How Airflow runs the Spark jobs. With `master`, any other resolved master is refused."""

    spark: ConnectionName = "spark_default"
    master: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    pool: str = "default_pool"
    retries: Annotated[int, Field(ge=0, le=100)] = 3
    retry_delay_seconds: Annotated[int, Field(ge=1)] = 60
    timeout_minutes: Annotated[int, Field(ge=1)] = 50


class Stream(Part):
    """A stream file."""

    stream: Name
    description: str = ""
    source: Source
    explode: Explode | None = None
    scheme: Scheme
    retry: Retry = Retry()
    checks: Items[Check] = ()
    transform: Transform | None = None
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
        tables = [
            sink.table for sink in self.sinks if isinstance(sink, HBaseSink | HBaseLatestSink | HBaseAggregatesSink)
        ]
        tables.append(self.dead_letters.table)
        if isinstance(self.ledger, HBaseLedger):
            tables += [table for table in (self.ledger.table, self.ledger.offsets_table) if table]
        if len(set(tables)) < len(tables):
            raise ValueError(f"table {max(tables, key=tables.count)!r} is named for two purposes")
        return self

    @model_validator(mode="after")
    def _function_alone(self) -> Stream:
        if self.explode is not None and isinstance(self.scheme, FunctionScheme):
            raise ValueError("explode: a function of your own gives as many rows as it likes; leave explode out")
        if self.explode is not None and isinstance(self.scheme, AvroScheme):
            raise ValueError("explode: an Avro record is no text that could be split")
        return self

    @model_validator(mode="after")
    def _retries_something(self) -> Stream:
        if "retry" in self.model_fields_set and not isinstance(self.scheme, FunctionScheme):
            raise ValueError(f"retry: nothing of scheme {self.scheme.type} is tried again, only a function of your own")
        return self

    @model_validator(mode="after")
    def _topics_apart(self) -> Stream:
        taken: set[tuple[str, str]] = set()
        for sink in self.sinks:
            if not isinstance(sink, KafkaSink):
                continue
            if unknown := [name for name in sink.fields() if name not in self.fields]:
                raise ValueError(f"sink {sink.name} names the field {unknown[0]}, which the stream does not have")
            for topic in sink.targets():
                if sink.kafka == self.source.kafka and self.source.reads(topic):
                    raise ValueError(f"sink {sink.name} writes to {topic}, which this stream reads")
                if (sink.kafka, topic) in taken:
                    raise ValueError(f"topic {topic} is named by two sinks; nobody could tell their messages apart")
                taken.add((sink.kafka, topic))
        return self

    @model_validator(mode="after")
    def _folders_apart(self) -> Stream:
        taken: set[tuple[str, str]] = set()
        for sink in self.sinks:
            if not isinstance(sink, ParquetSink | DeltaSink):
                continue
            if isinstance(sink, ParquetSink) and (problem := sink.problem_with(self.fields)):
                raise ValueError(problem)
            if (sink.files, sink.folder) in taken:
                raise ValueError(f"folder {sink.folder!r} is named by two sinks; give each its own")
            taken.add((sink.files, sink.folder))
        return self

    @model_validator(mode="after")
    def _columns(self) -> Stream:
        for sink in self.sinks:
            if not isinstance(sink, HBaseSink):
                continue
            if unknown := [name for name in sink.columns if name not in self.fields]:
                raise ValueError(f"sink {sink.name}: columns names {unknown[0]}, which the stream does not have")
            named = [sink.columns.get(name, name) for name in self.fields]
            if twice := [name for name in named if named.count(name) > 1]:
                raise ValueError(f"sink {sink.name}: two fields would be in the column {twice[0]}")
        return self

    @model_validator(mode="after")
    def _keys(self) -> Stream:
        for sink in self.sinks:
            if not isinstance(sink, HBaseLatestSink):
                continue
            if unknown := [name for name in sink.key if name not in self.fields]:
                raise ValueError(f"sink {sink.name} names the field {unknown[0]}, which the stream does not have")
            if self.guarantee == "none":
                raise ValueError(
                    f"sink {sink.name}: with guarantee none every run writes everything once more, and a version has "
                    "room for 16,383 such attempts; use at_least_once"
                )
        return self

    @model_validator(mode="after")
    def _aggregates(self) -> Stream:
        for sink in self.sinks:
            if not isinstance(sink, HBaseAggregatesSink):
                continue
            if problem := sink.problem_with(self.fields):
                raise ValueError(problem)
            if self.guarantee == "none":
                raise ValueError(
                    f"sink {sink.name}: with guarantee none windows read the same offsets again, and each would add to the "
                    "aggregates; use at_least_once"
                )
        return self

    @model_validator(mode="after")
    def _read_before_the_commit(self) -> Stream:
        if self.guarantee == "at_most_once" and self.limits.max_invalid is not None:
            raise ValueError(
                "limits.max_invalid: under at_most_once a window is committed before it is read, so that no number of "
                "invalid messages can keep it from being committed; leave max_invalid out, or use at_least_once"
            )
        return self

    @property
    def fields(self) -> Fields:
        """The fields of the result rows and their types, in the order that digests are taken in."""
        return self.scheme.fields if self.transform is None else self.transform.declared()

    def connections(self) -> set[str]:
        """The names of all connections that the stream uses, Spark's aside."""
        ledger = self.ledger.hbase if isinstance(self.ledger, HBaseLedger) else self.ledger.zookeeper
        used = {self.source.kafka, self.dead_letters.hbase, ledger}
        if isinstance(self.scheme, AvroScheme) and self.scheme.registry is not None:
            used.add(self.scheme.registry)
        return used | {_connection_of(sink) for sink in self.sinks}


def _connection_of(sink: Sink) -> str:
    match sink:
        case HBaseSink() | HBaseLatestSink() | HBaseAggregatesSink():
            return sink.hbase
        case ParquetSink() | DeltaSink():
            return sink.files
        case KafkaSink():
            return sink.kafka
