"""The model of a stream file. Strict: unknown keys are refused, `"5"` is not 5, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from tidemark.ledger.stores.kind import LedgerSettings
from tidemark.ledger.stores.kinds import KINDS as LEDGER_KINDS
from tidemark.ledger.stores.settings import SQLLedger
from tidemark.schemes.kinds import Fields, FunctionScheme, JsonScheme, SchemeWithSchemas
from tidemark.schemes.union import Scheme
from tidemark.settings.parts import FieldName, FunctionName, Items, Name, Part, Text
from tidemark.sinks.contract import SettingsContext, SinkSettings
from tidemark.sinks.dead_letters.contract import DeadLetterSettings
from tidemark.sinks.dead_letters.kinds import KINDS as DEAD_LETTER_KINDS
from tidemark.sinks.kinds import KINDS
from tidemark.streams.alarm import Alarm
from tidemark.streams.audits import Audits
from tidemark.streams.conditions import Condition
from tidemark.streams.decompress import Decompress
from tidemark.streams.engine import Engine
from tidemark.streams.event_time import EventTime
from tidemark.streams.explode import Explode
from tidemark.streams.places import problem_within, written
from tidemark.streams.record_tables import RecordTable
from tidemark.streams.retry import Retry
from tidemark.streams.schedule import Schedule
from tidemark.streams.source import Source
from tidemark.streams.transform import Transform


class Check(Part):
    """A Spark SQL condition under which a message that parsed is invalid all the same."""

    invalid_when: Condition
    reason: Annotated[str, Field(min_length=1, max_length=200, description="The reason of its dead letter.")]


if TYPE_CHECKING:
    Sink = SinkSettings
else:
    Sink = Annotated[Union[tuple(kind.settings for kind in KINDS.values())], Field(discriminator="type")]  # noqa: UP007


# As Airflow's `DAG(access_control=...)`: role, resource, actions.
AccessControl = dict[
    Annotated[Text, Field(min_length=1)],
    dict[Literal["DAGs", "DAG Runs"], Items[Literal["can_read", "can_create", "can_edit", "can_delete"]]],
]


def _type_or(usual: str) -> Callable[[object], object]:
    """The type that a part of a stream file says, or else the usual one."""
    return lambda given: given.get("type", usual) if isinstance(given, dict) else getattr(given, "type", None)


if TYPE_CHECKING:
    DeadLetters = DeadLetterSettings
    AnyLedger = LedgerSettings
else:
    _DEAD_LETTERS = tuple(Annotated[kind.settings, Tag(type_)] for type_, kind in DEAD_LETTER_KINDS.items())
    DeadLetters = Annotated[Union[_DEAD_LETTERS], Discriminator(_type_or("delta"))]  # noqa: UP007
    _LEDGERS = tuple(Annotated[kind.settings, Tag(type_)] for type_, kind in LEDGER_KINDS.items())
    AnyLedger = Annotated[Union[_LEDGERS], Discriminator(_type_or("sql"))]  # noqa: UP007


def _listed(given: object) -> object:
    return [given] if isinstance(given, str) else given


class MaxInvalid(Part):
    """The most invalid messages of a window: how many, which share of what it reads, or both."""

    number: Annotated[int, Field(ge=0)] | None = Field(default=None, description="At most this many messages.")
    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        default=None,
        description="At most this share of the messages that the window reads. The share of a window that reads nothing is 0.",
    )

    @model_validator(mode="after")
    def _either(self) -> MaxInvalid:
        if self.number is None and self.share is None:
            raise ValueError("give `number`, `share` or both; without a limit, leave max_invalid out")
        return self


class Limits(Part):
    """The bounds of a window, and when Tidemark warns."""

    max_records: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The most offsets of one window. A run continues with the next window. Without this key, a window of a "
        "replay, backfill or erasure takes up to 5,000,000.",
    )
    max_bytes: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The approximate size of one window, in bytes of keys and values, divided among the partitions in "
        "proportion to their lag.",
    )
    max_behind: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The greatest lag of a partition, in offsets, when a run begins. The run skips older offsets, and the "
        "ledger records them.",
    )
    max_records_per_second: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The most offsets per second that a [replay or backfill](replay.md#how-fast) reads on average.",
    )
    approve_above: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="A replay, backfill or erasure of more offsets needs [approval](replay.md#approval) by a second person.",
    )
    # A day: it falls into working hours, and is far below the seven days that Kafka keeps by default.
    warn_retention_hours: Annotated[
        int,
        Field(
            ge=0,
            description="Tidemark [warns](retention.md) this long before Kafka may delete the next unread offset.",
        ),
    ] = 24
    max_invalid: MaxInvalid | None = Field(
        default=None, description="The error budget of a window: `{number: 100}`, `{share: 0.05}`, or both."
    )


class Stream(Part):
    """A stream file."""

    name: Annotated[
        Name,
        Field(
            alias="stream",
            description="The stream's name: lower case letters, digits and `_`. It is part of the DAGs' names and of all that "
            "is stored, so a renamed stream is another stream.",
        ),
    ]
    description: Annotated[Text, Field(max_length=2_000, description="A one-line description for people.")] = ""
    owner: Annotated[Text, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="The owner of the stream's tasks in Airflow."
    )
    tags: Items[Annotated[Text, Field(min_length=1, max_length=100)]] = Field(
        default=(), description="Tags of the stream's DAGs, in addition to `tidemark` and the stream's name."
    )
    access_control: AccessControl = Field(
        default_factory=dict,
        description="Rights of roles on the stream's DAGs, in addition to their rights on all DAGs: [below](#access_control).",
    )
    on_failure: FunctionName | None = Field(
        default=None, description="Called after a failed run of any of the stream's DAGs: [below](#callbacks)."
    )
    on_success: FunctionName | None = Field(
        default=None, description="Called after a successful run of any of the stream's DAGs: [below](#callbacks)."
    )
    source: Annotated[
        Source,
        Field(description="Topics, where to begin, and policies for changes in Kafka: [source.md](source.md)."),
    ]
    decompress: Decompress | None = Field(
        default=None, description="How the sender has compressed each value: [schemes.md](schemes.md#decompress)."
    )
    explode: Explode | None = Field(
        default=None, description="One message to many rows: [schemes.md](schemes.md#explode)."
    )
    scheme: Annotated[
        Scheme,
        Field(description="How the bytes of a message become fields: [below](#scheme), [schemes.md](schemes.md)."),
    ]
    retry: Retry = Field(default=Retry(), description="Retries of a function: [functions.md](functions.md#retry).")
    checks: Items[Check] = Field(
        default=(),
        description="Conditions that make a message invalid: [checks-and-transforms.md](checks-and-transforms.md).",
    )
    transform: Transform | None = Field(
        default=None,
        description="Turns rows into other rows: [checks-and-transforms.md](checks-and-transforms.md#transform).",
    )
    was: dict[FieldName, Annotated[Items[FieldName], Field(min_length=1), BeforeValidator(_listed)]] = Field(
        default_factory=dict,
        description="Renamed fields, each with its earlier name or a list of them: "
        "[sinks.md](sinks.md#when-a-field-gets-another-name).",
    )
    sinks: Annotated[
        Items[Sink],
        Field(min_length=1, description="Where rows go: [below](#sinks), [sinks.md](sinks.md)."),
    ]
    dead_letters: Annotated[
        DeadLetters, Field(description="Where invalid and failed messages go: [below](#dead_letters).")
    ]
    ledger: AnyLedger = Field(default=SQLLedger(), description="Where offsets and history are kept: [below](#ledger).")
    limits: Limits = Field(default=Limits(), description="The bounds of a window: [below](#limits).")
    alarm: Alarm = Field(default=Alarm(), description="When the stream counts as late: [below](#alarm).")
    event_time: EventTime = Field(
        default=EventTime(), description="When an hour of messages is complete: [below](#event_time)."
    )
    guarantee: Literal["at_least_once", "at_most_once", "none"] = Field(
        default="at_least_once", description="The cost of a crash: [below](#guarantee)."
    )
    schedule: Schedule = Field(default=Schedule(), description="When the ingest runs: [below](#schedule).")
    audit: Audits = Field(default=Audits(), description="Audits that run automatically: [below](#audit).")
    record_tables: Items[RecordTable] = Field(
        default=(),
        description="HBase tables of records that `records_file` of a replay may name: [below](#record_tables).",
    )
    engine: Engine = Field(default=Engine(), description="How Airflow runs the Spark jobs: [below](#engine).")

    @model_validator(mode="after")
    def _sinks_apart(self) -> Stream:
        names = [sink.name for sink in self.sinks]
        if len(set(names)) < len(names):
            raise ValueError(f"sinks: two have the name {max(names, key=names.count)!r}; give each its own")
        if problem := problem_within(written(self.ledger, self.dead_letters, self.sinks)):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _ledger_apart(self) -> Stream:
        dead, ledger = self.dead_letters, self.ledger
        both = sorted(dead.database_tables & ledger.database_tables)
        if both and dead.database == ledger.database:
            raise ValueError(f"dead_letters.table: the ledger has the table {both[0]!r}; name another one")
        return self

    @model_validator(mode="after")
    def _copies_of_dead_letters_fit(self) -> Stream:
        topic = self.dead_letters.copy_to_topic
        if topic is None:
            return self
        if self.dead_letters.copy_kafka == self.source.kafka and self.source.reads(topic):
            raise ValueError(f"dead_letters.copy_to_topic: {topic} is a topic that this stream reads; name another one")
        if self.guarantee == "at_most_once":
            raise ValueError(
                "dead_letters.copy_to_topic: under at_most_once a window is settled before its dead letters are stored, and "
                "copies are made from what is stored; leave copy_to_topic out, or use at_least_once"
            )
        return self

    @model_validator(mode="after")
    def _record_tables_apart(self) -> Stream:
        names = [one.table for one in self.record_tables]
        if len(set(names)) < len(names):
            raise ValueError(f"record_tables: two have the table {max(names, key=names.count)!r}; name it once")
        return self

    @model_validator(mode="after")
    def _function_alone(self) -> Stream:
        if self.explode is not None and isinstance(self.scheme, FunctionScheme):
            raise ValueError("explode: a function of your own gives as many rows as it likes; leave explode out")
        if self.explode is not None and isinstance(self.scheme, SchemeWithSchemas):
            raise ValueError(f"explode: a value of scheme {self.scheme.type} is no text that could be split")
        if self.decompress is not None and isinstance(self.scheme, FunctionScheme):
            raise ValueError("decompress: a function of your own gets the value as it is; decompress it there")
        by_registry = isinstance(self.scheme, SchemeWithSchemas) and self.scheme.registry is not None
        framed = isinstance(self.scheme, JsonScheme) and self.scheme.wire_format is not None
        if self.decompress is not None and (by_registry or framed):
            raise ValueError(
                "decompress: with a registry, each value begins with the number of its schema, and is not compressed; leave "
                "decompress out"
            )
        return self

    @model_validator(mode="after")
    def _retries_something(self) -> Stream:
        if "retry" in self.model_fields_set and not isinstance(self.scheme, FunctionScheme):
            raise ValueError(f"retry: nothing of scheme {self.scheme.type} is tried again, only a function of your own")
        return self

    @model_validator(mode="after")
    def _sinks_fit(self) -> Stream:
        def reads(connection: str, topic: str) -> bool:
            return connection == self.source.kafka and self.source.reads(topic)

        for number, sink in enumerate(self.sinks):
            if problem := sink.problem_with(SettingsContext(self.fields, self.guarantee, reads)):
                raise ValueError(f"sinks.{number}: {problem}")
        return self

    @model_validator(mode="after")
    def _names_of_before(self) -> Stream:
        fields = {name.lower(): name for name in self.fields}
        before = [old for names in self.was.values() for old in names]
        for name in self.was:
            if name not in self.fields:
                raise ValueError(f"was: the stream has no field {name}; expected the names that fields have now")
        for old in before:
            if old.lower() in fields:
                raise ValueError(
                    f"was: {old} is the name of a field of today ({fields[old.lower()]}); older files could not tell the two "
                    "apart"
                )
            if before.count(old) > 1:
                raise ValueError(f"was: {old} is named twice; it can have become one field")
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

    @property
    def has_own_code(self) -> bool:
        """Whether Python code of the user's, or of a package of theirs, works on the messages."""
        parts = [self.scheme, *self.sinks, self.dead_letters]
        called = isinstance(self.scheme, FunctionScheme) or (self.transform is not None and self.transform.function)
        return bool(called) or any(type(one).__module__.partition(".")[0] != "tidemark" for one in parts)

    @property
    def sql(self) -> list[str]:
        """The user's SQL: the conditions of checks, and the transform."""
        transform = self.transform.sql if self.transform is not None else None
        return [*(check.invalid_when for check in self.checks), *([] if transform is None else [transform])]

    def connections(self) -> set[str]:
        """The names of all connections that the stream uses, Spark's aside."""
        used = {self.source.kafka, self.dead_letters.connection, self.ledger.connection}
        if self.dead_letters.copy_to_topic is not None:
            used.add(self.dead_letters.copy_kafka)
        if isinstance(self.scheme, SchemeWithSchemas) and self.scheme.registry is not None:
            used.add(self.scheme.registry)
        used |= {name for sink in self.sinks for name in sink.other_connections}
        return used | {sink.connection for sink in self.sinks}
