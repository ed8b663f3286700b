"""The workbench of the measures: servers, topics of CDN lines, and new streams that read them."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import happybase
import yaml
from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from demo.cdn_lines import STEP, messages
from services.site import REPOSITORY, Site
from tidemark.clients.hbase.endpoint import hbase_endpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.hbase.tables import ensure_table
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.splitting import records_per_task
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.windows import ingest
from tidemark.sinks.hbase.table import FAMILIES
from tidemark.spark.columns import INCARNATION, KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.rows.reading import read_offsets
from tidemark.streams.fetch import FetchSettings

EXAMPLE = REPOSITORY / "dags" / "streams" / "cdn_logs.yaml"
PARTITIONS = 4
# So many lines are different; a topic repeats them.
_DIFFERENT = 50_000


@dataclass
class Workbench:
    """`messages` and `pairs` are what the user asked for."""

    site: Site
    spark: SparkSession
    messages: int
    pairs: int
    # Topics with lines, and how many these are.
    _topics: dict[tuple[object, ...], str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _tables: list[str] = field(default_factory=list)

    @property
    def servers(self) -> str:
        return self.site.address("kafka")

    @cached_property
    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.servers)

    def create(self, partitions: int, **settings: str) -> str:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": settings}})
        return topic

    def lines(self, count: int, share_of_first: float = 1 / PARTITIONS) -> str:
        """A topic with so many CDN lines, of which its first partition holds a share. Made once."""
        number, rest = F.col("number"), PARTITIONS - 1
        of_first = (number % 1000) < round(share_of_first * 1000)
        partition = F.when(of_first, 0).otherwise(1 + number % rest).cast("int")
        return self._made(
            count,
            share_of_first,
            lambda: self._some_lines(count).select(partition.alias("partition"), "key", "value"),
        )

    def columns(self, count: int, fields: Mapping[str, str]) -> str:
        """A topic with so many lines of comma-separated fields: texts, integers and doubles of some digits. Made once."""
        number = F.col("id")
        digits = {"string": "concat('text-', {})", "integer": "{}", "double": "{} / 8"}
        each = [F.expr(digits[kind].format(f"(id * 31 + {at}) % 100000")) for at, kind in enumerate(fields.values())]
        line = F.concat_ws(",", *(one.cast("string") for one in each)).alias("value")
        partition = (number % PARTITIONS).cast("int").alias("partition")
        return self._made(count, len(fields), lambda: self.spark.range(count).select(partition, line))

    def objects(self, count: int, known: int, others: int) -> str:
        """A topic with so many JSON objects, with keys `a0`, `a1`, ... and others `b0`, `b1`, ... Made once."""
        keys = [*(f"a{at}" for at in range(known)), *(f"b{at}" for at in range(others))]
        each = [F.expr(f"concat('text-', (id * 31 + {at}) % 100000)").alias(key) for at, key in enumerate(keys)]
        value, partition = F.to_json(F.struct(*each)).alias("value"), (F.col("id") % PARTITIONS).cast("int")
        rows = self.spark.range(count).select(partition.alias("partition"), value)
        return self._made(count, (known, others), lambda: rows)

    def _made(self, count: int, which: object, rows: Callable[[], DataFrame]) -> str:
        if (count, which) not in self._topics:
            topic = self._topics[count, which] = self.create(PARTITIONS)
            self._numbers[topic] = count
            # Spark writes ten times as fast as one producer in Python.
            rows().withColumn("topic", F.lit(topic)).write.format("kafka").option(
                "kafka.bootstrap.servers", self.servers
            ).save()
        return self._topics[count, which]

    def _some_lines(self, count: int) -> DataFrame:
        since = datetime.now(UTC) - STEP * _DIFFERENT
        made = [(one.key, one.value) for one in messages(min(count, _DIFFERENT), since)]
        few = self.spark.createDataFrame(made, "key binary, value binary").repartition(4)
        times = self.spark.range(-(-count // len(made))).withColumnRenamed("id", "time")
        return few.crossJoin(times).limit(count).withColumn("number", F.monotonically_increasing_id())

    def everything(self, topic: str) -> RangeSet:
        partitions = open_stream(EXAMPLE).log.topics([topic], READ_COMMITTED)[topic].partitions
        return RangeSet(
            OffsetRange(TopicPartition(topic, number), log.start, log.end) for number, log in partitions.items()
        )

    def read(self, topic: str) -> DataFrame:
        """All messages of a topic, as Tidemark reads them."""
        return read_offsets(self.spark, KafkaEndpoint(self.servers), READ_COMMITTED, self.everything(topic), {topic: 0})

    def source(self, topic: str, *, stream: bool = False) -> DataFrame:
        """All messages of a topic, as Spark's own source reads them, under Tidemark's names."""
        reader: Any = self.spark.readStream if stream else self.spark.read
        ends = {} if stream else {"endingOffsets": "latest"}
        # As Tidemark's own consumers have it.
        consumers = {f"kafka.{name}": value for name, value in FetchSettings().settings().items()}
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": topic, **consumers, **ends}
        number, cores = self._numbers[topic], self.spark.sparkContext.defaultParallelism
        tasks = max(PARTITIONS, number // records_per_task(number, cores))
        read = reader.format("kafka").options(startingOffsets="earliest", minPartitions=str(tasks), **options).load()
        messages: DataFrame = read.select(
            F.col("topic").alias(TOPIC),
            F.lit(0).alias(INCARNATION),
            F.col("partition").alias(PARTITION),
            F.col("offset").alias(OFFSET),
            F.col("key").alias(KEY),
            F.col("value").alias(VALUE),
            F.col("timestamp").alias(TIMESTAMP),
        )
        return messages

    def stream(self, topic: str, *sinks: dict[str, Any], beside: bool = False, **changes: Any) -> OpenStream:
        """The example under another name and with other sinks: its tables are there, nothing of it has been read yet.

        `beside`: the streams that were made before are still needed.
        """
        if not beside:
            self._drop_tables()
        name = f"bench_{uuid.uuid4().hex[:8]}"
        stream = yaml.safe_load(EXAMPLE.read_text())
        # Nothing that it is compared with has one.
        del stream["transform"]
        stream |= {"stream": name, "sinks": [{**sink, **_place(sink, name)} for sink in sinks], **changes}
        stream["source"]["topics"] = [topic]
        stream["dead_letters"]["table"] = f"{name}_dead_letters"
        path = self.site.folder("bench") / f"{name}.yaml"
        path.write_text(yaml.safe_dump(stream, sort_keys=False))
        opened = open_stream(path)
        gateway = Gateway(hbase_endpoint(opened.connections(opened.stream.dead_letters.connection)))
        for table in (stream["dead_letters"]["table"], *(one["table"] for one in stream["sinks"] if "table" in one)):
            ensure_table(gateway, table, FAMILIES)
            self._tables.append(table)
        return opened

    def table(self) -> str:
        """A new HBase table with the family `d`."""
        self._drop_tables()
        name = f"bench_{uuid.uuid4().hex[:8]}"
        with closing(self.hbase()) as connection:
            connection.create_table(name, {"d": {}})
        self._tables.append(name)
        return name

    def _drop_tables(self) -> None:
        """Those of the run before: some millions of rows would fill the disk."""
        with closing(self.hbase()) as connection:
            while self._tables:
                connection.delete_table(self._tables.pop(), disable=True)

    def hbase(self) -> Any:
        """A connection of happybase."""
        return happybase.Connection("127.0.0.1", self.site.port("thrift"))

    def folder(self) -> Path:
        return self.site.folder("lake", "bench") / f"other_{uuid.uuid4().hex[:8]}"

    def close(self) -> None:
        self._drop_tables()
        for topic in self.admin.list_topics():
            if topic.startswith("bench-"):
                self.admin.delete_topics([topic])
        self.admin.close()
        shutil.rmtree(self.site.folder("lake", "bench"))
        shutil.rmtree(self.site.folder("bench"))


def window(opened: OpenStream) -> float:
    """Plan and process what a new stream has to read: pin, take, read, store, verify, commit, settle. Gives the seconds."""
    began = time.perf_counter()
    pending = ingest.plan_ingest(opened, "bench")
    assert pending is not None, f"{opened.stream.source.topics} are empty"
    process_windows(opened, INGEST, pending.window.seq, "bench")
    return time.perf_counter() - began


def _place(sink: dict[str, Any], name: str) -> dict[str, str]:
    return (
        {"folder": f"bench/{name}"}
        if sink["type"] == "parquet"
        else {"folder": f"bench/{name}_delta"}
        if sink["type"] == "delta"
        else {"table": f"{name}_{sink['type']}"}
    )
