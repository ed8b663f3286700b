"""Result rows that count, as `tidemark results` shows them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tidemark.connections import kafka_bootstrap
from tidemark.errors import WrongUse
from tidemark.ranges import TopicPartition
from tidemark.results.aggregate_table import totals
from tidemark.results.dead_letters import described
from tidemark.results.hbase_rows import Place
from tidemark.results.hbase_table import StoredRow
from tidemark.results.kafka_messages import kafka_messages
from tidemark.results.reading import delta_rows, hbase_rows, parquet_rows
from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.delta_sink import DeltaSink
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.latest_sink import HBaseLatestSink
from tidemark.streams.model import DeadLetters, Sink
from tidemark.streams.opened import OpenStream
from tidemark.streams.parquet_sink import ParquetSink


def readable(opened: OpenStream, name: str | None) -> Sink:
    """The sink of this name, or the first one. Raises WrongUse naming those that there are."""
    sinks = {one.name: one for one in opened.stream.sinks}
    if name is not None and name not in sinks:
        raise WrongUse(f"{opened.stream.stream} has no sink {name}; there are: {', '.join(sinks)}")
    return sinks[name] if name is not None else next(iter(sinks.values()))


def rows_of(opened: OpenStream, sink: Sink | DeadLetters, limit: int) -> Generator[dict[str, Any], None, None]:
    """Of HBase, Parquet and Delta the fields of each row, of Kafka topic, key and value of each message; with the coordinate.

    Of a sink `hbase_latest` the newest value of each key, and whether that is a tombstone; of `hbase_aggregates` key and
    values of each key, without a coordinate. Of dead letters the window too, and what rows of older versions do not say.
    `limit` is how many the caller takes at most: files are read only as far.
    """
    if isinstance(sink, KafkaSink):
        servers = kafka_bootstrap(opened.connections(sink.kafka))
        for message in kafka_messages(opened.book, servers, sink.targets()):
            shown = {"topic": message.topic, "key": _text(message.key), "value": _text(message.value)}
            yield {**_place(message.origin.place), **shown}
    elif isinstance(sink, DeadLetters):
        for row in hbase_rows(opened.book, opened.dead_letter_table()):
            yield {**_place(row.place), **described(row)}
    elif isinstance(sink, ParquetSink | DeltaSink):
        read = delta_rows if isinstance(sink, DeltaSink) else parquet_rows
        for found in read(opened.book, sink.name, limit):
            at = TopicPartition(found["_topic"], found["_partition"], found["_incarnation"])
            fields = {name: _as_text(value) for name, value in found.items() if name[0] != "_" and value is not None}
            yield {**_place(Place(at, found["_offset"], found["_index"])), "fields": fields}
    elif isinstance(sink, HBaseLatestSink):
        for row in opened.latest_table(sink.hbase, sink.table).newest(opened.book.authority()):
            yield {**_place(row.place), "tombstone": row.mark.tombstone, "fields": _fields(row)}
    elif isinstance(sink, HBaseAggregatesSink):
        aggregates = sink.aggregates(opened.stream.fields)
        for key, values in totals(opened.book, opened.aggregate_table(sink.hbase, sink.table), aggregates):
            yield {
                "key": {name: _text(part) for name, part in zip(sink.key, key, strict=True)},
                "values": {one.name: _text(values.get(one.name)) for one in aggregates},
            }
    else:
        for row in hbase_rows(opened.book, opened.result_table(sink.hbase, sink.table)):
            yield {**_place(row.place), "fields": _fields(row)}


def _place(place: Place) -> dict[str, Any]:
    return {"coordinate": f"{place.partition}@{place.offset}", "index": place.index}


def _fields(row: StoredRow) -> dict[str, str | None]:
    return {name: _text(value) for name, value in row.fields.items()}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _as_text(value: str | bytes | bool | int | float) -> str:
    """A value of a file as the text that HBase has for it (but for the form of very large and very small doubles)."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
