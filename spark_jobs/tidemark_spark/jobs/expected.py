"""The rows that today's code makes of some messages, without writing any: for audits, and for comparisons of replays."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from tidemark.errors import TidemarkError
from tidemark.ledger.records import AUDIT, Heartbeat
from tidemark.offsets.blocks import WHOLE, PartitionBlocks
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import PartitionTally
from tidemark.runs.conditions import sizes_for
from tidemark.runs.open_stream import OpenStream
from tidemark_spark.rows.pipeline import Rows, rows_of
from tidemark_spark.rows.reading import read_offsets
from tidemark_spark.rows.tallying import tallies_and_blocks
from tidemark_spark.sinks import make_sinks, refusals

log = logging.getLogger(__name__)


def begin(opened: OpenStream, what: str, run: str, step: str) -> None:
    """Say which step begins, in the log and in the ledger, for whoever waits. Nothing depends on it."""
    log.info("%s of %s: %s", what, opened.book.stream, step)
    try:
        opened.book.beat(AUDIT, Heartbeat(generation=0, run=run, at=opened.book.clock(), step=step))
    except TidemarkError as problem:
        log.warning("the step of the %s of %s cannot be shown: %s", what, opened.book.stream, problem)


def expected_rows(
    spark: SparkSession,
    opened: OpenStream,
    in_kafka: RangeSet,
    incarnations: dict[str, int],
    *,
    any_time: bool,
    size: int = WHOLE,
) -> tuple[Rows, tuple[PartitionTally, ...], tuple[PartitionBlocks, ...]]:
    """The messages' rows, computed by today's code, and their tallies: of partitions, and of blocks of `size` offsets."""
    source = opened.stream.source
    sizes = sizes_for(opened, in_kafka)
    messages = read_offsets(
        spark,
        opened.log.endpoint,
        source.isolation,
        in_kafka,
        incarnations,
        source.fetch,
        any_time=any_time,
        sizes=sizes,
    )
    limits = refusals(make_sinks(opened), opened.stream.fields)
    rows = rows_of(messages, opened.stream, limits, connections=opened.connections)
    try:
        return rows, *(tallies_and_blocks(rows.frame, size, rows.read) if in_kafka else ((), ()))
    except BaseException:
        rows.close()
        raise
