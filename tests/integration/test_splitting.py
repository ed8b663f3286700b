"""The tasks that a plan shows are those that Spark runs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.live_streams import Kafka
from tests.support.stores import new_stream
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.planning import splitting
from tidemark.planning.splitting import reads, tasks
from tidemark.spark.columns import OFFSET, PARTITION
from tidemark.spark.rows.reading import read_offsets
from tidemark.submit.command import local_cores


@pytest.mark.full
@pytest.mark.covers("S14")
@pytest.mark.parametrize(
    "wanted",
    [
        {0: [(0, 130_000)], 1: [(0, 7)], 2: [(3, 6)]},
        {0: [(1, 70_003)], 1: [(0, 60_000)], 2: [(0, 20)]},
        {0: [(0, 12_345), (20_000, 129_999)], 1: [(10, 20)]},
        {1: [(5, 6)]},
    ],
    ids=["one is hot", "two are large", "in pieces", "one record"],
)
def test_spark_runs_the_tasks_that_are_shown(
    spark: SparkSession, kafka: Kafka, topic: str, wanted: dict[int, list[tuple[int, int]]]
) -> None:
    tasks_that_ran(spark, kafka, of(topic, wanted))


@pytest.mark.full
def test_large_ranges_are_shared_by_the_cores(
    spark: SparkSession, kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "RECORDS_PER_TASK", 10_000)
    cores = spark.sparkContext.defaultParallelism
    ran = tasks_that_ran(spark, kafka, of(topic, {0: [(0, 130_000)], 1: [(0, 60_000)]}))
    assert max(map(len, ran)) == pytest.approx(190_000 / (4 * cores), rel=0.1)


def of(topic: str, wanted: dict[int, list[tuple[int, int]]]) -> RangeSet:
    return RangeSet.of_intervals((TopicPartition(topic, at), intervals) for at, intervals in wanted.items())


def tasks_that_ran(spark: SparkSession, kafka: Kafka, ranges: RangeSet) -> list[set[tuple[int, int]]]:
    """The (partition, offset) of each task. Checks that a plan shows them."""
    read = read_offsets(spark, kafka.endpoint, "read_committed", ranges, {at.topic: 1 for at in ranges.partitions})
    rows = read.select(F.spark_partition_id(), PARTITION, OFFSET).collect()
    ran: dict[int, set[tuple[int, int]]] = {}
    for task, at, offset in rows:
        ran.setdefault(task, set()).add((at, offset))
    cores = local_cores(spark.sparkContext.master or "")
    shown = [
        {(one.partition.partition, offset) for offset in range(one.start, one.until)} for one in tasks(ranges, cores)
    ]
    # Each range is read by one task, whole. Only short ones share tasks.
    assert sum(map(len, shown)) == len(rows) == sum(map(len, ran.values()))
    assert all(any(one <= of_task for of_task in ran.values()) for one in shown)
    assert len(ran) == sum(one.tasks for one in reads(ranges, cores=cores))
    assert all(len(one) < 10_000 or one in ran.values() for one in shown)
    return list(ran.values())


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    name = new_stream()
    kafka.create(name, 3)
    kafka.send(
        (name, partition, None, b"x") for partition, count in ((0, 130_000), (1, 60_000), (2, 20)) for _ in range(count)
    )
    return name
