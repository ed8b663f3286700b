"""The rows of a window in one pass: read, parsed, separated, digested and counted on their way to the first sink.

Where each row is an expression of one message, Spark need not keep the rows. Our Java class `Messages.java` counts the
messages as they are read. `Separating.java` counts them by outcome, and keeps the dead letters out of what goes on to the
sink. The sink says what it has acknowledged. So the three counts come from three places, as on the longer way.

The counts come back by Spark's accumulators. They are exact here, because the pass is one stage without a shuffle, of which
Spark takes each task's counts once, however often it runs. A second job on the same rows would count again: it is never read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.ledger.records import UnknownFields
from tidemark.offsets.blocks import BlockTally, PartitionBlocks
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Outcome, PartitionTally, after, check_once, sum_tallies
from tidemark.schemes.kinds import FunctionScheme, SchemeWithSchemas
from tidemark.spark.columns import (
    COORDINATE,
    DIGEST,
    FAILURE,
    HEADERS,
    INDEX,
    KEY,
    MESSAGE_HASH,
    OUTCOME,
    REASON,
    ROW_HASH,
    TIMESTAMP,
    TOMBSTONE,
    UNKNOWN_NAMES,
    VALUE,
    field,
    has,
    message_hash,
    row_hash,
)
from tidemark.spark.rows import outcomes, unknown_names
from tidemark.spark.rows.reading import counted_ranges, counter, lines_of, no_messages
from tidemark.spark.rows.row_by_row import row_by_row
from tidemark.spark.rows.tallying import count_of, digest_of
from tidemark.spark.rows.transform import given_to, made_of
from tidemark.spark.runtime.compiling import compiled, new_instance
from tidemark.spark.runtime.frames import frame_of, rows_of
from tidemark.spark.runtime.single_computation import draws, made_of_each_row, may_read_a_time_of_today, repeatable
from tidemark.streams.model import Stream

_SEPARATING, _DEAD_LETTERS = (Path(__file__).with_name(name) for name in ("Separating.java", "DeadLetters.java"))
# Texts that Spark takes for a time when it casts them, as in `date'today'`.
_TIMES_OF_TODAY = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
# What only a dead letter has.
_OF_DEAD_LETTERS = (REASON, FAILURE)
_OF_MESSAGE = (KEY, VALUE, TIMESTAMP, HEADERS)
# This many bytes of dead letters are kept of each task. Those of other tasks are read again.
_MAX_HELD = 16 << 20
# This many dead letters of a window, of this many bytes, are few.
_FEW, _FEW_BYTES = 100_000, 32 << 20
# A Python task with fewer takes longer to start than to write them.
DEAD_LETTERS_PER_TASK = 5_000

# Returns the messages of the window, counted by the accumulator.
Messages = Callable[[Any], DataFrame]


def takes_one_pass(stream: Stream) -> bool:
    """Whether each row of a stream may be an expression of one message, by its file. Its plan may still say otherwise."""
    scheme = stream.scheme
    if isinstance(scheme, SchemeWithSchemas) and scheme.registry is not None:
        # The messages say which schemas to ask the registry for.
        return False
    if isinstance(scheme, FunctionScheme) or stream.explode is not None:
        return False
    return stream.transform is None or stream.transform.sql is not None


def may_be_made_of_messages(stream: Stream) -> bool:
    """Whether `made_of_messages` may say yes, by the stream file."""
    # Spark's plan has the time itself in their place.
    asks_clock = any(map(_TIMES_OF_TODAY.search, stream.sql))
    return not (stream.has_own_code or asks_clock or draws(stream.sql)) and takes_one_pass(stream)


def made_of_messages(spark: SparkSession, stream: Stream) -> bool:
    """Whether each row is an expression of one message, and of nothing else: no table, no clock, no code of the user's.

    Raises WrongUse as `one_pass` does.
    """
    if not may_be_made_of_messages(stream):
        return False
    if stream.transform is None and not stream.checks:
        return True
    rows = _separable(no_messages(spark), stream, ())
    return rows is not None and made_of_each_row(rows) and not _may_read_a_time_of_today(spark, stream)


def _may_read_a_time_of_today(spark: SparkSession, stream: Stream) -> bool:
    """Of the user's own SQL alone: the schemes look at a text before they make a time of it."""
    rows = outcomes.with_outcomes(no_messages(spark), stream.model_copy(update={"checks": ()}))
    nothing = spark.createDataFrame([], rows.schema)
    plans = [outcomes.checked_alone(rows, [one.invalid_when for one in stream.checks])] if stream.checks else []
    if stream.transform is not None:
        plans.append(made_of(given_to(nothing, stream.scheme.fields), stream.transform))
    return any(map(may_read_a_time_of_today, plans))


def one_pass(
    spark: SparkSession,
    messages: Messages,
    stream: Stream,
    refusals: Sequence[Column],
    block_size: int,
    *,
    never: str = "",
    names: bool = False,
) -> OnePass | None:
    """The rows of a window, not yet computed. Computing them fails at a dead letter whose reason ends with `never`.

    `names`: whether keys are counted that no field has. None if the transform is not one of single rows, or rows may come
    out otherwise when they are computed again. Raises WrongUse for a transform that does not give what it has to.
    """
    context: Any = spark.sparkContext._jsc.sc()
    read, separated, unknown = (counter(spark) for _ in range(3))
    rows = _separable(messages(read), stream, refusals, names=names)
    if rows is None or draws(stream.sql) or not repeatable(rows):
        return None
    java = rows_of(rows)
    # Nothing is ever computed of this RDD. As long as it is there, the blocks under its number are.
    held = spark.sparkContext._jsc.emptyRDD().setName("dead letters").cache()
    dead_bytes = context.longAccumulator()
    separating = new_instance(
        compiled(spark.sparkContext, _SEPARATING),
        T.StructType([rows.schema[name] for name in outcomes.field_names(stream)]).json(),
        block_size,
        _MAX_HELD,
        never,
        held.id(),
        separated,
        dead_bytes,
        rows.columns.index(UNKNOWN_NAMES) if UNKNOWN_NAMES in rows.columns else -1,
        unknown,
    )
    hashes = [T.StructField(name, T.LongType()) for name in (MESSAGE_HASH, ROW_HASH, DIGEST)]
    stored = frame_of(spark, java.mapPartitionsWithIndex(separating, False), T.StructType([*rows.schema, *hashes]))
    return OnePass(
        spark,
        stored.withColumn(INDEX, F.lit(0)).drop(OUTCOME, *_OF_DEAD_LETTERS, *_OF_MESSAGE, UNKNOWN_NAMES),
        java,
        rows.schema,
        held,
        _PassCounts(read, separated, dead_bytes, unknown),
    )


def _separable(
    messages: DataFrame, stream: Stream, refusals: Sequence[Column], *, names: bool = False
) -> DataFrame | None:
    """Rows with the columns that `Separating.java` takes. Only dead letters have what is theirs."""
    rows: DataFrame | None = outcomes.with_outcomes(messages, stream)
    if rows is not None and stream.transform is not None:
        rows = row_by_row(rows, stream.scheme.fields, stream.transform)
    if rows is None:
        return None
    rows = outcomes.within_limits(outcomes.in_utf8(rows, stream), refusals)
    dead = has(Outcome.INVALID) | has(Outcome.FAILED)
    fields = [field(name) for name in outcomes.field_names(stream)]
    theirs = [F.when(dead, F.col(name)).alias(name) for name in _OF_MESSAGE]
    unknown = [UNKNOWN_NAMES] if names and UNKNOWN_NAMES in rows.columns else []
    return rows.select(*COORDINATE, OUTCOME, *fields, TOMBSTONE, *_OF_DEAD_LETTERS, *theirs, *unknown)


@dataclass(frozen=True)
class _PassCounts:
    """Accumulators of the pass: what was read, what became of it, the bytes of dead letters, and keys that no field has."""

    read: Any
    separated: Any
    dead_bytes: Any
    unknown: Any


@dataclass(frozen=True)
class OnePass:
    """The rows of a window. `stored` is for one job, that of the first sink; all else is known after it. Close it.

    `stored` has the columns that `contract.Sink.store` names. `rows` are those of all messages, as Java has them, with the
    columns of `schema`. `held` is the RDD whose blocks are dead letters.
    """

    spark: SparkSession
    stored: DataFrame
    rows: Any
    schema: T.StructType
    held: Any
    counts: _PassCounts

    @cached_property
    def tallies_and_blocks(self) -> tuple[tuple[PartitionTally, ...], tuple[PartitionBlocks, ...]]:
        """As `tallying.tallies_and_blocks`. Raises VerificationFailed when a message was read twice."""
        read = _read(counted_ranges(lines_of(self.spark, self.counts.read)))
        blocks = _blocks(lines_of(self.spark, self.counts.separated))
        became = [reduce(sum_tallies, of_blocks.values()) for of_blocks in blocks.values()]
        by_partition = (
            PartitionBlocks(
                at.topic, at.incarnation, at.partition, tuple(BlockTally.of(*one) for one in sorted(of_blocks.items()))
            )
            for at, of_blocks in blocks.items()
        )
        return after(read, became), tuple(by_partition)

    @property
    def unknown_fields(self) -> UnknownFields | None:
        """The keys that no field has, if they were counted."""
        return unknown_names.of_lines(lines_of(self.spark, self.counts.unknown))

    @cached_property
    def few_dead_letters(self) -> bool:
        """Whether the dead letters take little of the driver's memory, all together."""
        return self._number_dead <= _FEW and self.counts.dead_bytes.value() <= _FEW_BYTES

    @property
    def _number_dead(self) -> int:
        tallies, _ = self.tallies_and_blocks
        return sum(tally.dead_letters for tally in tallies)

    @cached_property
    def dead_letters(self) -> DataFrame:
        """The dead letters, one row for each, with COUNTED, TOMBSTONE and what is theirs."""
        context: Any = self.spark.sparkContext
        # Reading messages again counts them again, so the counts of the pass must be known by now.
        tasks = max(context.defaultParallelism, math.ceil(self._number_dead / DEAD_LETTERS_PER_TASK))
        dead = self.rows.mapPartitionsWithIndex(new_instance(compiled(context, _DEAD_LETTERS), self.held.id()), False)
        rows = frame_of(self.spark, dead.coalesce(tasks), self.schema)
        return rows.withColumn(INDEX, F.lit(0)).withColumns({MESSAGE_HASH: message_hash(), ROW_HASH: row_hash()})

    def close(self) -> None:
        """Free what Spark keeps of the dead letters."""
        self.held.unpersist(False)


def _read(ranges: Iterable[tuple[PartitionTally, int]]) -> list[PartitionTally]:
    """Tallies of messages as they were read, per partition, from those of the ranges that tasks have read."""
    by_partition: dict[TopicPartition, list[PartitionTally]] = {}
    repeated: dict[TopicPartition, int] = {}
    for tally, again in ranges:
        repeated[tally.at] = repeated.get(tally.at, 0) + again
        by_partition.setdefault(tally.at, []).append(tally)
    for at, of_ranges in by_partition.items():
        of_ranges.sort(key=_first)
        # Ranges are read once each, in their order: those that overlap were read twice.
        repeated[at] += sum(max(0, min(map(_last, both)) - _first(both[1]) + 1) for both in pairwise(of_ranges))
    check_once(repeated.items(), "messages")
    return [reduce(sum_tallies, by_partition[at]) for at in sorted(by_partition)]


def _first(tally: PartitionTally) -> int:
    return tally.first or 0


def _last(tally: PartitionTally) -> int:
    return tally.last or 0


def _blocks(lines: list[list[str]]) -> dict[TopicPartition, dict[int, PartitionTally]]:
    """Tallies by partition and block, from what `Separating.java` gives for each of its tasks."""
    by_partition: dict[TopicPartition, dict[int, PartitionTally]] = {}
    for topic, incarnation, partition, block, *sums in sorted(lines, key=itemgetter(0, 1, 2)):
        at = TopicPartition(topic, int(partition), int(incarnation))
        numbers = list(map(int, sums))
        stored, skipped, invalid, failed = map(count_of, numbers[:-2:2], numbers[1:-2:2])
        tally = PartitionTally(
            topic=topic,
            incarnation=at.incarnation,
            partition=at.partition,
            stored=stored,
            skipped=skipped,
            invalid=invalid,
            failed=failed,
            # Each message that is stored has one row.
            rows=count_of(stored.number, numbers[-2]),
            content=digest_of(numbers[-1]),
        )
        of_blocks = by_partition.setdefault(at, {})
        number = int(block)
        of_blocks[number] = sum_tallies(of_blocks[number], tally) if number in of_blocks else tally
    return {at: by_partition[at] for at in sorted(by_partition)}
