"""The scheme `function`: calls a user's Python function for each message, in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tidemark.commit.fence import HeadFence
from tidemark.functions import Message, load_function
from tidemark.functions.caller import Caller, CallResult, result_of, steady_clock
from tidemark.functions.child import Child
from tidemark.functions.retries import RetryPolicy
from tidemark.offsets.tallies import Outcome
from tidemark.schemes.kinds import FunctionScheme
from tidemark.spark.columns import (
    FAILURE,
    FAILURE_TYPE,
    HEADERS,
    INCARNATION,
    INDEX,
    KEY,
    OFFSET,
    OUTCOME,
    PARTITION,
    REASON,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOMBSTONE,
    TOPIC,
    VALUE,
)
from tidemark.spark.runtime.workers import arrow_schema, batch_of, in_workers
from tidemark.streams.model import Stream
from tidemark.streams.retry import Retry
from tidemark.types.fields import spark_type

_MESSAGE = (TOPIC, INCARNATION, PARTITION, OFFSET, KEY, VALUE, TIMESTAMP, TIMESTAMP_TYPE, HEADERS)
# The numbers are those of Kafka's TimestampType.
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The limits of a batch between Python and the JVM; it ends at the first one reached.
_BATCH_ROWS = 10_000
_BATCH_BYTES = 16 * 1024 * 1024


def check_function(stream: Stream) -> None:
    """Raises WrongUse for a function or a retry policy that does not exist, before anything is read."""
    if isinstance(stream.scheme, FunctionScheme):
        load_function("scheme.function", stream.scheme.function)
        stream.retry.chosen()


def called(messages: DataFrame, scheme: FunctionScheme, retry: Retry, fence: HeadFence | None) -> DataFrame:
    """Messages as rows: their columns, the function's fields, INDEX, OUTCOME, REASON, TOMBSTONE and FAILURE.

    VALUE and HEADERS are on the row with index 0, and on other rows only if `keep` needs them. The task looks at `fence`
    every few seconds, also while messages wait for their retry or a call hangs. None: no fence, as in an audit.
    """
    given = messages.select(*_MESSAGE)
    fields = [T.StructField(name, T.DataType.fromDDL(spark_type(kind))) for name, kind in scheme.given.items()]
    ours = [
        T.StructField(name, T.DataType.fromDDL(kind))
        for name, kind in (
            (INDEX, "int"),
            (OUTCOME, "tinyint"),
            (REASON, "string"),
            (TOMBSTONE, "boolean"),
            (FAILURE, FAILURE_TYPE),
        )
    ]
    schema = T.StructType([*given.schema.fields, *fields, *ours])
    again = {"value", "headers"} & set(scheme.keep.values())
    call = _Call(
        scheme.function, scheme.given, retry.chosen(), retry.timeout_ms, fence, arrow_schema(schema), bool(again)
    )
    return in_workers(given, call, schema)


@dataclass(frozen=True)
class _Call:
    """Runs in Spark's Python workers: takes batches of messages, and yields batches of rows."""

    function: str
    fields: Mapping[str, Any]
    policy: RetryPolicy
    timeout_ms: int
    fence: HeadFence | None
    schema: pa.Schema
    whole_message_on_each_row: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        look: Callable[[], None] = self.fence.check_now_and_then if self.fence is not None else lambda: None
        function = load_function("scheme.function", self.function)
        child = Child(partial(result_of, function, self.fields), self.timeout_ms, look)
        try:
            yield from self._batches(Caller(child, self.policy, steady_clock(), look=look).answers(_messages(batches)))
        finally:
            child.close()

    def _batches(self, answers: Iterable[CallResult]) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = []
        size = 0
        for answer in answers:
            for row in self._rows(answer):
                rows.append(row)
                size += sum(len(part) for part in row if isinstance(part, bytes | str))
                if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield batch_of(rows, self.schema)
                    rows, size = [], 0
        if rows:
            yield batch_of(rows, self.schema)

    def _rows(self, answer: CallResult) -> Iterator[tuple[Any, ...]]:
        message, failed = answer.message, answer.failed
        tombstone = message.value is None
        for index, fields in enumerate(answer.rows):
            whole = index == 0 or self.whole_message_on_each_row
            yield (*_columns(message, whole=whole), *fields, index, Outcome.STORED.value, None, tombstone, None)
        if answer.rows:
            return
        outcome, reason, failure = Outcome.SKIPPED, None, None
        if failed is not None:
            outcome, reason = Outcome.FAILED, failed.reason
            failure = {name: getattr(failed, name) for name in ("error", "detail", "attempts", "first_at", "last_at")}
        elif answer.invalid is not None:
            outcome, reason = Outcome.INVALID, answer.invalid
        nothing = (None,) * len(self.fields)
        yield (*_columns(message, whole=True), *nothing, 0, outcome.value, reason, tombstone, failure)


@dataclass(frozen=True, slots=True)
class _Sent(Message):
    """A message with Spark's own time and time type: Kafka takes times that Python's dates cannot hold."""

    micros: int | None = None
    kind: int = -1


def _messages(batches: Iterable[pa.RecordBatch]) -> Iterator[_Sent]:
    for batch in batches:
        times = batch.column(_MESSAGE.index(TIMESTAMP)).cast(pa.int64()).to_pylist()
        others = (batch.column(name).to_pylist() for name in _MESSAGE if name != TIMESTAMP)
        for micros, topic, incarnation, partition, offset, key, value, kind, headers in zip(
            times, *others, strict=True
        ):
            yield _Sent(
                topic,
                partition,
                offset,
                key,
                value,
                tuple((header["key"], header["value"]) for header in headers or ()),
                _time(micros),
                _TIMESTAMP_TYPES.get(kind),
                incarnation,
                micros,
                kind,
            )


def _time(micros: int | None) -> datetime | None:
    try:
        return None if micros is None else _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _columns(message: Message, *, whole: bool) -> tuple[Any, ...]:
    """A message's columns, in the order of _MESSAGE."""
    if not isinstance(message, _Sent):
        raise TypeError("an answer is about a message that it was asked about")
    return (
        message.topic,
        message.incarnation,
        message.partition,
        message.offset,
        message.key,
        message.value if whole else None,
        message.micros,
        message.kind,
        [{"key": key, "value": value} for key, value in message.headers] or None if whole else None,
    )
