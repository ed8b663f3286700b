"""From messages to rows: none, one or many of each, into both sinks, read back, and audited."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from services.site import REPOSITORY
from tests.support.live_streams import Make
from tests.support.rows import (
    BATCHES,
    GIVEN_BACK,
    ORDERS,
    TRANSFORMED,
    assert_rows,
    messages_of,
    stream_of,
)
from tests.support.scheme_cases import CASES, PAIRS, Case, Message
from tidemark.errors import TidemarkError, TransformRefused, WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.offsets.tallies import Outcome as Became
from tidemark.runs.live.open_stream import open_stream
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.reading import hbase_rows
from tidemark.spark.columns import FAILURE, INDEX, KEY, OFFSET, OUTCOME, REASON, TOMBSTONE, VALUE, text
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows import outcomes
from tidemark.spark.rows.explode import EMPTY, UNSPLIT, in_pieces
from tidemark.spark.rows.pipeline import check_rows, rows_of
from tidemark.spark.rows.tallying import tallies
from tidemark.spark.sinks import make_sinks, refusals
from tidemark.streams.explode import Explode

# Decompress


def compressed(how: str, value: bytes) -> bytes:
    return gzip.compress(value, mtime=0) if how == "gzip" else pa.compress(value, codec=how, asbytes=True)


@pytest.mark.full
@pytest.mark.covers("N87")
@pytest.mark.parametrize("how", ["gzip", "zstd", "snappy"])
@pytest.mark.parametrize("explode", [None, {"lines": "\n"}])
def test_values_that_their_sender_has_compressed(spark: SparkSession, how: str, explode: dict[str, str] | None) -> None:
    stream = stream_of(
        scheme={"type": "json", "fields": {"id": "integer"}, "keep": ["value"]}, decompress=how, explode=explode
    )
    good, other = b'{"id": 5}', b'{"id": "x"}'
    whole = compressed(how, good)
    # Some kilobytes that stand for more than 64 MiB.
    bomb = compressed(how, bytes((64 << 20) + 1))
    values = [whole, None, compressed(how, other), good, b"", whole[:-4], bomb, compressed(how, b"")]
    rows = rows_of(messages_of(spark, values), stream)
    columns = (OFFSET, INDEX, OUTCOME, REASON, F.col("id"), F.col("`value`"), TOMBSTONE, VALUE)
    found = [tuple(row) for row in rows.frame.orderBy(OFFSET, INDEX).select(*columns).collect()]
    rows.close()
    given = {row[0]: row[7] for row in found}
    told = {row[0]: (row[2], row[3]) for row in found}
    assert found[0][4:7] == (5, good, False)
    assert found[1][4:7] == (None, None, True)
    assert told[0] == told[1] == (Became.STORED, None)
    assert told[2] == (Became.INVALID, "id is not an integer")
    assert [told[at] for at in (3, 4, 5)] == [(Became.INVALID, f"not {how}")] * 3
    assert told[6] == (Became.INVALID, "more than 67108864 bytes when it is decompressed")
    # An empty value of no pieces, or no JSON.
    assert told[7][0] == (Became.INVALID if explode is None else Became.SKIPPED)
    # A dead letter has the message's own bytes.
    assert [given[at] for at in (2, 3, 5)] == [values[at] for at in (2, 3, 5)]


@pytest.mark.covers("N110")
@pytest.mark.parametrize("explode", [None, {"json_array": "items"}])
def test_json_behind_the_number_of_its_schema(spark: SparkSession, explode: dict[str, str] | None) -> None:
    scheme = {"type": "json", "fields": {"id": "integer"}, "keep": ["value"], "wire_format": "confluent"}
    stream = stream_of(scheme=scheme, explode=explode)
    good, other = b'{"id": 5}', b'{"id": "x"}'
    whole, wrong = (one if explode is None else b'{"items": [' + one + b"]}" for one in (good, other))
    values = [
        b"\0\0\0\0\7" + whole,
        None,
        b"\0\xff\xff\xff\xff" + wrong,
        whole,
        b"\0\0\0\7",
        b"\1\0\0\0\7" + whole,
        b"\0" * 5,
    ]
    rows = rows_of(messages_of(spark, [*values]), stream)
    columns = (OFFSET, INDEX, OUTCOME, REASON, F.col("id"), F.col("`value`"), TOMBSTONE, VALUE)
    found = [tuple(row) for row in rows.frame.orderBy(OFFSET, INDEX).select(*columns).collect()]
    rows.close()
    assert found[0][2:7] == (Became.STORED, None, 5, good, False)
    assert found[1][2:7] == (Became.STORED, None, None, None, True)
    told = [row[3] for row in found[2:]]
    no_json = "not one JSON value, or a key stands twice in it"
    assert told == ["id is not an integer", *["not in the wire format of a schema registry"] * 3, no_json]
    # A dead letter has the message's own bytes.
    assert [bytes(row[7]) for row in found[2:]] == values[2:]


@pytest.mark.covers("N87")
def test_a_few_bytes_that_say_they_are_gigabytes(spark: SparkSession) -> None:
    """Snappy's streams allocate what a block says of itself, before they read it."""
    java = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
    frames = b"\xff\x06\0\0sNaPpY"
    too_long = b"\xff\xff\xff\xff\x07\0\0"
    blocks = [compressed("snappy", one) for one in (b'{"id": ', b"5}")]
    values: list[bytes | None] = [
        java + b"\0\0\0\x07" + too_long,
        frames + b"\0\x0b\0\0" + b"\1\2\3\4" + too_long,
        java + b"\x7f\xff\xff\xff\0",
        java + b"\xff\xff\xff\xff\0",
        java + b"\0\0",
        # Streams one behind the other are one.
        b"".join(java + len(one).to_bytes(4, "big") + one for one in blocks),
    ]
    stream = stream_of(scheme={"type": "json", "fields": {"id": "integer"}}, decompress="snappy")
    rows = rows_of(messages_of(spark, values), stream)
    told = [row[0] for row in rows.frame.orderBy(OFFSET).select(REASON).collect()]
    rows.close()
    assert told == [*["more than 67108864 bytes when it is decompressed"] * 2, *["not snappy"] * 3, None]


@pytest.mark.full
@pytest.mark.covers("N87")
@pytest.mark.usefixtures("spark")
def test_a_stream_of_compressed_values(make: Make) -> None:
    live = make(TRANSFORMED, decompress="zstd")
    orders = [{"id": number, "customer": "c", "paid": True, "lines": "a"} for number in range(20)]
    values = [compressed("zstd", json.dumps(order).encode()) for order in orders]
    live.kafka.send((live.topics[0], 0, b"key", value) for value in [*values, b"no zstd"])
    (window,) = live.ingest()
    assert sum(tally.rows.number for tally in window.tallies) == 20
    assert sum(tally.invalid.number for tally in window.tallies) == 1
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


# Explode

SPLITS: list[tuple[dict[str, Any], bytes | None, list[bytes] | str]] = [
    ({"lines": "\n"}, b"a\nb", [b"a", b"b"]),
    ({"lines": "\n"}, b"a\n\nb\n", [b"a", b"", b"b"]),
    ({"lines": "\n"}, b"\n", [b""]),
    ({"lines": "\n"}, b"", []),
    ({"lines": "\n"}, b"\xff\n\xc3\xa9\r", [b"\xff", b"\xc3\xa9\r"]),
    ({"lines": "é|"}, "aé|b|é".encode(), [b"a", "b|é".encode()]),
    ({"json_array": True}, b' [1, {"a" : "\\u00e9"}, "x y", null] ', [b"1", b'{"a" : "\\u00e9"}', b"x y", b"null"]),
    ({"json_array": True}, b"[]", []),
    (
        {"json_array": True},
        b"[0.12345678901234567890123456789012345678]",
        [b"0.12345678901234567890123456789012345678"],
    ),
    ({"json_array": True}, b'[1e3, 1.10, {"b": 1.10, "a": "1e3"}]', [b"1e3", b"1.10", b'{"b": 1.10, "a": "1e3"}']),
    ({"json_array": True}, b'["\\"1\\"", "", "null", [[]]]', [b'"1"', b"", b"null", b"[[]]"]),
    *(
        ({"json_array": True}, text, "not one JSON value, or a key stands twice in it")
        for text in (
            b"[1][2]",
            b"[1",
            b"",
            b" ",
            b"[1]}[2]",
            b'[1],"_all":[2]',
            b"[1],[2]",
            b"[1]]",
            b"[1]] junk",
            b"[1] //",
            b"[1, NaN]",
            b"['1']",
            b"[01]",
            b'[{"a": 1, "a": 2}]',
        )
    ),
    ({"json_array": True}, b'{"a": 1}', "not a JSON array"),
    ({"json_array": True}, b"null", "not a JSON array"),
    ({"json_array": True}, b'"[1]"', "not a JSON array"),
    ({"json_array": True}, b"[\xff]", "not UTF-8"),
    ({"json_array": "the items"}, b'{"n": 1, "the items": [[2], 3]}', [b"[2]", b"3"]),
    ({"json_array": "the items"}, b'{"the items": []}', []),
    *(
        ({"json_array": "the items"}, text, "not a JSON object with an array 'the items'")
        for text in (b'{"The items": [1]}', b'{"the items": 1}', b'{"the items": null}', b"[1]", b"{}")
    ),
    *(
        ({"json_array": "the items"}, text, "not one JSON value, or a key stands twice in it")
        for text in (
            b'{"the items": [1], "x": ',
            b'{"the items": [1]} {"the items": [2]}',
            b'{"the items": [1], "the items": [2]}',
            b'{"the items": [1]}, "_all": {"the items": [2]}',
        )
    ),
]


@pytest.mark.full
def test_a_value_in_pieces(spark: SparkSession) -> None:
    """Whatever is in the value, it is split as said or refused, and nothing of it is lost."""
    explodes = [dict(one) for one in {tuple(explode.items()) for explode, _, _ in SPLITS}]
    for explode in explodes:
        cases = [(value, wanted) for given, value, wanted in SPLITS if given == explode]
        split = in_pieces(messages_of(spark, [None, *(value for value, _ in cases)]), Explode.model_validate(explode))
        found: dict[int, list[Any]] = {}
        for row in split.orderBy(OFFSET, INDEX).collect():
            found.setdefault(row[OFFSET], []).append((row[INDEX], row[VALUE], row[EMPTY], row[UNSPLIT]))
        assert found.pop(0) == [(0, None, False, None)], "a tombstone is no value without pieces"
        for (value, wanted), rows in zip(cases, found.values(), strict=True):
            if isinstance(wanted, str):
                assert rows == [(0, None, False, wanted)], (explode, value)
            elif not wanted:
                assert rows == [(0, None, True, None)], (explode, value)
            else:
                assert [row[:2] for row in rows] == list(enumerate(wanted)), (explode, value)


@pytest.mark.full
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.name in ("delimited", "json") else pytest.mark.full)
        for case in CASES
        # A function gives several rows by itself.
        if case.name != "function"
    ],
)
def test_every_scheme_takes_pieces(spark: SparkSession, case: Case) -> None:
    """A piece becomes what the scheme makes of a message with that value, and a message with a bad piece is refused whole."""
    between = b"\x1f\x1e"
    values = [value for _, value in PAIRS if value is not None]
    chance = random.Random(5)
    held = [[value, *chance.choices(values, k=chance.randrange(4))] for value in values]
    stream = stream_of(scheme=case.scheme, explode={"lines": between.decode()})
    rows = rows_of(messages_of(spark, [between.join(pieces) + between for pieces in held]), stream)
    names = list(stream.fields)
    texts = [text(name, stream.fields[name]).alias(f"field_{number}") for number, name in enumerate(names)]
    found: dict[int, dict[int, Any]] = {}
    columns = (OFFSET, INDEX, OUTCOME, REASON, F.col(FAILURE)["detail"])
    for row in rows.frame.select(*columns, *texts).collect():
        fields = {
            name: bytes(held).decode(errors="surrogateescape")
            for name, held in zip(names, row[5:], strict=True)
            if held is not None
        }
        found.setdefault(row[OFFSET], {})[row[INDEX]] = (
            (row[REASON], row[4]) if row[OUTCOME] == Became.INVALID else fields
        )
    rows.close()

    for offset, pieces in enumerate(held):
        wanted = [case.outcome(Message("orders", 0, offset, b"key", piece, (), -1, 0)) for piece in pieces]
        bad = [(one.reason, f"piece {number}") for number, one in enumerate(wanted) if one.reason is not None]
        assert found[offset] == ({0: bad[0]} if bad else {number: one.fields for number, one in enumerate(wanted)})


@pytest.mark.full
def test_many_invalid_messages_are_settled_as_few_are(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"1\n2", b"1\nx\ny", None, b"", b"x", b"3"]
    stream = stream_of(scheme={"type": "delimited", "fields": {"id": "integer"}}, explode={"lines": "\n"})

    def settled() -> list[Any]:
        rows = rows_of(messages_of(spark, values), stream)
        found = (
            rows.frame.orderBy(OFFSET, INDEX).select(OFFSET, INDEX, OUTCOME, REASON, FAILURE, TOMBSTONE, "id").collect()
        )
        (tally,) = tallies(rows.frame, rows.read)
        assert (tally.read.number, tally.stored.number, tally.skipped.number, tally.invalid.number) == (6, 3, 1, 2)
        assert (tally.rows.number, tally.bytes) == (4, 6 * len(b"key") + sum(len(value or b"") for value in values))
        rows.close()
        return found

    few = settled()
    assert [(row[REASON], row[FAILURE]["detail"]) for row in few if row[REASON]] == [
        ("id is not an integer", "piece 1"),
        ("id is not an integer", "piece 0"),
    ]
    assert [row[FAILURE] for row in few if not row[REASON]] == [None] * 5
    assert [row[OFFSET] for row in few if row[TOMBSTONE]] == [2]
    monkeypatch.setattr(outcomes, "_BROADCAST", 0)
    assert settled() == few


def batch(value: bytes | None) -> list[dict[str, str]] | str:
    """What a message of the batches gives: its rows, or why it is invalid."""
    if value is None:
        return [{}]
    rows = []
    for number, line in enumerate(value.removesuffix(b"\n").split(b"\n") if value else []):
        try:
            order = json.loads(line)
        except ValueError:
            return f"not one JSON value, or a key stands twice in it; piece {number}"
        if order["amount"] < 0:
            return f"negative amount; piece {number}"
        rows.append({"id": str(order["id"]), "amount": repr(order["amount"])})
    return rows


@pytest.mark.full
@pytest.mark.covers("S7")
@pytest.mark.usefixtures("spark")
def test_messages_with_several_rows(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    live = make(BATCHES)
    live.produce(150)
    (record,) = live.ingest()
    assert_rows(live, batch, record)
    # Read message by message instead of in one part, the rows are the same, and those of a message stay together.
    table = stream_table(live.opened, "hbase_default", live.name)
    at_once = list(hbase_rows(live.opened.ledger, table, "hbase"))
    assert any(row.place.index for row in at_once)
    monkeypatch.setattr("tidemark.sinks.reading._PART_BYTES", 1)
    assert list(hbase_rows(live.opened.ledger, table, "hbase")) == at_once
    monkeypatch.undo()
    # A replay with other code: what is no longer a row goes, and what was a dead letter is one no longer.
    live.rewrite(checks=[{"invalid_when": "id % 10 = 4", "reason": "negative amount"}])
    live.select(LaneKind.REPLAY, live.opened.ledger.view().authority.covered())
    rows = live.independent.hbase().rows
    assert rows
    assert not [fields for _, fields in rows if fields.get("id", "0")[-1] == "4"]
    assert [fields for _, fields in rows if fields.get("amount") == "-1.0"]


# Transform


def of_order(make_rows: Callable[[dict[str, Any]], list[dict[str, str]]]) -> Callable[[bytes | None], Any]:
    def made(value: bytes | None) -> list[dict[str, str]] | str:
        if value is None:
            return [{}]
        if value == b"{":
            return "not one JSON value, or a key stands twice in it"
        return make_rows(json.loads(value))

    return made


@pytest.mark.covers("A41", "S9")
def test_a_transform_by_sql(make: Make, spark: SparkSession) -> None:
    live = make(TRANSFORMED)
    live.produce(60)
    (record,) = live.ingest()

    def paid(order: dict[str, Any]) -> list[dict[str, str]]:
        return [{"id": str(order["id"]), "customer": order["customer"].upper()}] if order["paid"] else []

    assert_rows(live, of_order(paid), record)

    # A filter that drops all: the ledger moves on, and a second trigger finds nothing to do.
    dropped = "SELECT * FROM messages WHERE id < 0"
    live.rewrite(transform={"sql": dropped, "fields": {"id": "integer"}})
    kafka = [(live.topics[0], 0, b"key", b'{"id": 1}')] * 3
    live.kafka.send(kafka)
    (record,) = live.ingest()
    (tally,) = [one for one in record.tallies if one.read.number]
    assert (tally.read, tally.stored.number, tally.rows.number) == (tally.skipped, 0, 0)
    assert tally.read.number == 3
    assert not live.ingest()


@pytest.mark.full
def test_a_transform_of_pieces(spark: SparkSession) -> None:
    """Those that are left of a message are numbered from 0, and its first row has the whole message for a dead letter."""
    stream = stream_of(
        explode={"lines": "\n"},
        scheme={"type": "delimited", "fields": {"id": "integer", "name": "string"}},
        transform={"sql": "SELECT *, -id AS less FROM messages WHERE name <> 'no'", "fields": {"less": "integer"}},
    )
    values = [b"1,no\n2,yes\n3,no\n4,yes", b"5,no", None, b"6,yes\nx,no", b""]
    rows = rows_of(messages_of(spark, values), stream)
    found = rows.frame.orderBy(OFFSET, INDEX).select(OFFSET, INDEX, OUTCOME, REASON, "less", KEY, VALUE).collect()
    rows.close()
    assert [tuple(row) for row in found] == [
        (0, 0, Became.STORED, None, -2, b"key", values[0]),
        (0, 1, Became.STORED, None, -4, b"key", None),
        (1, 0, Became.SKIPPED, None, None, b"key", values[1]),
        (2, 0, Became.STORED, None, None, b"key", None),
        (3, 0, Became.INVALID, "id is not an integer", None, b"key", values[3]),
        (4, 0, Became.SKIPPED, None, None, b"key", values[4]),
    ]


FUNCTIONS = """
from pyspark.sql import functions as F


def parts(messages):
    # Each part of `lines` is a row; the index is its place, counted from the end and with holes.
    split = messages.withColumn("lines", F.array_remove(F.split("lines", ","), ""))
    rows = split.select("*", F.posexplode("lines").alias("place", "part"))
    return rows.withColumn("_index", 100 - 10 * F.col("place"))


def no_frame(messages):
    return messages.columns


def broken(messages):
    raise KeyError("a key")
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module of a user's own, on the driver's Python path."""
    (tmp_path / "own_transforms.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_transforms"
    sys.modules.pop("own_transforms", None)


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_transform_by_a_function_that_makes_several_rows_of_one(make: Make, functions: str) -> None:
    """They are numbered anew from 0, in the order of the indexes that they have, and a tombstone stays with what is kept."""
    transform = {"function": f"{functions}:parts", "fields": {"part": "string", "note": "binary"}}
    live = make(TRANSFORMED, transform=transform)
    live.kafka.send(
        (live.topics[0], number % 3, key, None if lines is None else json.dumps({"lines": lines}).encode())
        for number, (key, lines) in enumerate(
            [(b"a", "x,y,z"), (b"b", None), (b"c", ""), (b"d", "x"), (None, "y,x"), (b"", None)]
        )
    )
    (record,) = live.ingest()
    topic = live.topics[0]
    wanted = {
        (topic, 0, 0, 0): {"part": "z", "note": "a"},
        (topic, 0, 0, 1): {"part": "y", "note": "a"},
        (topic, 0, 0, 2): {"part": "x", "note": "a"},
        (topic, 1, 0, 0): {"note": "b"},
        (topic, 0, 1, 0): {"part": "x", "note": "d"},
        (topic, 1, 1, 0): {"part": "x"},
        (topic, 1, 1, 1): {"part": "y"},
        (topic, 2, 1, 0): {"note": ""},
    }
    assert live.independent.hbase().by_place() == wanted
    assert live.independent.parquet(["part", "note"]).by_place() == wanted
    assert {one.at.partition: one.skipped.number for one in record.tallies} == {0: 0, 1: 0, 2: 1}
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()


ELSEWHERE = "SELECT _topic, _incarnation, _partition, _offset + 1000 AS _offset, _index, value FROM messages"


@pytest.mark.full
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (ELSEWHERE, "orders/0@1000 index 0 of a message that it was not given; orders/0@1001 index 0 of"),
        (
            "SELECT * FROM messages UNION ALL SELECT * FROM messages WHERE value = 'b'",
            "orders/0@1 index 0 twice. It has",
        ),
        (
            "SELECT _topic, _incarnation, _partition, _offset, nullif(_index, 0) AS _index, value FROM messages",
            "orders/0@0 index None without an index",
        ),
        (
            "SELECT _topic, _incarnation, _partition, IF(value = 'b', NULL, _offset) AS _offset, _index, value FROM messages",
            "orders/0@None index 0 of a message that it was not given",
        ),
    ],
)
def test_a_transform_that_gives_rows_of_other_messages(spark: SparkSession, sql: str, said: str) -> None:
    stream = stream_of(transform={"sql": sql, "fields": {"value": "string"}})
    with pytest.raises(TransformRefused, match=re.escape(said)):
        rows_of(messages_of(spark, [b"a", b"b"]), stream)


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_transform_that_is_refused_writes_nothing(make: Make) -> None:
    live = make(TRANSFORMED, transform={"sql": ELSEWHERE.replace("value", "id"), "fields": {"id": "integer"}})
    live.produce(20)
    with pytest.raises(TransformRefused, match=f"{live.topics[0]}/0@1001 index 0 of a message that it was not given"):
        live.ingest()
    # Nor does one that has not the right columns, and that is known before the window is taken.
    takes = live.head().pending
    live.rewrite(transform={"sql": "SELECT *, CAST(id AS string) AS n FROM messages", "fields": {"n": "integer"}})
    with pytest.raises(WrongUse, match="transform: n is string in the result; expected bigint"):
        live.ingest(take_over=True)
    assert live.head().pending == takes
    assert live.positions() == dict.fromkeys(live.positions(), 0)
    # No attempt has left a row, not even as debris.
    for table in (live.name, f"{live.name}_dead"):
        found = live.independent.hbase(table)
        assert (found.rows, found.debris) == ([], 0)
    live.rewrite()
    assert len(live.ingest(take_over=True)) == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ({"sql": f"SELECT {GIVEN_BACK}, nope AS n FROM messages"}, "transform.sql: .*`nope` cannot be resolved"),
        ({"sql": f"SELECT {GIVEN_BACK}, id n FROM messages WHERE ("}, "transform.sql: .*Syntax error"),
        (
            {"sql": "WITH a AS (SELECT *, 1 AS n FROM messages) FROM a INSERT INTO t SELECT *"},
            "transform.sql: expected a query; this is another statement",
        ),
        ({"sql": "SELECT *, 1.5 AS n FROM messages; -- it ends so\n;"}, r"n is decimal\(2,1\) in the result; expected"),
        ({"sql": "SELECT * FROM messages"}, "the result has no column n; expected one of type bigint"),
        ({"sql": "SELECT *, 1 AS n, 2 AS N FROM messages"}, "the result has 2 columns n"),
        ({"sql": "SELECT *, 1.5 AS n FROM messages"}, r"n is decimal\(2,1\) in the result; expected bigint"),
        (
            {
                "sql": "SELECT _topic, _incarnation, _partition, CAST(_offset AS string) _offset, _index, 1 n FROM messages"
            },
            "_offset is string in the result; expected bigint",
        ),
        ({"sql": "SELECT n.*, 1 AS n FROM (SELECT id AS _topic FROM messages) n"}, "_topic is bigint in the result"),
        ({"function": "no_such_module:parts"}, "the module no_such_module cannot be imported"),
        ({"function": "own_transforms:nothing"}, "the module own_transforms has no function nothing"),
        ({"function": "own_transforms:no_frame"}, "no_frame gives list; expected a DataFrame"),
        ({"function": "own_transforms:broken"}, "own_transforms:broken raised KeyError: 'a key'"),
    ],
)
def test_a_transform_that_cannot_be_carried_out(
    spark: SparkSession, functions: str, transform: dict[str, Any], said: str
) -> None:
    """It is said without a message being read."""
    stream = stream_of(scheme=ORDERS["scheme"], transform={**transform, "fields": {"n": "integer"}})
    with pytest.raises(TidemarkError, match=said):
        check_rows(spark, stream)


# What it costs


@pytest.mark.full
@pytest.mark.parametrize(
    "sink",
    [
        {"type": "parquet", "folder": "lines"},
        {"type": "hbase", "table": "lines"},
        {
            "type": "hbase_aggregates",
            "table": "lines",
            "folder": "lines",
            "key": ["host"],
            "values": {"requests": "count"},
        },
    ],
    ids=lambda sink: sink["type"],
)
def test_java_compiles_what_makes_the_rows_of_the_example(
    spark: SparkSession, tmp_path: Path, sink: dict[str, Any]
) -> None:
    """It never compiles a method of more than 8,000 bytes; Spark then makes the rows in ten steps, with a copy in each."""
    example = yaml.safe_load((REPOSITORY / "dags" / "streams" / "cdn_logs.yaml").read_text())
    del example["transform"]
    file = tmp_path / "cdn_logs.yaml"
    file.write_text(yaml.safe_dump(example | {"sinks": [sink]}, sort_keys=False))
    opened = open_stream(file)
    made: Any = rows_of(messages_of(spark, [b"a"]), opened.stream, refusals(make_sinks(opened), opened.stream.fields))
    try:
        kept = made.frame._jdf.queryExecution().withCachedData().cachedPlan()
        debug = getattr(spark._jvm.org.apache.spark.sql.execution.debug, "package$")
        stages = getattr(debug, "MODULE$").codegenStringSeq(kept)
        sizes = [stages.apply(number)._3().maxMethodCodeSize() for number in range(stages.size())]
    finally:
        made.close()
    assert sizes
    # With room for the next condition.
    assert max(sizes) <= 7_500


@pytest.mark.full
def test_python_gets_large_rows_a_few_at_a_time(spark: SparkSession) -> None:
    def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    of = {}
    for size in (1_000_000, 100):
        rows = spark.range(60).coalesce(1).select(F.expr(f"repeat('x', {size})").cast("binary").alias("value"))
        of[size] = [row["rows"] for row in rows.mapInArrow(sizes, "rows long").collect()]
    assert max(of[1_000_000]) < 20
    assert sum(of[1_000_000]) == 60
    assert of[100] == [60]
