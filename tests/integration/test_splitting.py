"""The tasks that a plan shows are those that Spark runs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.playground import Kafka
from tests.support.stores import new_stream
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.splitting import reads, tasks
from tidemark_spark.columns import OFFSET, PARTITION
from tidemark_spark.rows.reading import read_offsets


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
    ranges = RangeSet(
        OffsetRange(TopicPartition(topic, at), start, until)
        for at, intervals in wanted.items()
        for start, until in intervals
    )
    read = read_offsets(spark, kafka.endpoint, "read_committed", ranges, {topic: 1})
    rows = read.select(F.spark_partition_id(), PARTITION, OFFSET).collect()
    ran: dict[int, set[tuple[int, int]]] = {}
    for task, at, offset in rows:
        ran.setdefault(task, set()).add((at, offset))
    shown = [{(one.partition.partition, offset) for offset in range(one.start, one.until)} for one in tasks(ranges)]
    # Each range is read by one task, whole. Only short ones share tasks.
    assert sum(map(len, shown)) == len(rows) == sum(map(len, ran.values()))
    assert all(any(one <= of_task for of_task in ran.values()) for one in shown)
    assert len(ran) == sum(one.tasks for one in reads(ranges))
    assert all(len(one) < 10_000 or one in ran.values() for one in shown)


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    name = new_stream()
    kafka.create(name, 3)
    kafka.send(
        (name, partition, None, b"x") for partition, count in ((0, 130_000), (1, 60_000), (2, 20)) for _ in range(count)
    )
    return name
