"""`tidemark show` and `tidemark results`: where one message is and what is stored of it, and the rows that count."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.browsing import answers
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, error, line, moment
from tidemark.errors import WrongUse
from tidemark.ledger.elsewhere import for_readers
from tidemark.offsets.counting import number_of
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.contract import Columns, SinkSettings, in_columns
from tidemark.sinks.dead_letters import described
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.reading import hbase_rows
from tidemark.sinks.stored_rows import Place
from tidemark.sinks.texts import place, texts
from tidemark.streams.model import DeadLetters
from tidemark.views.browsing import results as browsing
from tidemark.views.browsing.items import Item
from tidemark.views.browsing.messages import MessageQuery
from tidemark.views.browsing.places import SearchScope
from tidemark.views.messages import message as message_view
from tidemark.views.messages import trace
from tidemark.views.messages.payloads import Value
from tidemark.views.messages.record import record_of
from tidemark.views.values import as_plain

_OF_DEAD_LETTERS = ("reason", "attempts", "redrives", "key", "value")


def show(
    stream: Stream,
    coordinate: Annotated[
        str,
        typer.Argument(help="topic/partition@offset; or with a time like 2026-11-21T07:00:00Z instead of the offset"),
    ],
    message: Annotated[bool, typer.Option("--message", help="also the message itself, as Kafka has it")] = False,
    as_json: Json = False,
) -> None:
    """Trace a message: what became of it, in which window, by which run, and its stored rows.

    Also the other windows that have read it, the policy that skipped it, and whether Kafka still holds it.

    Example: tidemark show orders orders/3@91234
    """
    opened = stream_lookup.opened(stream)
    located = trace.located(opened, trace.coordinate(opened, coordinate))
    values = message_view.as_values(located)
    the_message = record = None
    if message:
        the_message = message_view.message_shown(located.message)
        record = message_view.record_shown(record_of(opened.stream, opened.connections, located.message))
    if as_json:
        data({**as_plain(values), **({"message": the_message, "record": record} if message else {})}, as_json=True)
        return
    line(f"{values.coordinate}: {values.sentence}")
    windows = [
        [window.lane, window.seq, window.generation, window.run, window.counts_said()] for window in values.windows
    ]
    if windows:
        data(values, as_json=False, rows=windows, columns=("lane", "window", "generation", "run", ""))
    for row in values.rows:
        words = ["tombstone"] if row.tombstone else []
        line(f"{row.place} index {row.index}: {' '.join([*words, _named(row.fields)]).rstrip()}")
    for under in values.under_keys:
        line(f"{under.place}, under {_named(under.key)}: {_named(under.fields)} ({under.said})")
    for sink in values.unsaid:
        line(f"{sink.place}: {sink.why}")
    for gap in values.gaps:
        line(f"{gap.kind}: window {gap.seq} of {gap.lane} jumped over {gap.range} ({gap.policy})")
    line(f"Kafka: {values.kafka.sentence}")
    _show_message(the_message)
    _show_record(record)


def _named(fields: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _show_message(message: message_view.MessageContents | None) -> None:
    if message is None:
        return
    set_by = "the broker" if message.appended else "the producer"
    line(f"time: {moment(message.timestamp) or 'none'}, set by {set_by}")
    parts = [("key", message.key), ("value", message.value)]
    parts += [(f"header {header.name.text}", header.value) for header in message.headers]
    for name, value in parts:
        line(
            f"{name}, {number_of(value.bytes, 'byte')}: {_text(value)}" if isinstance(value, Value) else f"{name}: none"
        )
    if message.more_headers:
        line(f"{message.more_headers} more headers")


def _show_record(shown: message_view.RecordShown | None) -> None:
    if shown is not None:
        line(f"read by {shown.by}: {_text(shown.text)}" if shown.text is not None else f"not read: {shown.problem}")


def _text(value: Value) -> str:
    return value.text + (f" ({number_of(value.more, 'byte')} more)" if value.more else "")


def results(
    stream: Stream,
    sink: Annotated[str | None, typer.Option(help="the name of a sink; by default the first one")] = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="the dead letters instead of the results, with their reasons")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="at most this many rows")] = 20,
    filter_: Annotated[
        str, typer.Option("--filter", help="""only rows whose fields match, such as 'amount < 0 and state = "open"'""")
    ] = "",
    where: Annotated[str, typer.Option(help="only those of TOPIC, TOPIC/PARTITION or TOPIC/PARTITION@FROM-UNTIL")] = "",
    window: Annotated[str, typer.Option(help="only those of this lane, or of one window of it, LANE/NUMBER")] = "",
    since: Annotated[
        str, typer.Option(help="only those of windows that have read a message at or after this time")
    ] = "",
    until_time: Annotated[str, typer.Option(help="only those of windows that have read a message before it")] = "",
    as_json: Json = False,
) -> None:
    """The rows of a sink that count, or the dead letters.

    Rows in HBase come in the order of their coordinates or keys, rows in files window by window, and messages in the order
    of their topic. With a filter, a window or a time, all come in the order of their coordinates. `tidemark messages
    --help` says how a filter is written.

    Example: tidemark results orders --limit 5 --filter 'amount < 0'
    """
    opened = stream_lookup.opened(stream)
    chosen = opened.stream.dead_letters if dead_letters else readable(opened, sink)
    asked = MessageQuery(SearchScope(where, window, since, until_time), filter_, limit)
    if asked != MessageQuery(count=limit):
        if dead_letters:
            raise WrongUse("tidemark messages --dead-letters takes a filter, a window and times")
        parts = list(answers(partial(browsing.results, sink=sink), opened, asked))
        rows = [_row(item) for one in parts for item in one.items][:limit]
        if len(rows) < limit and (left_out := sum(one.left_out for one in parts)):
            error(f"at least {number_of(left_out, 'more row')} left out, of messages with very many")
    else:
        with closing(read_rows(opened, chosen, limit)) as all_rows:
            rows = list(islice(all_rows, limit))
    shown = _as_columns(opened, chosen, rows)
    data(rows, as_json=as_json, rows=shown.rows, columns=shown.names)


def _row(item: Item) -> dict[str, Any]:
    deleted = {} if item.deleted is None else {"deleted": item.deleted}
    return {**place(Place(item.at.partition, item.at.offset, item.index)), "fields": texts(item.fields), **deleted}


def readable(opened: OpenStream, name: str | None) -> SinkSettings:
    """The sink of this name, or the first one. Raises WrongUse naming those that there are."""
    sinks = {sink.name: sink for sink in opened.stream.sinks}
    if name is not None and name not in sinks:
        raise WrongUse(f"{opened.stream.name} has no sink {name}; there are: {', '.join(sinks)}")
    return sinks[name] if name is not None else next(iter(sinks.values()))


def read_rows(
    opened: OpenStream, chosen: SinkSettings | DeadLetters, limit: int
) -> Generator[dict[str, Any], None, None]:
    """The rows of a sink, as its type shows them, or the dead letters; with the coordinate, where a row has one.

    `limit` is how many the caller takes at most: files are read only as far.
    """
    opened = replace(opened, ledger=for_readers(opened.ledger))
    if isinstance(chosen, SinkSettings):
        yield from kind_of(chosen.type).make_admin().rows(opened, chosen, limit)
        return
    for row in hbase_rows(opened.ledger, opened.dead_letter_table(), None):
        yield {**place(row.place), **described(row)}


def _as_columns(opened: OpenStream, chosen: SinkSettings | DeadLetters, rows: Sequence[dict[str, Any]]) -> Columns:
    """The same rows as a table for people."""
    if isinstance(chosen, SinkSettings):
        return kind_of(chosen.type).make_admin().in_columns(chosen, list(opened.fields), rows)
    return in_columns(_OF_DEAD_LETTERS, rows)
