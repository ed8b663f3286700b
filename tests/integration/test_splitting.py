"""The tasks that a plan shows are those that Spark runs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.playground import Kafka
from tests.support.stores import new_stream
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.splitting import tasks
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
    ran = read.groupBy(F.spark_partition_id(), PARTITION).agg(F.min(OFFSET), F.max(OFFSET)).collect()
    found = {OffsetRange(TopicPartition(topic, at), first, last + 1) for _, at, first, last in ran}
    assert found == set(tasks(ranges))
    # No task has read two ranges.
    assert len({row[0] for row in ran}) == len(ran)


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    name = new_stream()
    kafka.create(name, 3)
    kafka.send(
        (name, partition, None, b"x") for partition, count in ((0, 130_000), (1, 60_000), (2, 20)) for _ in range(count)
    )
    return name
