"""Result rows that count, as `tidemark results` shows them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tidemark.connections import kafka_bootstrap
from tidemark.errors import WrongUse
from tidemark.results.hbase_rows import Place
from tidemark.results.hbase_table import StoredRow
from tidemark.results.kafka_messages import kafka_messages
from tidemark.results.reading import hbase_rows
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.latest_sink import HBaseLatestSink
from tidemark.streams.model import DeadLetters, HBaseSink
from tidemark.streams.opened import OpenStream


def readable(opened: OpenStream, name: str | None) -> HBaseSink | HBaseLatestSink | KafkaSink:
    """The sink of this name, or the first one that can be shown. Raises WrongUse naming those that there are."""
    sinks = {one.name: one for one in opened.stream.sinks if isinstance(one, HBaseSink | HBaseLatestSink | KafkaSink)}
    if not sinks or (name is not None and name not in sinks):
        raise WrongUse(
            f"{opened.stream.stream} has no sink {name or ''} of type hbase, hbase_latest or kafka; "
            f"there are: {', '.join(sinks) or 'none'}"
        )
    return sinks[name] if name is not None else next(iter(sinks.values()))


def rows_of(
    opened: OpenStream, sink: HBaseSink | HBaseLatestSink | KafkaSink | DeadLetters
) -> Generator[dict[str, Any], None, None]:
    """Of HBase the fields of each row, of Kafka topic, key and value of each message; with the coordinate.

    Of a sink `hbase_latest` the newest value of each key, and whether that is a tombstone.
    """
    if isinstance(sink, KafkaSink):
        servers = kafka_bootstrap(opened.connections(sink.kafka))
        for message in kafka_messages(opened.book, servers, sink.targets()):
            shown = {"topic": message.topic, "key": _text(message.key), "value": _text(message.value)}
            yield {**_place(message.origin.place), **shown}
    elif isinstance(sink, HBaseLatestSink):
        for row in opened.latest_table(sink.hbase, sink.table).newest(opened.book.authority()):
            yield {**_place(row.place), "tombstone": row.mark.tombstone, "fields": _fields(row)}
    else:
        for row in hbase_rows(opened.book, opened.result_table(sink.hbase, sink.table)):
            yield {**_place(row.place), "fields": _fields(row)}


def _place(place: Place) -> dict[str, Any]:
    return {"coordinate": f"{place.partition}@{place.offset}", "index": place.index}


def _fields(row: StoredRow) -> dict[str, str | None]:
    return {name: _text(value) for name, value in row.fields.items()}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
