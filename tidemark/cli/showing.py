"""Where one message is: its windows, and what is stored of it."""

from __future__ import annotations

from typing import Any

from tidemark import runs
from tidemark.coordinates import Coordinate
from tidemark.ranges import RangeSet
from tidemark.results.reading import rows_of_piece
from tidemark.streams.model import HBaseSink
from tidemark.streams.opened import OpenStream


def where_is(opened: OpenStream, wanted: Coordinate) -> dict[str, Any]:
    """The windows that cover a coordinate, the newest first, and the rows that count there. Raises WrongUse."""
    (piece,) = runs.with_incarnations(opened, RangeSet([wanted.as_range()]))
    view = opened.book.view()
    counting = view.authority.of(piece.partition, piece.start)
    windows = [
        {
            "lane": window.record.lane,
            "seq": window.record.seq,
            "generation": str(window.generation),
            "run": window.record.attempt.run,
            "committed_at": window.record.committed_at,
            "counts": window.generation == counting,
        }
        for window in sorted(view.windows, key=lambda one: -one.generation)
        if window.covers & RangeSet([piece])
    ]
    tables = {
        one.name: opened.result_table(one.hbase, one.table) for one in opened.stream.sinks if isinstance(one, HBaseSink)
    }
    rows = []
    for place, table in {**tables, "dead letters": opened.dead_letter_table()}.items():
        view, found = rows_of_piece(opened.book, table, view, piece)
        rows += [
            {
                "place": place,
                "index": row.place.index,
                "tombstone": row.mark.tombstone,
                "fields": {name: value.decode(errors="backslashreplace") for name, value in row.fields.items()},
            }
            for row in found
        ]
    return {"coordinate": f"{piece.partition}@{piece.start}", "windows": windows, "rows": rows}
