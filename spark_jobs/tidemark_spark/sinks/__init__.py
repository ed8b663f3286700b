"""Sinks: where results go. One module each, a small contract (`contract.py`); the stream file chooses."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column

from tidemark.connections import kafka_bootstrap
from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.delta_sink import DeltaSink
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.latest_sink import HBaseLatestSink
from tidemark.streams.model import HBaseSink
from tidemark.streams.opened import OpenStream
from tidemark.streams.schemes import Fields
from tidemark_spark.outcomes import field_names
from tidemark_spark.sinks.contract import Sink
from tidemark_spark.sinks.hbase import HBaseResults
from tidemark_spark.sinks.hbase_aggregates import HBaseAggregates
from tidemark_spark.sinks.hbase_latest import HBaseLatest
from tidemark_spark.sinks.kafka import KafkaResults
from tidemark_spark.sinks.parquet import ParquetResults

__all__ = ["Sink", "make_sinks", "refusals"]


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
        elif isinstance(config, HBaseAggregatesSink):
            aggregated = opened.aggregate_table(config.hbase, config.table)
            regions = opened.gateway2(config.hbase) if config.regions > 1 else None
            sinks.append(HBaseAggregates(config, aggregated, opened.book, opened.stream.fields, regions))
        elif isinstance(config, KafkaSink):
            servers = kafka_bootstrap(opened.connections(config.kafka))
            sinks.append(KafkaResults(config, servers, opened.stream.stream, field_names(opened.stream)))
        elif isinstance(config, DeltaSink):
            # An extra of the package, which other sinks do without.
            from tidemark_spark.sinks.delta import DeltaResults

            base = opened.files_base(config)
            sinks.append(DeltaResults(config, base, opened.stream.stream, opened.stream.fields))
        else:
            sinks.append(ParquetResults(config, opened.files_base(config), field_names(opened.stream)))
    return sinks


def refusals(sinks: Sequence[Sink], fields: Fields) -> list[Column]:
    """What the sinks say of rows that they can never take."""
    found = (sink.refusal(fields) for sink in sinks)
    return [one for one in found if one is not None]
