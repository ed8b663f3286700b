"""SQL views of a ledger, for people and other tools: its windows, and the range of each partition of them.

The values are JSON that the database itself can read. So views also show a ledger that was restored or moved, and a
commit writes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tidemark.clients import dialects

# The counts of each partition of a window, and the fields of a tally that are added for them.
_COUNTS = {
    "messages_read": ["read"],
    "messages_stored": ["stored"],
    "messages_skipped": ["skipped"],
    "dead_letters": ["invalid", "failed"],
    "rows_stored": ["rows"],
}
# The fields of a range and of a tally in JSON that say of which partition it is, and the ends of a range.
_NUMBERS = ["incarnation", "partition"]
_PLACE = ["topic", *_NUMBERS]
_ENDS = ["from", "until"]


@dataclass(frozen=True)
class _Dialect:
    """How a database reads the JSON of a value. A path is its words with dots between."""

    kind: str
    # The name of the stream.
    stream: str
    # A text below a path, a number, and the length of a list.
    text: Callable[[str], str]
    number: Callable[[str], str]
    length: Callable[[str], str]
    # A time of a number of milliseconds since 1970.
    moment: Callable[[str], str]
    # A sum, which databases make a decimal number of, as a whole one again.
    total: Callable[[str], str]
    # Each object of a list below a path, or one without values, as a relation of this name.
    each: Callable[[str, str], str]
    # A field of such an object, and the number of one of its counts.
    field: Callable[[str, str], str]
    count: Callable[[str, str], str]
    # The rows whose keys begin with a word, and the key of the history record of a lane's window.
    below: Callable[[str], str]
    record: Callable[[str, str], str]


def _postgresql(table: str) -> _Dialect:
    value = f"{table}_json(l.value)"

    def at(path: str) -> str:
        return "{" + path.replace(".", ",") + "}"

    def field(of: str, name: str) -> str:
        text = f"({of}.value ->> '{name}')"
        return text if name == "topic" else f"{text}::bigint"

    return _Dialect(
        kind="postgresql",
        stream="convert_from(l.stream, 'UTF8')",
        text=lambda path: f"({value} #>> '{at(path)}')",
        number=lambda path: f"({value} #>> '{at(path)}')::bigint",
        length=lambda path: f"json_array_length({value} #> '{at(path)}')",
        moment=lambda number: f"to_timestamp({number} / 1000.0)",
        total=lambda number: f"SUM({number})::bigint",
        each=lambda path, name: (
            f"LEFT JOIN LATERAL json_array_elements({value} #> '{at(path)}') AS {name} (value) ON true"
        ),
        field=field,
        count=lambda of, name: f"({of}.value -> '{name}' ->> 0)::bigint",
        below=lambda word: f"l.key > '{word}/' AND l.key < '{word}0'",
        record=lambda lane, seq: f"convert_to('history/' || {lane} || '/' || lpad(({seq})::text, 19, '0'), 'UTF8')",
    )


def _mysql(_: str) -> _Dialect:
    text = "CONVERT(l.value USING utf8mb4)"
    value = f"IF(JSON_VALID({text}), {text}, NULL)"
    columns = ", ".join(
        (
            "topic VARCHAR(255) PATH '$.topic'",
            *(f"`{name}` BIGINT PATH '$.{name}'" for name in [*_NUMBERS, *_ENDS]),
            *(f"`{name}` BIGINT PATH '$.{name}[0]'" for names in _COUNTS.values() for name in names),
        )
    )
    return _Dialect(
        kind="mysql",
        stream="CONVERT(l.stream USING utf8mb4)",
        text=lambda path: f"JSON_VALUE({value}, '$.{path}')",
        number=lambda path: f"CAST(JSON_VALUE({value}, '$.{path}') AS SIGNED)",
        length=lambda path: f"JSON_LENGTH({value}, '$.{path}')",
        moment=lambda number: f"TIMESTAMPADD(MICROSECOND, 1000 * {number}, TIMESTAMP'1970-01-01 00:00:00')",
        total=lambda number: f"CAST(SUM({number}) AS SIGNED)",
        each=lambda path, name: f"LEFT JOIN JSON_TABLE({value}, '$.{path}[*]' COLUMNS ({columns})) AS {name} ON TRUE",
        field=lambda of, name: f"{of}.{name}",
        count=lambda of, name: f"{of}.{name}",
        below=lambda word: f"l.key > '{word}/' AND l.key < '{word}0'",
        record=lambda lane, seq: f"CONCAT('history/', {lane}, '/', LPAD({seq}, 19, '0'))",
    )


def _sqlite(_: str) -> _Dialect:
    value = "CASE WHEN json_valid(CAST(l.value AS TEXT)) THEN CAST(l.value AS TEXT) END"
    return _Dialect(
        kind="sqlite",
        stream="CAST(l.stream AS TEXT)",
        text=lambda path: f"json_extract({value}, '$.{path}')",
        number=lambda path: f"json_extract({value}, '$.{path}')",
        length=lambda path: f"json_array_length({value}, '$.{path}')",
        moment=lambda number: f"strftime('%Y-%m-%d %H:%M:%f', {number} / 1000.0, 'unixepoch')",
        total=lambda number: f"SUM({number})",
        each=lambda path, name: f"LEFT JOIN json_each({value}, '$.{path}') AS {name} ON true",
        field=lambda of, name: f"json_extract({of}.value, '$.{name}')",
        count=lambda of, name: f"json_extract({of}.value, '$.{name}[0]')",
        below=lambda word: f"l.key > CAST('{word}/' AS BLOB) AND l.key < CAST('{word}0' AS BLOB)",
        record=lambda lane, seq: f"CAST('history/' || {lane} || '/' || printf('%019d', {seq}) AS BLOB)",
    )


_DIALECTS = {"postgresql": _postgresql, "mysql": _mysql, "sqlite": _sqlite}


def helpers(kind: str, table: str) -> tuple[str, ...]:
    """Functions of the views. One value that is no JSON would be an error of every query, and PostgreSQL can only try."""
    if kind != "postgresql":
        return ()
    return (
        f"CREATE OR REPLACE FUNCTION {table}_json(value bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN "
        "RETURN convert_from(value, 'UTF8')::json; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$",
    )


@cache
def views(kind: str, table: str) -> dict[str, str]:
    """The names of the views of a ledger's table, each with the query behind it."""
    said = _DIALECTS[kind](table)
    return {
        f"{table}_windows": _everywhere(said, table, _windows),
        f"{table}_ranges": _everywhere(said, table, _ranges),
    }


def _everywhere(said: _Dialect, table: str, query: Callable[[_Dialect, str], tuple[str, str, str]]) -> str:
    """The windows of the history, the last of each lane that is not there yet, and those at work."""
    parts = []
    # A store that settles a window after its commit keeps its record in the head until then: see `backup.py`.
    record = said.record(said.text("lane"), said.number("last.window.seq"))
    settled = f"SELECT 1 FROM {table} h WHERE h.stream = l.stream AND h.key = {record}"  # noqa: S608
    for word, path, state, condition in (
        ("history", "", "committed", f" AND {said.number('window.seq')} IS NOT NULL"),
        (
            "head",
            "last.",
            "committed",
            f" AND {said.number('last.window.seq')} IS NOT NULL AND NOT EXISTS ({settled})",
        ),
        ("head", "pending.", "pending", f" AND {said.number('pending.window.seq')} IS NOT NULL"),
    ):
        columns, joined, grouped = query(said, path)
        window = f"{_window(said, path)}, '{state}' AS state, {columns}"
        parts.append(f"SELECT {window} FROM {table} l {joined} WHERE {said.below(word)}{condition}{grouped}")  # noqa: S608
    return " UNION ALL ".join(parts)


def _window(said: _Dialect, path: str) -> str:
    return ", ".join(
        (
            f"{said.stream} AS stream",
            f"{said.text('lane')} AS lane",
            f"{said.number(f'{path}window.seq')} AS seq",
        )
    )


def _windows(said: _Dialect, path: str) -> tuple[str, str, str]:
    columns = (
        f"{said.text('kind')} AS kind",
        f"{said.text(f'{path}window.run')} AS run",
        f"{said.text(f'{path}window.reason')} AS reason",
        f"{said.number(f'{path}attempt.generation')} AS generation",
        f"{said.length(f'{path}window.ranges')} AS partitions",
        *(
            f"{said.total(' + '.join(said.count('t', field) for field in fields))} AS {name}"
            for name, fields in _COUNTS.items()
        ),
        f"{said.moment(said.number(f'{path}window.pinned_at'))} AS pinned_at",
        f"{said.moment(said.number(f'{path}committed_at'))} AS committed_at",
    )
    return ", ".join(columns), said.each(f"{path}receipt.tallies", "t"), " GROUP BY l.stream, l.key, l.value"


def _ranges(said: _Dialect, path: str) -> tuple[str, str, str]:
    same = " AND ".join(f"{said.field('r', column)} = {said.field('t', column)}" for column in _PLACE)
    columns = (
        f"{said.field('r', 'topic')} AS topic",
        f"{said.field('r', 'incarnation')} AS incarnation",
        f"{said.field('r', 'partition')} AS {dialects.quoted(said.kind, 'partition')}",
        f"{said.field('r', 'from')} AS from_offset",
        f"{said.field('r', 'until')} AS until_offset",
        *(f"{' + '.join(said.count('t', field) for field in fields)} AS {name}" for name, fields in _COUNTS.items()),
        f"{said.moment(said.number(f'{path}committed_at'))} AS committed_at",
    )
    ranges = said.each(f"{path}window.ranges", "r").replace("LEFT JOIN", "JOIN", 1)
    tallies = said.each(f"{path}receipt.tallies", "t")
    tallies = f"{tallies[: tallies.rindex(' ON ')]} ON {same}"
    return ", ".join(columns), f"{ranges} {tallies}", ""
