"""Where one message is: its windows, and what is stored of it."""

from __future__ import annotations

from typing import Any

from tidemark import runs
from tidemark.coordinates import Coordinate
from tidemark.ranges import RangeSet
from tidemark.results.reading import rows_at
from tidemark.streams.model import HBaseSink
from tidemark.streams.opened import OpenStream


def where_is(opened: OpenStream, wanted: Coordinate) -> dict[str, Any]:
    """The windows that cover a coordinate, the newest first, who jumped over it, and the rows that count. Raises WrongUse."""
    (piece,) = runs.with_incarnations(opened, RangeSet([wanted.as_range()]))
    place = Coordinate(piece.partition, piece.start)
    tables = {
        one.name: opened.result_table(one.hbase, one.table) for one in opened.stream.sinks if isinstance(one, HBaseSink)
    }
    found, rows = rows_at(opened.book, {**tables, "dead letters": opened.dead_letter_table()}, place)
    return {
        "coordinate": str(place),
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
                "fields": {field: value.decode(errors="backslashreplace") for field, value in row.fields.items()},
            }
            for name, stored in rows.items()
            for row in stored
        ],
    }
