"""Expressions of Spark's SQL that throw for some message, in a transform and in a check, and such messages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.rows import GIVEN_BACK

# An expression, and the fields `at` and `s` of a message.
Throwing = tuple[str, int, str]

_FAR = "+999999-01-01 00:00:00"
_MAX, _MAX_INT = 2**63 - 1, 2**31 - 1
_FORM = "'yyyy-MM-dd HH:mm:ss'"

# Each with a message for which it throws.
THROWING: list[Throwing] = [
    # Java's own exceptions.
    ("timestamp_millis(at)", _MAX, ""),
    ("timestamp_seconds(at)", _MAX, ""),
    (f"to_timestamp(s, {_FORM})", 0, _FAR),
    (f"try_to_timestamp(s, {_FORM})", 0, _FAR),
    (f"to_date(s, {_FORM})", 0, _FAR),
    (f"unix_timestamp(s, {_FORM})", 0, _FAR),
    ("timestamp_micros(at) + interval 300000 years", _MAX, ""),
    ("timestamp_micros(at) + interval 1 day", _MAX, ""),
    ("date_trunc('year', timestamp_micros(-at))", _MAX, ""),
    ("sequence(0L, at)", _MAX, ""),
    ("format_string(s, 1)", 0, "%z"),
    ("rlike(s, s)", 0, "("),
    ("timestampadd(YEAR, int(at), timestamp_micros(0))", _MAX_INT, ""),
    # Spark's, of any state.
    ("parse_json(s)", 0, "{"),
    ("to_number(s, '999')", 0, "x"),
    ("decode(unhex('ff'), s)", 0, "nocharset"),
    ("regexp_replace(s, '^.', s)", 0, "$9"),
    ("from_utc_timestamp(timestamp_micros(0), s)", 0, "Mars/Base"),
    ("date_format(timestamp_micros(0), s)", 0, "QQQQQQQ"),
    ("from_json(s, 'a int', map('mode', 'FAILFAST'))", 0, "{"),
    ("map_from_entries(array(struct(s, 1), struct(s, 2)))", 0, "x"),
    ("str_to_map(s)", 0, "a:1,a:2"),
    ("aes_decrypt(unhex(s), 'abcdefghijklmnop')", 0, "00"),
    ("url_decode(s)", 0, "%zz"),
    ("parse_url(s, 'HOST')", 0, "http://[x"),
    ("from_csv(s, 'a int', map('mode', 'FAILFAST'))", 0, "x"),
    ("reflect('java.lang.Integer', 'parseInt', s)", 0, "x"),
    ("make_timestamp(int(at), 1, 1, 0, 0, 0)", 999_999, ""),
    ("make_date(int(at), 1, 1)", _MAX_INT, ""),
    ("make_dt_interval(int(at))", _MAX_INT, ""),
    ("element_at(array(1), int(at))", 0, ""),
    ("array(1)[at]", 7, ""),
    ("raise_error(s)", 0, "No space left on device"),
    ("int(s)", 0, "java.lang.OutOfMemoryError: Java heap space"),
    ("1 div at", 0, ""),
    ("sequence(0, int(at))", _MAX_INT, ""),
    ("array_repeat(s, int(at))", _MAX_INT, ""),
    # Of a class that only this value asks for.
    ("reflect('java.lang.Class', 'forName', s)", 0, "no.such.Thing"),
    # Of a class that is a server's elsewhere.
    ("reflect('java.net.InetAddress', 'getByName', s)", 0, "[::"),
]
# What no memory is enough for.
TOO_LONG: list[Throwing] = [
    ("repeat(s, int(at))", _MAX_INT, "x"),
    ("lpad(s, int(at), 'xy')", _MAX_INT, ""),
    ("space(int(at))", _MAX_INT, ""),
]
# What needs more of a stack than a task has: the JVM has to live on.
TOO_DEEP: list[Throwing] = [
    ("rlike(s, '(a|b)*c')", 0, "ab" * 40_000),
]
# What makes another expression of one.
_WITHIN = (
    "{}",
    "coalesce({}, NULL)",
    "array({})",
    "struct({} AS a, s AS b)",
    "if(at IS NULL, NULL, {})",
    "transform(array(at), x -> {})",
    "filter(array(1, 2), x -> ({}) IS NOT NULL)",
    "named_struct('a', array({})).a[0]",
    "nvl2({}, 1, 2)",
)

SCHEME = {"type": "json", "fields": {"which": "integer", "at": "integer", "s": "string"}}


def drawn(seed: int, number: int) -> list[Throwing]:
    """So many expressions that are made of throwing ones."""
    chance = random.Random(seed)
    found = []
    for _ in range(number):
        sql, at, text = chance.choice([*THROWING, *TOO_LONG])
        for _ in range(chance.randrange(3)):
            sql = chance.choice(_WITHIN).format(sql)
        found.append((sql, at, text))
    return found


def values(given: Sequence[Throwing]) -> Iterator[bytes]:
    """For each expression one message, and after each a neighbour that no expression sees."""
    for number, (_, at, text) in enumerate(given):
        yield json.dumps({"which": number, "at": at, "s": text}).encode()
        yield json.dumps({"which": -1, "at": 1, "s": "x"}).encode()


def transform(given: Sequence[Throwing]) -> dict[str, Any]:
    """A transform that computes each expression for its own message alone."""
    cases = " ".join(f"WHEN which = {number} THEN length(string({sql}))" for number, (sql, *_) in enumerate(given))
    sql = f"SELECT {GIVEN_BACK}, CASE {cases} END AS made FROM messages"
    return {"sql": sql, "fields": {"made": "integer"}}


# Queries whose parts Spark may compute in another order, or for other rows than the text says.
_QUERIES = (
    "SELECT {columns}, made FROM (SELECT *, {cases} AS made FROM messages) WHERE made IS NULL OR made > -1",
    "SELECT {columns}, {cases} AS made FROM messages WHERE at % 2 = 0 AND length(string({one})) > 0 OR which < 5",
    "SELECT {columns}, {cases} AS made FROM messages WHERE s IN (SELECT s FROM messages WHERE at > 0) AND ({one}) IS NOT NULL",
    "SELECT {columns}, {cases} AS made FROM messages WHERE which IN (SELECT max(which) FROM messages GROUP BY at % 3)",
    "SELECT {columns}, {cases} AS made FROM messages WHERE EXISTS (SELECT 1 FROM messages m WHERE m.which > messages.which)",
    "SELECT {columns}, max({cases}) OVER (ORDER BY _offset ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS made FROM messages",
    "SELECT {columns}, if(s RLIKE '^[a-z]', {cases}, length(string({one}))) AS made FROM messages",
    "SELECT {others}, n AS _index, {cases} + n AS made FROM messages LATERAL VIEW explode(sequence(0, abs(which) % 3)) AS n",
    "SELECT {others}, n AS _index, {cases} AS made FROM messages LATERAL VIEW posexplode(split(string({one}), '')) AS n, piece",
    "SELECT {columns}, {cases} AS made FROM messages JOIN (SELECT s AS t, count(*) AS n FROM messages GROUP BY s) ON s = t",
)


def query(seed: int, given: Sequence[Throwing]) -> dict[str, Any]:
    """A transform with subqueries, guards, windows or generators, in which the expressions stand."""
    chance = random.Random(seed)
    cases = " ".join(f"WHEN which = {number} THEN length(string({sql}))" for number, (sql, *_) in enumerate(given))
    others = GIVEN_BACK.replace(", _index", "")
    one = chance.choice(given)[0]
    sql = _QUERIES[seed % len(_QUERIES)].format(columns=GIVEN_BACK, others=others, cases=f"CASE {cases} END", one=one)
    return {"sql": sql, "fields": {"made": "integer"}}


# What a message has beside what a transform makes of it.
BESIDE = {"which": "integer", "at": "integer", "s": "string", "t": "timestamp"}
# Texts that are also keys, the names of folders and topics, and values of cells.
_NAMES = [
    "",
    " ",
    "\x00",
    "a/b=c",
    "__HIVE_DEFAULT_PARTITION__",
    "..",
    "NL",
    "nl",
    "\u00e9\u0301",
    "x" * 3_000,
    "\ufffd",
    "%2F",
]
_TIMES = ["2026-11-21T07:10:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1582-10-10T00:00:00Z"]


def wide_transform(seed: int, given: Sequence[Throwing]) -> dict[str, Any]:
    """As `transform`, with the message's own fields beside; it may drop messages, and make several rows of one."""
    chance = random.Random(seed)
    cases = " ".join(f"WHEN which = {number} THEN length(string({sql}))" for number, (sql, *_) in enumerate(given))
    index = "_index"
    source = "messages"
    if chance.random() < 0.3:
        index, source = "copy AS _index", "messages LATERAL VIEW explode(sequence(0, abs(at) % 3)) AS copy"
    where = chance.choice(["", " WHERE which IS NOT NULL", " WHERE at % 7 <> 3 OR at IS NULL"])
    sql = f"SELECT {GIVEN_BACK.replace('_index', index)}, {', '.join(BESIDE)}, CASE {cases} END AS made FROM {source}{where}"
    return {"sql": sql, "fields": {**BESIDE, "made": "integer"}}


def drawn_sinks(seed: int, name: str) -> list[dict[str, Any]]:
    """Sinks of any type, with any settings that a stream file may have. The topic is called as the stream."""
    chance = random.Random(seed)
    folders = ["which", "at", "s", "made", "date(t)", "hour(t)"]
    cells = chance.choice([{}, {"max_cell_bytes": 1_000}])
    sinks: list[dict[str, Any]] = [
        {"type": "hbase", "table": name, "packed": chance.random() < 0.5, **cells},
        {
            "type": "parquet",
            "folder": name,
            "partition_by": chance.sample(folders, chance.randrange(5)),
            "compression": chance.choice(["snappy", "gzip", "zstd", "none"]),
        },
        {"type": "delta", "folder": f"{name}_delta"},
        {
            "type": "kafka",
            "topic": f"{name}-rows",
            "settings": {
                "max.request.size": chance.choice([1_024, 1_048_576]),
                "compression.type": chance.choice(_CODECS),
            },
            **chance.choice([{}, {"key": "s"}, {"key": "_key"}, {"value": "s"}, {"key": "at", "value": "t"}]),
        },
        {
            "type": "hbase_latest",
            "table": f"{name}_latest",
            "folder": f"{name}_latest",
            "key": chance.choice([["s"], ["at", "t"], ["which"]]),
            **cells,
        },
        {
            "type": "hbase_aggregates",
            "table": f"{name}_sums",
            "key": chance.choice([["s"], ["which", "t"]]),
            "values": {"n": "count", "total": {"sum": "at"}, "last": {"max": "t"}, "first": {"min": "s"}},
            "folder": f"{name}_sums",
        },
    ]
    return chance.sample(sinks, chance.randrange(1, len(sinks) + 1))


_CODECS = ["none", "gzip"]


def drawn_values(seed: int, given: Sequence[Throwing]) -> Iterator[bytes | None]:
    """Messages for some expressions, with texts and times that become names; and noise."""
    chance = random.Random(seed)
    for number, (_, at, text) in enumerate(given):
        own = {"which": number, "at": at, "s": text, "t": chance.choice(_TIMES)}
        yield json.dumps(own).encode()
        numbers = [0, -1, _MAX, -_MAX - 1, 10**15, None]
        yield json.dumps(
            {"at": chance.choice(numbers), "s": chance.choice(_NAMES), "t": chance.choice([None, *_TIMES])}
        ).encode()
    yield from (None, b"", b"{}", b"[]", b'{"s": 5}', b'{"at": 1e3}', b'{"t": "now"}', b"\xff", b'{"s": "\\ud800"}')


def checks(given: Sequence[Throwing]) -> list[dict[str, str]]:
    """A check for each of them, of its own message. Without Spark's errors for data, some expressions are null."""
    return [
        {"invalid_when": f"which = {number} AND string({sql}) IS NULL", "reason": "it is null, and not an error"}
        for number, (sql, *_) in enumerate(given)
    ]
