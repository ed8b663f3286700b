"""`tidemark show` and `tidemark results`: where one message is and what is stored of it, and the rows that count."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import Annotated, Any

import typer

from tidemark.cli import finding
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, line
from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import Coordinate, parse_coordinates
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import lanes
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.contract import Columns, SinkSettings, in_columns
from tidemark.sinks.dead_letters import described
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.reading import hbase_rows, rows_at
from tidemark.sinks.texts import place, texts
from tidemark.streams.model import DeadLetters

_OF_DEAD_LETTERS = ("reason", "attempts", "redrives", "key", "value")


def show(
    stream: Stream, coordinate: Annotated[str, typer.Argument(help="topic/partition@offset")], as_json: Json = False
) -> None:
    """Which windows have read a message, which of them counts, which window jumped over it, and what is stored of it.

    Example: tidemark show orders orders/3@91234
    """
    wanted = parse_coordinates(coordinate)
    if len(wanted) != 1:
        raise WrongUse(f"{coordinate!r}: expected one coordinate, topic/partition@offset")
    found = where_is(finding.opened(stream), wanted[0])
    if as_json:
        data(found, as_json=True)
        return
    windows = [
        [one["lane"], one["seq"], one["generation"], one["run"], "counts" if one["counts"] else ""]
        for one in found["windows"]
    ]
    data(found, as_json=False, rows=windows, columns=("lane", "window", "generation", "run", ""))
    for row in found["rows"]:
        fields = " ".join(f"{name}={value}" for name, value in row["fields"].items())
        words = ["tombstone", fields] if row["tombstone"] else [fields]
        line(f"{row['place']} index {row['index']}: {' '.join(words).rstrip()}")
    if not found["windows"]:
        line(f"{found['coordinate']} is in no committed window")
    for gap in found["gaps"]:
        line(f"{gap['kind']}: window {gap['seq']} of {gap['lane']} jumped over {gap['range']} ({gap['policy']})")


def results(
    stream: Stream,
    sink: Annotated[str | None, typer.Option(help="a sink by its name; the first one unless named")] = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="the dead letters instead of the results, with their reasons")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="at most so many rows")] = 20,
    as_json: Json = False,
) -> None:
    """Result rows that count: of HBase in the order of their coordinates or keys, of Parquet window by window, of Kafka as
    they stand in the topic.

    Example: tidemark results orders --limit 5
    """
    opened = finding.opened(stream)
    chosen = opened.stream.dead_letters if dead_letters else readable(opened, sink)
    with closing(rows_of(opened, chosen, limit)) as all_rows:
        found = list(islice(all_rows, limit))
    shown = _as_columns(opened, chosen, found)
    data(found, as_json=as_json, rows=shown.rows, columns=shown.names)


def where_is(opened: OpenStream, wanted: Coordinate) -> dict[str, Any]:
    """The windows that cover a coordinate, the newest first, who jumped over it, and the rows that count. Raises WrongUse."""
    (piece,) = lanes.with_incarnations(opened, RangeSet([wanted.as_range()]))
    at = Coordinate(piece.partition, piece.start)
    held = {one.name: kind_of(one.type).without_spark().table(opened, one) for one in opened.stream.sinks}
    tables = {name: table for name, table in held.items() if table is not None}
    found, rows = rows_at(opened.book, {**tables, "dead letters": opened.dead_letter_table()}, at)
    return {
        "coordinate": str(at),
        "windows": [
            {
                "lane": record.lane,
                "seq": record.seq,
                "generation": str(record.attempt.generation),
                "run": record.attempt.run,
                "committed_at": record.committed_at,
                "counts": record.attempt.generation == found.generation,
            }
            for record in found.windows
        ],
        "gaps": [
            {
                "lane": record.lane,
                "seq": record.seq,
                "kind": gap.kind.value,
                "policy": gap.policy,
                "range": str(gap.as_range()),
            }
            for record, gap in found.gaps
        ],
        "rows": [
            {
                "place": name,
                "index": row.place.index,
                "tombstone": row.mark.tombstone,
                "fields": texts(row.fields),
            }
            for name, stored in rows.items()
            for row in stored
        ],
    }


def readable(opened: OpenStream, name: str | None) -> SinkSettings:
    """The sink of this name, or the first one. Raises WrongUse naming those that there are."""
    sinks = {one.name: one for one in opened.stream.sinks}
    if name is not None and name not in sinks:
        raise WrongUse(f"{opened.stream.name} has no sink {name}; there are: {', '.join(sinks)}")
    return sinks[name] if name is not None else next(iter(sinks.values()))


def rows_of(
    opened: OpenStream, chosen: SinkSettings | DeadLetters, limit: int
) -> Generator[dict[str, Any], None, None]:
    """The rows of a sink, as its type shows them, or the dead letters; with the coordinate, where a row has one.

    `limit` is how many the caller takes at most: files are read only as far.
    """
    if isinstance(chosen, SinkSettings):
        yield from kind_of(chosen.type).without_spark().rows(opened, chosen, limit)
        return
    for row in hbase_rows(opened.book, opened.dead_letter_table()):
        yield {**place(row.place), **described(row)}


def _as_columns(opened: OpenStream, chosen: SinkSettings | DeadLetters, rows: Sequence[dict[str, Any]]) -> Columns:
    """The same rows as a table for people."""
    if isinstance(chosen, SinkSettings):
        return kind_of(chosen.type).without_spark().in_columns(chosen, list(opened.fields), rows)
    return in_columns(_OF_DEAD_LETTERS, rows)
