"""A window of the example through Tidemark, against Spark alone: read, parse, write Parquet, and nothing else.

What Tidemark does besides: hashes and tallies, dead letters, reading the files back, Kafka's metadata before and after,
and the ledger in HBase.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable

import yaml
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from services.site import REPOSITORY, Site
from tidemark import runs
from tidemark.kafka.topics import READ_COMMITTED
from tidemark.ledger.records import INGEST
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.streams.opened import OpenStream, open_stream
from tidemark_spark.columns import REASON
from tidemark_spark.reading import read_offsets
from tidemark_spark.schemes import parse
from tidemark_spark.window_job import process_windows

EXAMPLE = REPOSITORY / "dags" / "streams" / "cdn_logs.yaml"


def tidemark(site: Site, topic: str) -> Callable[[], None]:
    """One side: everything in the topic as one window of a new stream."""

    def run() -> None:
        opened = _new_stream(site, topic)
        pending = runs.plan_ingest(opened, "bench")
        assert pending is not None, f"{topic} is empty"
        process_windows(opened, INGEST, pending.window.seq, "bench")

    return run


def spark_alone(spark: SparkSession, site: Site, topic: str) -> Callable[[], None]:
    """The other side: the same messages, read and parsed in the same way, written by Spark."""
    example = open_stream(EXAMPLE)
    folder = site.folder("lake", "bench")

    def run() -> None:
        partitions = example.log.topics([topic], READ_COMMITTED)[topic].partitions
        everything = RangeSet(
            OffsetRange(TopicPartition(topic, number), log.start, log.end) for number, log in partitions.items()
        )
        messages = read_offsets(spark, example.log.bootstrap_servers, READ_COMMITTED, everything, {topic: 0})
        # Kept, as Tidemark keeps it: otherwise Spark evaluates the patterns once for the filter and again for each field.
        parsed = parse(messages, example.stream.scheme).persist(StorageLevel.MEMORY_AND_DISK)
        parsed.where(F.col(REASON).isNull()).write.parquet(str(folder / f"alone_{uuid.uuid4().hex[:8]}"))
        parsed.unpersist()

    return run


def clean_up(site: Site) -> None:
    shutil.rmtree(site.folder("lake", "bench"))
    shutil.rmtree(site.folder("bench"))


def _new_stream(site: Site, topic: str) -> OpenStream:
    """The example under another name, with one sink: nothing of it has been read yet."""
    name = f"bench_{uuid.uuid4().hex[:8]}"
    stream = yaml.safe_load(EXAMPLE.read_text())
    stream["stream"] = name
    stream["source"]["topics"] = [topic]
    stream["sinks"] = [{"type": "parquet", "folder": f"bench/{name}"}]
    stream["dead_letters"]["table"] = f"{name}_dead_letters"
    path = site.folder("bench") / f"{name}.yaml"
    path.write_text(yaml.safe_dump(stream, sort_keys=False))
    return open_stream(path)
