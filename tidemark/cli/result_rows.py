"""Result rows that count, as `tidemark results` shows them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tidemark.connections import kafka_bootstrap
from tidemark.errors import WrongUse
from tidemark.results.dead_letters import described
from tidemark.results.hbase_rows import Place
from tidemark.results.kafka_messages import kafka_messages
from tidemark.results.reading import hbase_rows
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.model import DeadLetters, HBaseSink
from tidemark.streams.opened import OpenStream


def readable(opened: OpenStream, name: str | None) -> HBaseSink | KafkaSink:
    """The sink of this name, or the first one that can be shown. Raises WrongUse naming those that there are."""
    sinks = {one.name: one for one in opened.stream.sinks if isinstance(one, HBaseSink | KafkaSink)}
    if not sinks or (name is not None and name not in sinks):
        raise WrongUse(
            f"{opened.stream.stream} has no sink {name or ''} of type hbase or kafka; there are: {', '.join(sinks) or 'none'}"
        )
    return sinks[name] if name is not None else next(iter(sinks.values()))


def rows_of(opened: OpenStream, sink: HBaseSink | KafkaSink | DeadLetters) -> Generator[dict[str, Any], None, None]:
    """Of HBase the fields of each row, of Kafka topic, key and value of each message; with the coordinate.

    Of dead letters the window too, and what rows of older versions do not say.
    """
    if isinstance(sink, KafkaSink):
        servers = kafka_bootstrap(opened.connections(sink.kafka))
        for message in kafka_messages(opened.book, servers, sink.targets()):
            shown = {"topic": message.topic, "key": _text(message.key), "value": _text(message.value)}
            yield {**_place(message.origin.place), **shown}
    elif isinstance(sink, DeadLetters):
        for row in hbase_rows(opened.book, opened.dead_letter_table()):
            yield {**_place(row.place), **described(row)}
    else:
        for row in hbase_rows(opened.book, opened.result_table(sink.hbase, sink.table)):
            yield {**_place(row.place), "fields": {name: _text(value) for name, value in row.fields.items()}}


def _place(place: Place) -> dict[str, Any]:
    return {"coordinate": f"{place.partition}@{place.offset}", "index": place.index}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
