"""The rows that today's code makes of some messages, without writing any: for audits, and for comparisons of replays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.unchanged_data import CountedRange, counts_of
from tidemark.offsets.blocks import WHOLE, PartitionBlocks
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import PartitionTally
from tidemark.runs.live.conditions import sizes_for
from tidemark.runs.live.open_stream import OpenStream
from tidemark.spark.rows import outcomes
from tidemark.spark.rows.failing_messages import SPARKS, cause_of
from tidemark.spark.rows.one_pass import OnePass, one_pass, takes_one_pass
from tidemark.spark.rows.pipeline import Rows, rows_of
from tidemark.spark.rows.reading import counter, read_offsets
from tidemark.spark.rows.tallying import tallies_and_blocks
from tidemark.spark.sinks import make_sinks, refusals


@dataclass(frozen=True)
class Expected:
    """The rows that some messages should have become, and their tallies: of partitions, and of blocks.

    `made` returns the rows. No message of the `known` stretches was computed to count them. `counted_dead_letters` are
    the dead letters of the others, if the counting has given them.
    """

    tallies: tuple[PartitionTally, ...]
    blocks: tuple[PartitionBlocks, ...]
    made: Callable[[], Rows]
    known: tuple[CountedRange, ...] = ()
    counted_dead_letters: DataFrame | None = None
    kept: ExitStack = field(default_factory=ExitStack)

    @property
    def unchanged(self) -> int:
        """How many messages the known stretches have."""
        return sum(stretch.tally.read.number for stretch in self.known)

    @property
    def dead_letters(self) -> DataFrame:
        """All dead letters, as `outcomes` describes them. Asking for them may compute all rows."""
        counted = self.counted_dead_letters
        return outcomes.dead_letters(self.frame) if self.known or counted is None else counted

    @cached_property
    def frame(self) -> DataFrame:
        """All rows, as `outcomes` describes them."""
        rows = self.made()
        self.kept.callback(rows.close)
        return rows.frame

    def close(self) -> None:
        """Give back the memory that the rows take in Spark."""
        self.kept.close()


def expected_rows(
    spark: SparkSession,
    opened: OpenStream,
    in_kafka: RangeSet,
    incarnations: dict[str, int],
    *,
    size: int = WHOLE,
    only_sums: bool = False,
    known: tuple[CountedRange, ...] = (),
    watch: Callable[[Any], None],
) -> Expected:
    """The messages' rows, computed by today's code. Blocks have `size` offsets. `watch` is given what counts the messages.

    With `only_sums`, where one pass is enough, the rows are counted and not kept: `frame` computes them once more. Then
    messages of which the counts are `known`, with blocks of that size, are not read for it.
    """
    stream, source = opened.stream, opened.stream.source
    limits = refusals(make_sinks(opened), stream.fields)

    def messages(wanted: RangeSet, counted: Any) -> DataFrame:
        watch(counted)
        return read_offsets(
            spark,
            opened.log.endpoint,
            source.isolation,
            wanted,
            incarnations,
            source.fetch,
            sizes=sizes_for(opened, wanted),
            counted=counted,
        )

    def made() -> Rows:
        return rows_of(messages(in_kafka, counter(spark)), stream, limits, connections=opened.connections)

    if only_sums and in_kafka and takes_one_pass(stream):
        unknown = in_kafka - RangeSet(stretch.offsets for stretch in known)
        if not unknown:
            return Expected(*counts_of(known), made, known)
        passed = _in_one_pass(one_pass(spark, partial(messages, unknown), stream, limits, size))
        if passed is not None:
            with ExitStack() as kept:
                kept.callback(passed.close)
                tallies, blocks = passed.tallies_and_blocks
                counts = counts_of(known, tallies, blocks)
                return Expected(*counts, made, known, passed.dead_letters, kept.pop_all())
    rows = made()
    try:
        counts = tallies_and_blocks(rows.frame, size, rows.read) if in_kafka else ((), ())
    except BaseException:
        rows.close()
        raise
    return Expected(*counts, lambda: rows)


def _in_one_pass(rows: OnePass | None) -> OnePass | None:
    """The rows, computed and counted. None if they need the longer way."""
    if rows is None:
        return None
    try:
        rows.stored.write.format("noop").mode("overwrite").save()
    except BaseException as problem:
        rows.close()
        if not isinstance(problem, SPARKS) or cause_of(problem) is None:
            raise
        # A message that an expression of the stream file fails on.
        return None
    return rows
