"""Windows to Parquet, against Spark without Tidemark.

What Tidemark does besides: hashes and tallies, dead letters, reading the files back, Kafka's metadata before and after,
and the ledger in HBase.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.pairs import Pairs, in_pairs
from bench.workbench import EXAMPLE, Workbench, parsed_lines, window
from tidemark.runs.open_stream import open_stream
from tidemark_spark.columns import COORDINATE, INCARNATION, KEY, OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC, VALUE

_PARQUET = {"type": "parquet"}


def parquet(bench: Workbench) -> Pairs:
    topic = bench.lines(bench.messages)

    def ours() -> float:
        return window(bench.stream(topic, _PARQUET))

    def alone() -> None:
        _parse_and_write(bench.read(topic), str(bench.folder()))

    return in_pairs(bench.pairs, ours, alone)


def structured_streaming(bench: Workbench) -> Pairs:
    topic = bench.lines(bench.messages)

    def ours() -> float:
        return window(bench.stream(topic, _PARQUET))

    def query() -> None:
        folder = str(bench.folder())
        source = (
            bench.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bench.servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        messages = source.select(
            F.col("topic").alias(TOPIC),
            F.lit(0).alias(INCARNATION),
            F.col("partition").alias(PARTITION),
            F.col("offset").alias(OFFSET),
            F.col("key").alias(KEY),
            F.col("value").alias(VALUE),
            F.col("timestamp").alias(TIMESTAMP),
        )
        (
            messages.writeStream.trigger(availableNow=True)
            .option("checkpointLocation", f"{folder}_checkpoint")
            .foreachBatch(lambda batch, number: _parse_and_write(batch, f"{folder}/{number}"))
            .start()
            .awaitTermination()
        )

    return in_pairs(bench.pairs, ours, query)


def _parse_and_write(messages: DataFrame, folder: str) -> None:
    scheme = open_stream(EXAMPLE).stream.scheme
    parsed = parsed_lines(messages, scheme)
    kept = parsed.where(F.col(REASON).isNull())
    kept.select(*COORDINATE, *(f"`{name}`" for name in scheme.fields)).write.parquet(folder)
    parsed.unpersist()
