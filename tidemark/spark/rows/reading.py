"""Step 3: exactly the pinned ranges, from Kafka into Spark.

Spark's own reader of Kafka fetches the records (KafkaSourceRDD). Our Java class `Messages.java` makes rows of them, and counts
them. Spark's source would ask Kafka for the ends of the log first, take one range of a partition, and make each row twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from tidemark.clients.kafka.clients import java_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import PartitionTally, check_once
from tidemark.planning.splitting import Read, parts, spread_over_tasks
from tidemark.spark.columns import (
    BEYOND_TIME,
    HEADERS,
    INCARNATION,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
)
from tidemark.spark.rows.tallying import count_of, digest_of
from tidemark.spark.runtime.compiling import compiled, new_instance
from tidemark.spark.runtime.frames import frame_of
from tidemark.spark.runtime.masking import masked_log
from tidemark.streams.fetch import FetchSettings
from tidemark.submit.command import local_cores

_USUAL = FetchSettings()
_COLUMNS = (
    f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, {OFFSET} long, {KEY} binary, {VALUE} binary, "
    f"{TIMESTAMP} timestamp, {TIMESTAMP_TYPE} int, {HEADERS} array<struct<key: string, value: binary>>, "
    f"{BEYOND_TIME} long"
)
_MESSAGES = Path(__file__).with_name("Messages.java")
_KAFKA_RECORDS = "org.apache.spark.sql.kafka010.KafkaSourceRDD"
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
# How much is fetched at once for short ranges that share tasks. By Kafka's default it is 1 MB, which the consumer also
# fetches behind each range, and throws away.
_FETCH_FOR_SHORT = 64 * 1024
# How long a task waits for a fetch, in ms: as Spark's own source waits.
_POLL_MS = 120_000


def read_offsets(
    spark: SparkSession,
    cluster: KafkaEndpoint,
    isolation: str,
    wanted: RangeSet,
    incarnations: Mapping[str, int],
    fetch: FetchSettings = _USUAL,
    *,
    sizes: Mapping[TopicPartition, float] | None = None,
    counted: Any = None,
) -> DataFrame:
    """The messages at the wanted offsets that Kafka still holds and that are visible under `isolation`.

    Columns: coordinate, key, value, timestamp with its type, headers, BEYOND_TIME. Fails for offsets below the log start.
    `sizes`, in bytes per record, tell which offsets between scattered ones are better read too. `counted`, a
    CollectionAccumulator, gets what each task has read: see `Messages.java`.
    """
    params = _settings(cluster, isolation, fetch)
    frames = [
        frame_of(spark, _records(spark, params, one, part, incarnations, counted=counted), _COLUMNS)
        for one, part in parts(wanted, sizes, _cores(spark))
    ]
    return reduce(DataFrame.unionAll, frames) if frames else no_messages(spark)


def counter(spark: SparkSession) -> Any:
    """An accumulator of lines: see `lines_of`."""
    context: Any = spark.sparkContext._jsc.sc()
    return context.collectionAccumulator()


def count_ranges(
    spark: SparkSession,
    cluster: KafkaEndpoint,
    isolation: str,
    ranges: Sequence[OffsetRange],
    incarnations: Mapping[str, int],
    fetch: FetchSettings = _USUAL,
    watch: Callable[[Any], None] = lambda counted: None,
) -> list[PartitionTally]:
    """The messages of some ranges, as they are read and counted, and no more: tallies of ranges, or of parts of them.

    A range without messages has no tally. `watch` is given the accumulator before tasks add to it. Fails for offsets below
    the log start. Raises VerificationFailed when a message was read twice.
    """
    counted = counter(spark)
    watch(counted)
    params = _settings(cluster, isolation, fetch)
    for task in spread_over_tasks(ranges, cores=_cores(spark)):
        _records(spark, params, task, task.offsets, incarnations, counted=counted).count()
    tallies = counted_ranges(lines_of(spark, counted))
    check_once(((tally.at, again) for tally, again in tallies), "messages")
    return [tally for tally, _ in tallies]


def lines_of(spark: SparkSession, counted: Any, known: int = 0) -> list[list[str]]:
    """The words of the lines that tasks have added to an accumulator, without the first ones that are known."""
    jvm: Any = spark.sparkContext._jvm
    lines = counted.value()
    text = jvm.java.lang.String.join("\n", lines.subList(known, lines.size()) if known else lines)
    return [line.split(" ") for line in text.splitlines()]


class ReadProgress:
    """The messages of each partition that tasks have read which have ended, to be shown: what is read twice counts twice."""

    def __init__(self, spark: SparkSession, *counted: Any) -> None:
        self._spark = spark
        # Accumulators, each with how many of its lines are known.
        self._counted = [(one, 0) for one in counted]
        self._found: dict[str, int] = {}

    def watch(self, counted: Any) -> None:
        """Count what this accumulator gets, too."""
        self._counted.append((counted, 0))

    def __call__(self) -> dict[str, int]:
        # Whatever is wrong with Spark: the job itself says so.
        with suppress(Exception):
            for place, (counted, known) in enumerate(self._counted):
                lines = lines_of(self._spark, counted, known)
                self._counted[place] = counted, known + len(lines)
                for topic, incarnation, partition, number, *_ in lines:
                    at = str(TopicPartition(topic, int(partition), int(incarnation)))
                    self._found[at] = self._found.get(at, 0) + int(number)
        return dict(self._found)


def counted_ranges(lines: Iterable[Sequence[str]]) -> list[tuple[PartitionTally, int]]:
    """The counts of `Messages.java` for each range that a task has read, and how many messages came twice."""
    tallies = []
    for topic, incarnation, partition, number, ack, source, size, first, last, again, *times in lines:
        earliest, latest = (None if time == "-" else int(time) for time in times)
        tally = PartitionTally(
            topic=topic,
            incarnation=int(incarnation),
            partition=int(partition),
            read=count_of(int(number), int(ack)),
            source=digest_of(int(source)),
            first=int(first),
            last=int(last),
            bytes=int(size),
            first_timestamp=earliest,
            last_timestamp=latest,
        )
        tallies.append((tally, int(again)))
    return tallies


def no_messages(spark: SparkSession) -> DataFrame:
    """An empty frame with the columns of messages."""
    return spark.createDataFrame([], _COLUMNS)


def _cores(spark: SparkSession) -> int | None:
    """As a plan knows them."""
    return local_cores(spark.sparkContext.master or "")


def _settings(cluster: KafkaEndpoint, isolation: str, fetch: FetchSettings) -> dict[str, str]:
    """The settings of the consumers in Spark's tasks. They hold secrets."""
    return {
        **fetch.settings(),
        **java_settings(cluster),
        "isolation.level": isolation,
        "key.deserializer": _BYTES,
        "value.deserializer": _BYTES,
        # Tasks look nothing up, even when they run again: each range says where it begins and ends.
        "auto.offset.reset": "none",
        "enable.auto.commit": "false",
    }


def _records(
    spark: SparkSession,
    params: Mapping[str, str],
    read: Read,
    wanted: RangeSet,
    incarnations: Mapping[str, int],
    *,
    counted: Any,
) -> Any:
    """The rows of `Messages.java`, as Java's RDD. All that is wanted lies in what is read."""
    if read.tasks < len(read.ranges):
        params = {"max.partition.fetch.bytes": str(_FETCH_FOR_SHORT), **params}
    ranges = _lines(read.ranges, incarnations)
    rows = new_instance(compiled(spark.sparkContext, _MESSAGES), ranges, counted, masked_log(spark.sparkContext))
    if wanted != read.offsets:
        context: Any = spark.sparkContext._jsc
        with NamedTemporaryFile(prefix="tidemark-wanted-") as file:
            lines = _write_bounds(wanted, file)
            rows.share(context.broadcast(rows.wanted(lines, file.name)))
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.java.util.HashMap()
    # Nothing joins a group. Spark keeps consumers, and what they have fetched, by its name: no read shares them with another,
    # since a log may have been truncated and filled again meanwhile.
    settings.put("group.id", f"tidemark-{secrets.token_hex(8)}")
    for name, value in params.items():
        settings.put(name, value)
    records = getattr(jvm, _KAFKA_RECORDS)(
        spark.sparkContext._jsc.sc(),
        settings,
        jvm.scala.jdk.javaapi.CollectionConverters.asScala(rows.ranges()).toList(),
        _POLL_MS,
        # failOnDataLoss
        True,
    )
    made = records.toJavaRDD().mapPartitions(rows)
    return made.coalesce(read.tasks) if read.tasks < len(read.ranges) else made


def _lines(ranges: Iterable[OffsetRange], incarnations: Mapping[str, int]) -> str:
    """Ranges as `Messages.java` takes them."""
    return "\n".join(
        f"{at.topic} {incarnations[at.topic]} {at.partition} {range_.start} {range_.until}"
        for range_ in ranges
        for at in (range_.partition,)
    )


def _write_bounds(wanted: RangeSet, file: IO[bytes]) -> str:
    """Writes the wanted ranges of each partition as `Messages.java` takes them, and says whose they are.

    To a file, since text is all that py4j sends: a million numbers take it longer than a file by far.
    """
    for at in wanted.partitions:
        intervals = wanted.of(at)
        file.write(np.fromiter(chain.from_iterable(intervals), np.int64, 2 * len(intervals)).data)
    file.flush()
    return "\n".join(f"{at.topic} {at.partition} {2 * len(wanted.of(at))}" for at in wanted.partitions)
