"""Explaining offsets without a message: an audit's count of what fills a range besides messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.audit.report import SHOWN_COORDINATES, GapReport, explain
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.ledger.ledger import Committed
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import PartitionTally
from tidemark.runs.live.open_stream import OpenStream
from tidemark.spark.audit.differences import Audit
from tidemark.spark.columns import AT, COORDINATE, OFFSET
from tidemark.spark.rows.reading import read_offsets
from tidemark.spark.rows.selecting import only

_BEFORE = "_before"
_PLACES = f"{AT[0]} string, {AT[1]} int, {AT[2]} int, {OFFSET} long"


def gap_reports(
    spark: SparkSession,
    opened: OpenStream,
    windows: Iterable[Committed],
    in_kafka: RangeSet,
    audit: Audit,
    counted: Iterable[PartitionTally],
    incarnations: Mapping[str, int],
) -> tuple[GapReport, ...]:
    """One report for each partition in which some of the offsets `in_kafka` have no message.

    `counted` are the tallies of the visible messages there. Only partitions with gaps are read from Kafka again.
    """
    visible = {tally.at: tally.read.number for tally in counted}
    gaps = [at for at in in_kafka.partitions if in_kafka.count(at) > visible.get(at, 0)]
    if not gaps:
        return ()
    source, wanted = opened.stream.source, in_kafka.only(gaps)

    def messages_under(isolation: str) -> DataFrame:
        return read_offsets(spark, opened.log.endpoint, isolation, wanted, incarnations)

    messages = messages_under(source.isolation).select(*COORDINATE)
    uncommitted = visible if source.isolation == READ_UNCOMMITTED else _count(messages_under(READ_UNCOMMITTED))
    read_before, where = _read_before(windows, wanted, source.isolation)
    now = _count(only(messages, where)) if where else {}
    empty = _empty(spark, messages, wanted)
    return tuple(
        explain(
            at,
            offsets=wanted.count(at),
            messages=visible.get(at, 0),
            uncommitted=uncommitted.get(at, 0),
            vanished=read_before.get(at, 0) - now.get(at, 0),
            compacted=at.topic in audit.compacted,
            ranges=empty.only([at]),
        )
        for at in gaps
    )


def _read_before(
    windows: Iterable[Committed], wanted: RangeSet, isolation: str
) -> tuple[dict[TopicPartition, int], RangeSet]:
    """How many messages the windows that first read these offsets have counted, and the offsets of those windows.

    Takes only windows that are wanted whole, and that read at the same isolation level.
    """
    number: dict[TopicPartition, int] = {}
    ranges = []
    for window in windows:
        record = window.record
        if record.kind.reads_again or record.window.selection or record.window.isolation != isolation:
            continue
        read = {tally.at: tally.read.number for tally in record.tallies}
        for range_ in record.window.ranges:
            whole = RangeSet([range_.as_range()])
            if record.receipt is not None and whole and whole & wanted == whole:
                number[range_.at] = number.get(range_.at, 0) + read.get(range_.at, 0)
                ranges.append(range_.as_range())
    return number, RangeSet(ranges)


def _empty(spark: SparkSession, messages: DataFrame, wanted: RangeSet) -> RangeSet:
    """The first ranges without a message, as many as a report shows: between each message and the one before it."""
    edges = [
        (range_.partition.topic, range_.partition.incarnation, range_.partition.partition, offset)
        for range_ in wanted
        for offset in (range_.start - 1, range_.until)
    ]
    known = spark.createDataFrame(edges, _PLACES).unionAll(messages).distinct()
    before = F.lag(OFFSET).over(Window.partitionBy(*AT).orderBy(OFFSET))
    gaps = known.withColumn(_BEFORE, before).where(F.col(OFFSET) > F.col(_BEFORE) + 1).orderBy(*COORDINATE)
    # The spaces between wanted ranges are rows of `found` too, so the limit allows for them.
    rows = gaps.limit(SHOWN_COORDINATES + len(edges)).collect()
    return wanted & RangeSet(
        OffsetRange(TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]), row[_BEFORE] + 1, row[OFFSET]) for row in rows
    )


def _count(messages: DataFrame) -> dict[TopicPartition, int]:
    return {
        TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]): row["count"]
        for row in messages.groupBy(*AT).count().collect()
    }
