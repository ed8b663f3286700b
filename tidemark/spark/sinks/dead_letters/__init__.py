"""Dead letters with Spark: what each holds is made here, whatever store keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol, cast

from pyspark.sql import DataFrame

from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements, Outcome
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.dead_letters import DIGESTED, FIELDS
from tidemark.sinks.dead_letters.contract import DeadLetterSettings
from tidemark.sinks.dead_letters.copies import Copies, copies_at
from tidemark.sinks.dead_letters.kinds import KINDS
from tidemark.spark.columns import (
    COORDINATE,
    DIGEST,
    FAILURE,
    KEY,
    OUTCOME,
    REASON,
    REDRIVES,
    TIMESTAMP,
    TOMBSTONE,
    VALUE,
    content_digest,
    literal,
)
from tidemark.spark.rows.outcomes import BYTES_OF_AT_MOST
from tidemark.spark.schemes.kept_parts import HEADERS_JSON
from tidemark.spark.sinks.acknowledging import COUNTED
from tidemark.spark.sinks.contract import WriteContext

# The columns of a dead letter beside its fields.
ROW = (*COUNTED, TOMBSTONE)
# Columns for what a dead letter has of DIGESTED.
_PARTS = tuple(f"_part_{number}" for number, _ in enumerate(DIGESTED))


class Store(Protocol):
    """The Spark half of a type of store. It writes rows as a sink does, with the fields of a dead letter."""

    def prepare(self, stream: str, ledger: str) -> None:
        """As a sink's."""
        ...

    def column(self, number: int, name: str, said: str) -> str:
        """How `store` takes a field: the SQL of a column, for the SQL `said` of a text or of bytes."""
        ...

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        """As a sink's: rows with ROW, and the columns of FIELDS."""
        ...

    def receipt(self, context: WriteContext) -> SinkReceipt:
        """As a sink's."""
        ...


def dead_letters_writer(opened: OpenStream) -> Writer:
    settings = opened.stream.dead_letters
    store = KINDS[settings.type].make_spark(settings, opened.dead_letter_table(), opened.connections)
    topic = settings.copies()
    return Writer(settings, cast("Store", store), None if topic is None else copies_at(topic, opened.connections))


class Writer:
    """Makes dead letters of messages, with the fields of `tidemark.sinks.dead_letters`, and stores them."""

    def __init__(self, config: DeadLetterSettings, store: Store, copies: Copies | None = None) -> None:
        self._config = config
        self._store = store
        self._copies = copies

    def prepare(self, stream: str, ledger: str) -> None:
        self._store.prepare(stream, ledger)
        if self._copies is not None:
            self._copies.check()

    def places(self, context: WriteContext) -> list[SinkReceipt]:
        """Where dead letters go, and their copies."""
        copies = self._config.copies()
        return [self.receipt(context), *([] if copies is None else [copies])]

    def store(
        self, messages: DataFrame, context: WriteContext, code_version: str, now: int, earlier: DataFrame | None = None
    ) -> Acknowledgements:
        """Store messages as dead letters. A message without a time of failure gets `now` (ms since 1970).

        `earlier` has the messages that were dead letters before, with REDRIVES: how often they were read again,
        including this time.
        """
        if earlier is not None:
            messages = messages.join(earlier, list(COORDINATE), "left")
        most = self._config.most_bytes
        contents = _contents(most, code_version, now, redriven=earlier is not None)
        columns = [self._store.column(number, name, contents[name]) for number, name in enumerate(FIELDS)]
        return self._store.store(_with_parts(messages, most).selectExpr(*ROW, *columns), context)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return self._store.receipt(context)


def with_dead_letter_digest(messages: DataFrame, config: DeadLetterSettings) -> DataFrame:
    """Messages with the digest of their dead letters."""
    return _with_parts(messages, config.most_bytes).drop(*_PARTS)


def _with_parts(messages: DataFrame, most: int) -> DataFrame:
    """Messages with what their dead letters have of DIGESTED, and the digest."""
    parts = (REASON, KEY, VALUE, _time(TIMESTAMP), HEADERS_JSON)
    # A part too large for the store is left out: a dead letter that cannot be stored would block the stream for ever.
    fitting = (
        f"if(octet_length({one}) <= {most}, {one}, NULL) AS {name}" for one, name in zip(parts, _PARTS, strict=True)
    )
    return messages.selectExpr("*", *fitting).withColumn(DIGEST, content_digest(_PARTS))


# What follows is SQL, as text: each function of Spark that Python calls takes up to a third of a millisecond.


def _contents(most: int, code_version: str, now: int, *, redriven: bool) -> Mapping[str, str]:
    """The fields of a dead letter."""
    # As a text. A number would stand in the code that Spark generates, and have it compiled for each window.
    at = literal(f"{datetime.fromtimestamp(now / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{now % 1000:03}Z")
    redrives = f"coalesce({REDRIVES}, 0)" if redriven else "0"
    return {
        **dict(zip(DIGESTED, _PARTS, strict=True)),
        "outcome": f"if({OUTCOME} = {Outcome.FAILED.value}, 'failed', 'invalid')",
        "error": f"{FAILURE}.error",
        "detail": _beginning(_details(f"{FAILURE}.detail", _cut(most)), most),
        "attempts": f"string(coalesce({FAILURE}.attempts, 1))",
        "first_failed_at": f"coalesce({_time(f'timestamp_millis({FAILURE}.first_at)')}, {at})",
        "last_failed_at": f"coalesce({_time(f'timestamp_millis({FAILURE}.last_at)')}, {at})",
        "code_version": literal(code_version),
        "redrives": f"string({redrives})",
    }


def _beginning(said: str, most: int) -> str:
    """A text, or as many of its first characters as fit for certain."""
    return f"if(octet_length({said}) <= {most}, {said}, substring({said}, 1, {most // 4}))"


def _details(*texts: str) -> str:
    both = ", ".join(texts)
    return f"if(coalesce({both}) IS NOT NULL, concat_ws('; ', {both}), NULL)"


def _cut(most: int) -> str:
    """The parts that a dead letter lacks, as text for users; null when it lacks nothing."""
    sizes = {name: f"octet_length({one})" for name, one in (("key", KEY), ("value", VALUE), ("headers", HEADERS_JSON))}
    return _details(
        *(
            f"if({size} > {most}, concat('left out: the {name} has ', {size}, '{BYTES_OF_AT_MOST}', {most}), NULL)"
            for name, size in sizes.items()
        )
    )


def _time(time: str) -> str:
    form = literal("yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
    return f"date_format({time}, {form})"
