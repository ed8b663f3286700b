"""The results by Tidemark's own readers, plain and with Spark, in the oracle's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.independent import _text
from tests.support.oracle import Fields, Place
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.hbase.settings import HBaseSink
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.iceberg.settings import IcebergSink
from tidemark.sinks.kafka.messages import kafka_messages
from tidemark.sinks.kafka.settings import KafkaSink
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark.sinks.reading import delta_tables, hbase_rows, parquet_tables
from tidemark.sinks.stored_rows import StoredRow
from tidemark.streams.model import Sink

Rows = list[tuple[Place, Fields]]


def dead_letters(opened: OpenStream) -> Rows:
    return [_stored(row) for row in hbase_rows(opened.ledger, opened.dead_letter_table(), None)]


def results_of(opened: OpenStream, sinks: set[str], *, with_spark: bool) -> Iterator[tuple[str, Rows]]:
    """The results of each reader, for each of these sinks. Sinks without a row per message have tests of their own."""
    for sink in opened.stream.sinks:
        if sink.name in sinks and (plain := _plain(opened, sink)) is not None:
            yield f"{sink.name} by the plain reader", plain
            if with_spark:
                yield f"{sink.name} by the reader with Spark", _with_spark(opened, sink)


def _plain(opened: OpenStream, sink: Sink) -> Rows | None:
    ledger = opened.ledger
    if isinstance(sink, HBaseSink):
        return [_stored(row) for row in hbase_rows(ledger, stream_table(opened, sink.hbase, sink.table), sink.name)]
    if isinstance(sink, ParquetSink | DeltaSink):
        read = delta_tables if isinstance(sink, DeltaSink) else parquet_tables
        return [_row(opened, row) for table in read(ledger, sink.name) for row in table.to_pylist()]
    if isinstance(sink, IcebergSink):
        from tidemark.sinks.iceberg.reading import iceberg_tables

        tables = iceberg_tables(ledger, sink.name, opened.connections)
        return [_row(opened, row) for table in tables for row in table.to_pylist()]
    if isinstance(sink, KafkaSink) and sink.value is None:
        messages = kafka_messages(ledger, kafka_endpoint(opened.connections(sink.kafka)), sink.targets(), sink.name)
        places = ((one.origin.place, one.value) for one in messages)
        return [
            ((at.partition.topic, at.partition.partition, at.offset, at.index), _json(opened, value))
            for at, value in places
        ]
    return None


def _with_spark(opened: OpenStream, sink: Sink) -> Rows:
    # Not every test has Spark.
    from pyspark.sql import SparkSession

    from tidemark.spark.sinks import results

    spark = SparkSession.builder.getOrCreate()
    return [_row(opened, row.asDict()) for row in results(spark, opened, sink.name).collect()]


def _stored(row: StoredRow) -> tuple[Place, Fields]:
    at = row.place.partition
    fields = {name: value.decode(errors="surrogateescape") for name, value in row.fields.items()}
    return (at.topic, at.partition, row.place.offset, row.place.index), fields


def _row(opened: OpenStream, row: dict[str, Any]) -> tuple[Place, Fields]:
    place = (row["_topic"], row["_partition"], row["_offset"], row["_index"])
    if "value" in row and "value" not in opened.stream.fields:
        return place, _json(opened, row["value"])
    return place, {name: _text(row[name]) for name in opened.stream.fields if row[name] is not None}


def _json(opened: OpenStream, value: bytes | None) -> Fields:
    """The fields of a message in Kafka; none for a tombstone."""
    found = {} if value is None else json.loads(value)
    texts = {name: _text(one) for name, one in found.items() if one is not None}
    times = [name for name in texts if opened.stream.fields[name] == "timestamp"]
    return {**texts, **{name: texts[name].replace("T", " ").replace(".000000Z", "") for name in times}}
