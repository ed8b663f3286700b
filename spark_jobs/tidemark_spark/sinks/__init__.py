"""Sinks: where results go. One module each, a small contract (`contract.py`); the stream file chooses."""

from __future__ import annotations

from pathlib import PurePosixPath

from tidemark.connections import kafka_bootstrap, lake_folder
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.latest_sink import HBaseLatestSink
from tidemark.streams.model import HBaseSink, ParquetSink
from tidemark.streams.opened import OpenStream
from tidemark_spark.outcomes import field_names
from tidemark_spark.sinks.contract import Sink
from tidemark_spark.sinks.hbase import HBaseResults
from tidemark_spark.sinks.hbase_latest import HBaseLatest
from tidemark_spark.sinks.kafka import KafkaResults
from tidemark_spark.sinks.parquet import ParquetResults

__all__ = ["Sink", "make_sinks", "parquet_base"]


def make_sinks(opened: OpenStream) -> list[Sink]:
    """The stream's sinks, in the order of its file."""
    sinks: list[Sink] = []
    for config in opened.stream.sinks:
        if isinstance(config, HBaseSink):
            table = opened.result_table(config.hbase, config.table)
            regions = opened.gateway2(config.hbase) if config.regions > 1 else None
            sinks.append(HBaseResults(config, table, field_names(opened.stream), regions))
        elif isinstance(config, HBaseLatestSink):
            latest = opened.latest_table(config.hbase, config.table)
            sinks.append(HBaseLatest(config, latest, opened.book, field_names(opened.stream)))
        elif isinstance(config, KafkaSink):
            servers = kafka_bootstrap(opened.connections(config.kafka))
            sinks.append(KafkaResults(config, servers, opened.stream.stream, field_names(opened.stream)))
        else:
            sinks.append(ParquetResults(config, parquet_base(opened, config), field_names(opened.stream)))
    return sinks


def parquet_base(opened: OpenStream, config: ParquetSink) -> str:
    """The folder that a Parquet sink writes below, as a URI."""
    base = lake_folder(opened.connections(config.files))
    root = base if "://" in base else f"file://{PurePosixPath(base)}"
    return f"{root}/{config.folder}"
