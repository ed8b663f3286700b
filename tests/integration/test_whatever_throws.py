"""Whatever an expression throws for one message of a scheme, a check or a transform: it stops no stream, and no JVM."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests import support
from tests.support.avro_orders import written
from tests.support.canary import CANARY
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example, Outcome
from tests.support.registry import serving
from tests.support.rows import GIVEN_BACK, SINKS, messages_of, stream_of
from tests.support.throwing import (
    BESIDE,
    SCHEME,
    THROWING,
    TOO_DEEP,
    TOO_LONG,
    Throwing,
    checks,
    drawn,
    drawn_sinks,
    drawn_values,
    query,
    transform,
    values,
    wide_transform,
)
from tidemark.clients.connections import Connection
from tidemark.errors import ProcessingFailed, WrongUse
from tidemark.offsets.tallies import Outcome as Became
from tidemark.schemes.json_depth import DEEPEST
from tidemark.schemes.json_depth import TOO_DEEP as NESTED
from tidemark.spark.columns import FAILURE, INDEX, OFFSET, OUTCOME, REASON, VALUE, field
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows import outcomes
from tidemark.spark.rows import transform as transforming
from tidemark.spark.rows.failing_messages import SPARKS, cause_of
from tidemark.spark.rows.one_pass import one_pass
from tidemark.spark.rows.pipeline import check_rows, rows_of
from tidemark.spark.runtime.compiling import compiled, new_instance
from tidemark.streams.model import Stream

STORED, INVALID, FAILED = (one.value for one in (Became.STORED, Became.INVALID, Became.FAILED))


def became(
    spark: SparkSession, stream: Stream, given: Sequence[bytes | None], **how: Any
) -> list[tuple[int, str | None]]:
    """The outcome of each message, and its reason."""
    made = rows_of(messages_of(spark, list(given)), stream, **how)
    try:
        rows = made.frame.orderBy(OFFSET).collect()
        assert [row[INDEX] for row in rows] == [0] * len(given)
        return [(row[OUTCOME], row[REASON]) for row in rows]
    finally:
        made.close()


def passes(spark: SparkSession, stream: Stream, given: Sequence[bytes]) -> bool:
    """Whether all goes through one pass. If not, its error has to be one that sends the window the longer way."""
    rows = one_pass(spark, lambda counted: messages_of(spark, list(given)), stream, (), 10)
    if rows is None:
        return False
    cause = None
    try:
        rows.stored.write.format("noop").mode("overwrite").save()
        return True
    except SPARKS as problem:
        cause = cause_of(problem)
    finally:
        rows.close()
    assert cause is not None
    return False


def assert_only_their_own(found: Sequence[tuple[int, str | None]]) -> None:
    """No neighbour is touched: each second message."""
    assert set(found[1::2]) == {(STORED, None)}


@pytest.mark.covers("C4", "E46", "E55")
def test_whatever_a_transform_throws_is_the_messages_own(spark: SparkSession) -> None:
    given: list[Throwing] = [*THROWING, *TOO_LONG, *TOO_DEEP]
    stream = stream_of(scheme=SCHEME, transform=transform(given))
    # Each alone, since the error of a job is that of the message which fails first.
    alone = [one for one in given if one[0].startswith(("timestamp_millis", "parse_url", "str_to", "rlike"))]
    selecting = stream_of(scheme=SCHEME, transform=transform(alone))
    assert passes(spark, selecting, [b"not JSON"])
    assert not any(passes(spark, selecting, [value]) for value in [*values(alone)][::2])
    found = became(spark, stream, list(values(given)))
    assert_only_their_own(found)
    for (sql, *_), (outcome, reason) in zip(given, found[::2], strict=True):
        assert outcome == FAILED, sql
        assert (reason or "").startswith("transform: "), sql
    assert spark.range(3).count() == 3


@pytest.mark.full
@pytest.mark.covers("C4", "E55")
def test_an_error_whose_class_is_that_of_a_server_is_a_messages_own_if_an_expression_threw_it(
    spark: SparkSession,
) -> None:
    """Such a window failed at each try: a class that is not found, and a host."""
    given = [one for one in THROWING if "forName" in one[0] or "getByName" in one[0]]
    assert len(given) == 2
    for one in given:
        found = became(spark, stream_of(scheme=SCHEME, transform=transform([one])), [*values([one])])
        assert [outcome for outcome, _ in found] == [FAILED, STORED], one


@pytest.mark.covers("E55", "Q41")
@pytest.mark.parametrize(
    "forged",
    [
        pytest.param("", marks=pytest.mark.full),
        # A line that looks like one of Spark's own.
        "\n\tat org.apache.spark.storage.BlockManager.get(BlockManager.scala:1)\n",
    ],
)
@pytest.mark.parametrize(
    "call", ["reflect", *(pytest.param(one, marks=pytest.mark.full) for one in ("java_method", "try_reflect"))]
)
def test_no_log_of_spark_has_the_text_of_an_error_that_has_the_class_of_a_servers(
    spark: SparkSession, call: str, forged: str
) -> None:
    """An expression threw it, and its text is the message's. `tests/support/canary.py` looks into what Spark has logged."""
    given = [(f"{call}('java.net.InetAddress', 'getByName', s)", 0, f"[{CANARY}{forged}")]
    stream = stream_of(scheme=SCHEME, transform=transform(given))
    assert not passes(spark, stream, [*values(given)])
    assert became(spark, stream, [*values(given)])[1] == (STORED, None)


@pytest.mark.full
@pytest.mark.covers("C4", "E46", "E55")
def test_a_check_that_cannot_be_computed_refuses_nothing(spark: SparkSession) -> None:
    """Also where a part stands twice in it, which Spark might compute once, before what catches its errors."""
    found = became(spark, stream_of(scheme=SCHEME, checks=checks(THROWING)), list(values(THROWING)))
    assert_only_their_own(found)
    assert {one for one in found if one[0] != STORED} <= {(INVALID, "it is null, and not an error")}
    day, year = (f"date_trunc('{part}', timestamp_millis(at))" for part in ("day", "year"))
    stream = stream_of(scheme=SCHEME, checks=[{"invalid_when": f"{day} = {year}", "reason": "a new year"}])
    given = [json.dumps({"at": at}).encode() for at in (2**63 - 1, 0, 10**12)]
    assert passes(spark, stream, given)
    assert became(spark, stream, given) == [(STORED, None), (INVALID, "a new year"), (STORED, None)]


@pytest.mark.full
@pytest.mark.parametrize(
    "sql",
    [
        "s rlike '(a|['",
        "exists(array(s), x -> x rlike '[')",
        "regexp_count(s, '(') > 0",
        "size(split(upper(s), '*')) > 1",
    ],
)
def test_a_wrong_regular_expression_is_no_messages_fault(spark: SparkSession, sql: str) -> None:
    """It throws for every message: a check would refuse nothing, and a transform end the job at each try."""
    with pytest.raises(WrongUse, match=r"checks\.0\.invalid_when: .* is no regular expression: "):
        check_rows(spark, stream_of(scheme=SCHEME, checks=[{"invalid_when": sql, "reason": "it matches"}]))
    transforming = {"sql": f"SELECT {GIVEN_BACK}, ({sql}) AS made FROM messages", "fields": {"made": "boolean"}}
    with pytest.raises(WrongUse, match=r"transform\.sql: .* is no regular expression: "):
        check_rows(spark, stream_of(scheme=SCHEME, transform=transforming))


@pytest.mark.full
def test_a_regular_expression_that_may_be_right_is_taken(spark: SparkSession) -> None:
    right = ("s rlike '(a|b)'", "s rlike s", "s rlike NULL", "s LIKE '[a%'", "split(s, ',')[0] = '['")
    check_rows(spark, stream_of(scheme=SCHEME, checks=[{"invalid_when": one, "reason": "it matches"} for one in right]))


WRONG = [
    "date_format(t, 'YYYY-MM-dd') = ''",
    "to_timestamp(s, 'yyyy-MM-ddTHH:mm:ss') IS NULL",
    "year(to_date(s, 'YYYY')) < 2000",
    "unix_timestamp(s, 'QQQQQQQ') > at",
    "from_unixtime(at, 'é{') = s",
    "from_utc_timestamp(t, 'Mars/Base') > t",
    "convert_timezone('Europe/Zurich', 'Europe/Basel', CAST(t AS TIMESTAMP_NTZ)) IS NULL",
    "year(make_timestamp(2026, 1, 1, 1, 1, at, 'Mars')) = 2026",
    "get_json_object(s, 'a.b') = ''",
    "get_json_object(s, '$.a[') = ''",
    "variant_get(parse_json(s), 'a', 'string') = ''",
    "encode(s, 'nocharset') = X'00'",
    "exists(array(s), x -> decode(binary(x), 'UTF-7') = '')",
    "date_trunc('fortnight', t) = t",
    "trunc(t, 'hours') = t",
    "next_day(t, 'someday') > t",
    "parse_url(s, 'host') = ''",
    "split_part(s, ',', 0) = ''",
    "sha2(s, 200) = ''",
]
RIGHT = [
    "date_format(t, 'EEE, yyyy-MM-dd HH:mm:ss.SSS') = ''",
    "to_timestamp(s, 'yyyy-MM-dd[ HH:mm]') IS NULL",
    "to_timestamp(s) IS NULL OR to_timestamp(s, s) IS NULL",
    "from_utc_timestamp(t, '+01:00') > t",
    "from_utc_timestamp(t, s) > t",
    "get_json_object(s, '$.a[*].b') = '' AND get_json_object(s, '$') = ''",
    "variant_get(parse_json(s), '$.a[0]', 'int') = 1",
    "decode(binary(s), 'ISO-8859-1') = ''",
    "date_trunc('week', t) = t AND trunc(t, 'MM') = date(t)",
    "next_day(t, 'TU') > t",
    "parse_url(s, 'QUERY', 'a') = '' AND parse_url(s, 'HOST') = ''",
    "split_part(s, ',', -1) = '' AND sha2(s, 256) = ''",
    "to_timestamp(s, NULL) IS NULL",
]


THREE = {"type": "json", "fields": {"at": "integer", "s": "string", "t": "timestamp"}}


@pytest.mark.full
@pytest.mark.covers("E62")
def test_a_constant_that_is_wrong_for_every_message_is_no_messages_fault(spark: SparkSession) -> None:
    """As with a regular expression: a check with it would refuse nothing, whatever comes."""
    for sql in WRONG:
        with pytest.raises(WrongUse, match=r"checks\.0\.invalid_when: .* is (wrong for every message|no JSON path)"):
            check_rows(spark, stream_of(scheme=THREE, checks=[{"invalid_when": sql, "reason": "a reason"}]))
    sql = f"SELECT {GIVEN_BACK}, string(to_date(s, 'YYYY')) AS made FROM messages"
    transforming = {"sql": sql, "fields": {"made": "string"}}
    with pytest.raises(WrongUse, match=r"transform\.sql: 'YYYY' is wrong for every message: "):
        check_rows(spark, stream_of(scheme=THREE, transform=transforming))
    right = [{"invalid_when": sql, "reason": "a reason"} for sql in RIGHT]
    check_rows(spark, stream_of(scheme=THREE, checks=right))


@pytest.mark.covers("E62")
def test_constants_that_cannot_be_computed_are_no_messages_fault(spark: SparkSession) -> None:
    """Spark computes what is made of constants alone while it plans, whatever comes: no message would ever be a row."""
    transforming = {"sql": "", "fields": {"made": "string"}}
    for made, where in (
        ("string(CAST('ten' AS INT) + at)", "true"),
        ("string(element_at(array(1, 2), 3) + at)", "true"),
        ("s", "length(s) < (-1 / 0) OR s = 'a'"),
    ):
        transforming["sql"] = f"SELECT {GIVEN_BACK}, {made} AS made FROM messages WHERE {where}"
        with pytest.raises(WrongUse, match=r"transform\.sql: cannot be computed, whatever a message is: \["):
            check_rows(spark, stream_of(scheme=THREE, transform=transforming))
    # Where it depends on the message, it is that message's fault.
    for made in ("if(at > 3, string(1 / 0), s)", "string(1 / at)"):
        transforming["sql"] = f"SELECT {GIVEN_BACK}, {made} AS made FROM messages"
        check_rows(spark, stream_of(scheme=THREE, transform=transforming))


def by_xpath(messages: DataFrame) -> DataFrame:
    """A transform by a function."""
    return messages.withColumn("made", F.xpath_int("s", F.lit("count(a)")).cast("string"))


@pytest.mark.covers("E62")
def test_a_function_that_fetches_what_a_message_names_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    by_sql = {"sql": f"SELECT {GIVEN_BACK}, concat('a', xpath_string(s, 'a')) AS made FROM messages"}
    for how in (by_sql, {"function": f"{__name__}:by_xpath"}):
        with pytest.raises(WrongUse, match=r"transform: xpath, .* Use `from_xml`"):
            check_rows(spark, stream_of(scheme=SCHEME, transform={**how, "fields": {"made": "string"}}))
    for sql in ("xpath_boolean(s, 'a')", "exists(xpath(s, 'a/text()'), x -> x = 'b')"):
        with pytest.raises(WrongUse, match=r"checks\.0\.invalid_when: xpath, "):
            check_rows(spark, stream_of(scheme=SCHEME, checks=[{"invalid_when": sql, "reason": "it matches"}]))
    # The way on fetches nothing. A file that is no document type would be an error.
    named = tmp_path / "named.dtd"
    named.write_text("no document type")
    text = f'<!DOCTYPE a SYSTEM "{named.as_uri()}"><a><b>7</b></a>'
    (row,) = spark.createDataFrame([(text,)], "s string").selectExpr("from_xml(s, 'b INT').b AS b").collect()
    assert row["b"] == 7


# What a value makes Java throw, and whether it is the message's own.
THROWN = {
    "java.lang.AssertionError": True,
    "java.lang.ExceptionInInitializerError: of no class": True,
    "java.lang.NoClassDefFoundError: Could not initialize class no.such.Thing": True,
    "java.lang.StackOverflowError": True,
    "java.lang.OutOfMemoryError: Requested array size exceeds VM limit": True,
    "java.lang.OutOfMemoryError: Required length exceeds implementation limit": True,
    "java.lang.Error: a word of somebody's": True,
    "java.util.NoSuchElementException": True,
    "java.lang.OutOfMemoryError: Java heap space": False,
    "java.lang.InternalError: a fault occurred in an unsafe memory access": False,
}


@pytest.mark.full
@pytest.mark.covers("C4", "E46", "E55")
def test_whose_an_error_of_java_is(spark: SparkSession) -> None:
    """A want of memory and a damaged Java end the job; all else that a value causes is its message's."""
    java: Any = spark
    jvm: Any = spark.sparkContext._jvm
    function = new_instance(compiled(spark.sparkContext, Path(support.__file__).with_name("Throws.java")))
    java._jsparkSession.udf().register("throws", function, jvm.org.apache.spark.sql.types.DataTypes.StringType)
    sql = f"SELECT {GIVEN_BACK}, throws(s) AS made FROM messages"
    stream = stream_of(scheme=SCHEME, transform={"sql": sql, "fields": {"made": "string"}})

    def value(text: str) -> bytes:
        return json.dumps({"s": text}).encode()

    own = [text for text, is_own in THROWN.items() if is_own]
    found = became(spark, stream, [value(one) for text in own for one in (text, "x")])
    assert_only_their_own(found)
    assert {outcome for outcome, _ in found[::2]} == {FAILED}
    for text in THROWN.keys() - own:
        with pytest.raises(SPARKS) as ended:
            became(spark, stream, [value("x"), value(text)])
        assert cause_of(ended.value) is None, text
    assert spark.range(3).count() == 3


@pytest.mark.full
@pytest.mark.covers("C4", "E46", "E55")
@pytest.mark.parametrize(("given", "error"), [(TOO_DEEP, "StackOverflowError"), (TOO_LONG, "OutOfMemoryError")])
def test_a_check_that_needs_more_than_there_is_leaves_the_jvm_alone(
    spark: SparkSession, given: list[Throwing], error: str
) -> None:
    found = became(spark, stream_of(scheme=SCHEME, checks=checks(given)), list(values(given)))
    assert_only_their_own(found)
    assert set(found[::2]) == {(FAILED, f"scheme or checks: {error}")}
    assert spark.range(3).count() == 3


@pytest.mark.full
@pytest.mark.covers("C4", "E46", "E55")
@pytest.mark.parametrize("seed", [1, *(pytest.param(one, marks=pytest.mark.full) for one in range(2, 12))])
def test_any_messages_under_any_expressions_commit(spark: SparkSession, seed: int) -> None:
    """The property: whatever is put together, each message has an outcome, and those that throw are the only ones that fail."""
    given = drawn(seed, 20)
    both = stream_of(scheme=SCHEME, transform=transform(given), checks=checks(drawn(-seed, 10)))
    noise = [
        b"",
        b"\xff",
        b"{",
        b"[" * 5_000,
        b'{"at": 1e999}',
        b'{"which": 3}',
        b"null",
        b'{"at": -9223372036854775808}',
    ]
    all_values = [*values(given), *noise]
    found = became(spark, both, all_values)
    assert len(found) == len(all_values)
    passes(spark, both, all_values)


@pytest.mark.full
@pytest.mark.covers("C4", "E46", "E55")
@pytest.mark.parametrize("seed", range(20))
def test_any_messages_under_any_queries_commit(spark: SparkSession, seed: int) -> None:
    """Where Spark chooses what it computes first, and where messages meet: a message that throws is taken out before."""
    given = drawn(seed, 6)
    stream = stream_of(
        scheme=SCHEME, transform=query(seed, given), checks=[{"invalid_when": "s = '%z'", "reason": "it is refused"}]
    )
    sent = [*values(given), *values(given), b"{", b'{"which": 3}', b'{"at": -9223372036854775808, "s": "%z"}']
    assert outcomes_of(spark, stream, sent).keys() == set(range(len(sent)))


def outcomes_of(
    spark: SparkSession, stream: Stream, given: Sequence[bytes | None]
) -> dict[int, tuple[int, str | None]]:
    """The outcome of each message, and its reason, whichever rows it has."""
    made = rows_of(messages_of(spark, list(given)), stream)
    try:
        rows = made.frame.collect()
    finally:
        made.close()
    places = [(row[OFFSET], row[INDEX]) for row in rows]
    assert len(places) == len(set(places))
    return {row[OFFSET]: (row[OUTCOME], row[REASON]) for row in rows if row[INDEX] == 0}


TOGETHER = (
    # A row is let through by another message, and throws.
    f"SELECT {GIVEN_BACK}, int(s) AS made FROM messages WHERE s IN (SELECT substr(s, 2) FROM messages WHERE s LIKE '#%')",
    # Two messages make a sum that does not fit.
    f"SELECT {GIVEN_BACK}, sum(at) OVER (PARTITION BY s = '') AS made FROM messages",
    # A value of all messages makes each of them throw.
    f"SELECT {GIVEN_BACK}, 1 div (SELECT 2 - count_if(s = '{CANARY}') FROM messages) AS made FROM messages",
)


@pytest.mark.full
@pytest.mark.covers("C4", "E55")
@pytest.mark.parametrize("sql", TOGETHER)
def test_messages_on_which_a_transform_fails_only_together(spark: SparkSession, sql: str) -> None:
    """None of them throws alone: as few as need be are dead letters, and the window commits."""
    stream = stream_of(scheme=SCHEME, transform={"sql": sql, "fields": {"made": "integer"}})
    texts = ["1", "#1", CANARY, f"#{CANARY}", "5", "#5", CANARY]
    sent = [json.dumps({"at": 2**62 if text == CANARY else 1, "s": text}).encode() for text in texts]
    found = outcomes_of(spark, stream, sent)
    assert found.keys() == set(range(len(sent)))
    dead = [reason or "" for outcome, reason in found.values() if outcome == FAILED]
    assert 1 <= len(dead) <= 2
    assert all(reason.startswith("transform: ") for reason in dead)


@pytest.mark.full
@pytest.mark.covers("C4", "E55")
@pytest.mark.parametrize(
    "checks", [[{"invalid_when": "i > 5", "reason": "it is large"}], pytest.param([], marks=pytest.mark.full)]
)
def test_a_condition_that_spark_computes_first_stops_no_stream(
    spark: SparkSession, checks: list[dict[str, str]]
) -> None:
    """The casts were found and marked, and then computed again before the mark was looked at."""
    fields = {"s": "string", "z": "binary", "i": "integer"}
    sql = (
        f"SELECT {GIVEN_BACK}, c0 FROM (SELECT *, upper(s) AS c0 FROM messages WHERE s IN ('a','b','5') AND int(s) > 1) "
        "WHERE upper(regexp_replace(hex(z), 'a+', 'b')) = CASE WHEN s RLIKE '^[a-z]+$' THEN if(i > 0, 'a', hex(z)) "
        "ELSE '61' END"
    )
    stream = stream_of(
        scheme={"type": "json", "fields": fields}, checks=checks, transform={"sql": sql, "fields": {"c0": "string"}}
    )
    sent = [b'{"s":"a","z":"YQ=="}', b'{"s":"a","z":"/w=="}', b'{"s":"5","z":"YQ=="}', b'{"s":"a"}']
    found = outcomes_of(spark, stream, sent)
    assert found[2] == (STORED, None)
    assert all(outcome != STORED for offset, (outcome, _) in found.items() if offset != 2)


@pytest.mark.full
@pytest.mark.covers("C4", "E55")
def test_what_a_check_has_refused_is_not_computed(spark: SparkSession) -> None:
    sql = f"SELECT {GIVEN_BACK}, sum(int(s)) OVER (PARTITION BY _offset) AS made FROM messages WHERE int(s) > 1"
    checks = [{"invalid_when": "s RLIKE '[^0-9]'", "reason": "it is no number"}]
    stream = stream_of(scheme=SCHEME, checks=checks, transform={"sql": sql, "fields": {"made": "integer"}})
    found = outcomes_of(spark, stream, [b'{"s": "x"}', b'{"s": "7"}', b'{"s": "y"}'])
    assert found == {0: (INVALID, "it is no number"), 1: (STORED, None), 2: (INVALID, "it is no number")}


VIEW = "messages LATERAL VIEW posexplode(split(value, '\\n')) AS place, piece"
_AT = GIVEN_BACK.replace("_index", "place AS _index")
PIECES: dict[str, dict[str, Any]] = {
    "explode": {"explode": {"lines": "\n"}},
    "lateral view": {"transform": {"sql": f"SELECT {_AT}, piece FROM {VIEW}", "fields": {"piece": "string"}}},
}


@pytest.mark.full
@pytest.mark.covers("C4")
@pytest.mark.parametrize("how", ["explode", pytest.param("lateral view", marks=pytest.mark.full)])
def test_a_long_key_and_many_pieces_fill_no_disk(spark: SparkSession, how: str) -> None:
    """Each piece keeps the key of its message: a message of a megabyte could keep 120 GB."""
    stream = stream_of(scheme={"type": "string"}, **PIECES[how])
    for lines, length, outcome in (
        (500, 10, STORED),
        (500, 100_000, None),
        (3_000, 100_000, None),
        (10_000, 36, STORED),
    ):
        message = messages_of(spark, [b"a\n" * lines, b"a"], b"k" * length)
        made = rows_of(message, stream)
        try:
            kept = sum(one.memSize() + one.diskSize() for one in spark.sparkContext._jsc.sc().getRDDStorageInfo())
            dead = made.frame.where(made.frame[OFFSET] == 0).where(made.frame[INDEX] == 0).collect()
            assert made.frame.where(made.frame[OFFSET] == 1).collect()[0][OUTCOME] == STORED
        finally:
            made.close()
        assert kept < 150 * (length + 2 * lines)
        assert len(dead) == 1
        if outcome is None:
            assert dead[0][OUTCOME] in (INVALID, FAILED)
            assert dead[0][REASON].endswith("for the length of its key")
            assert dead[0][VALUE] == b"a\n" * lines
        else:
            assert dead[0][OUTCOME] == STORED


@pytest.mark.full
@pytest.mark.covers("C4")
def test_a_view_that_repeats_a_long_field_fills_no_disk(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforming, "MAX_OF_ONE_MESSAGE", 1 << 20)
    sql = f"SELECT {_AT}, concat(value, piece) AS piece FROM {VIEW}"
    stream = stream_of(scheme={"type": "string"}, transform={"sql": sql, "fields": {"piece": "string"}})
    found = outcomes_of(spark, stream, [b"a\n" * 3_000, b"a\nb", b"a\n" * 3_000])
    assert found[1] == (STORED, None)
    assert found[0] == found[2] == (FAILED, "transform: RowsTooLarge")


@pytest.mark.full
@pytest.mark.covers("C4", "E46", "E55")
@pytest.mark.parametrize("seed", range(1, 5))
def test_any_messages_commit_through_any_sinks(make: Make, spark: SparkSession, seed: int) -> None:
    """As above, with the sinks and their settings: the window commits, and an audit finds what was counted."""
    given = drawn(seed, 8)
    scheme = {**SCHEME, "fields": BESIDE}
    live = make(orders())
    live.kafka.create(f"{live.name}-rows", 1)
    live.rewrite(
        scheme=scheme,
        transform=wide_transform(seed, given),
        checks=checks(drawn(-seed, 4)),
        sinks=drawn_sinks(seed, live.name),
    )
    check_rows(spark, live.opened.stream)
    sent = list(drawn_values(seed, given))
    live.kafka.send((live.topics[0], 0, b"key" if number % 3 else None, value) for number, value in enumerate(sent))
    (record,) = live.ingest()
    (tally,) = record.tallies
    counted = (tally.stored, tally.skipped, tally.invalid, tally.failed)
    assert sum(one.number for one in counted) == tally.read.number == len(sent)
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()


# The schemes

FORM = "yyyy-MM-dd HH:mm:ss"
TIMED = {"id": "integer", "at": "timestamp"}


@pytest.mark.full
@pytest.mark.covers("E46", "E55")
@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        pytest.param({"type": "delimited", "fields": TIMED, "timestamp": FORM}, "{},{}", marks=pytest.mark.full),
        ({"type": "json", "fields": TIMED, "timestamp": FORM}, '{{"id": {}, "at": "{}"}}'),
        pytest.param(
            {"type": "json", "schema": "id INT, at TIMESTAMP", "timestamp": FORM},
            '{{"id": {}, "at": "{}"}}',
            marks=pytest.mark.full,
        ),
        (
            {
                "type": "regex",
                "fields": TIMED,
                "patterns": [{"name": "a", "regex": "(.),(.*)", "fields": ["id", "at"], "timestamp": FORM}],
            },
            "{},{}",
        ),
    ],
    ids=["delimited", "json", "DDL", "regex"],
)
def test_a_time_that_parses_and_that_spark_cannot_hold(spark: SparkSession, scheme: dict[str, Any], text: str) -> None:
    times = ["2026-11-21 07:10:00", "+300000-01-01 00:00:00", "+999999999-01-01 00:00:00", "-999999-01-01 00:00:00"]
    stream = stream_of(scheme=scheme)
    given = [text.format(number, time).encode() for number, time in enumerate(times)]
    assert became(spark, stream, given) == [(STORED, None), *[(INVALID, "at is not a time")] * 3]
    assert passes(spark, stream, given)


@pytest.mark.full
@pytest.mark.covers("E46", "E55")
@pytest.mark.parametrize(
    "scheme",
    [
        SCHEME,
        pytest.param(
            {"type": "json", "schema": "s STRING, v VARIANT", "unknown": "keep"}, marks=pytest.mark.full, id="DDL"
        ),
    ],
)
def test_json_that_is_nested_too_deeply_is_a_dead_letter_before_anything_calls_itself(
    spark: SparkSession, scheme: dict[str, Any]
) -> None:
    shapes = [('{"a":', "}"), ("[", "]")]
    given, wanted = [], []
    for member in ("s", "v", "another"):
        for opened, closed in shapes:
            for depth in (DEEPEST - 1, DEEPEST, 990, 100_000):
                given.append(f'{{"{member}":{opened * depth}1{closed * depth}}}'.encode())
                of_type = (INVALID, "s is not a string") if member == "s" else (STORED, None)
                wanted.append(of_type if depth < DEEPEST else (INVALID, NESTED))
    # Brackets within a text are none.
    given.append(json.dumps({"s": '\\"[{' * 5_000}).encode())
    wanted.append((STORED, None))
    stream = stream_of(scheme=scheme)
    assert became(spark, stream, given) == wanted
    assert passes(spark, stream, given)
    exploded = stream_of(explode={"json_array": True})
    assert became(spark, exploded, [b"[" * 100_000, b"[" * 990 + b"]" * 990, b"[" * 150 + b"]" * 150]) == [
        (INVALID, NESTED),
        (INVALID, NESTED),
        (STORED, None),
    ]


def _throwing_scheme(messages: DataFrame, _: object) -> DataFrame:
    """A scheme of somebody's package, which throws for some values."""
    text = F.col(VALUE).cast("string")
    time: Column = F.timestamp_seconds(text.cast("bigint"))
    return messages.withColumns({"value": time.cast("string"), REASON: F.lit(None).cast("string")})


@pytest.mark.full
@pytest.mark.covers("E46", "E55")
def test_a_scheme_of_a_package_that_throws(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a transform that throws for another message, and a value that is none."""
    from tidemark.spark import schemes

    monkeypatch.setitem(schemes.PARSERS, type(stream_of().scheme), _throwing_scheme)
    given = [b"1", b"9223372036854775807", b"many", None, b"7", b"8"]
    wanted = [
        (STORED, None),
        (FAILED, "scheme: ArithmeticException"),
        (FAILED, "scheme: CAST_INVALID_INPUT"),
        (STORED, None),
        (STORED, None),
        (STORED, None),
    ]
    assert became(spark, stream_of(), given) == wanted
    sql = "SELECT *, 1 div (length(value) - 19) AS made FROM messages"
    transformed = stream_of(transform={"sql": sql, "fields": {"made": "integer"}})
    wanted[0] = wanted[4] = wanted[5] = (FAILED, "transform: DIVIDE_BY_ZERO")
    assert became(spark, transformed, given) == wanted
    made = rows_of(messages_of(spark, [*given]), stream_of(explode={"lines": "\n"}))
    assert outcomes.dead_letters(made.frame).count() == 2
    assert {row[FAILURE]["error"] for row in outcomes.dead_letters(made.frame).collect()} == {
        "ArithmeticException",
        "CAST_INVALID_INPUT",
    }
    made.close()


# Names that a schema brings


@pytest.mark.full
@pytest.mark.covers("E46", "E49")
def test_schemas_of_a_registry_that_cannot_be_read_are_dead_letters(spark: SparkSession) -> None:
    number = {"name": "id", "type": "long"}

    def record(*fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "record", "name": "Order", "fields": [*fields, number]}

    text = [{"name": name, "type": "string"} for name in ("ID", "x", "X", "_tidemark_read", "_TIDEMARK_READ1")]
    deep = '{"type":"array","items":' * 3_000 + '"string"' + "}" * 3_000
    schemas: dict[int, Any] = {
        1: {"schema": json.dumps(record()), "references": [{"name": "a", "subject": "b", "version": 1}]},
        2: {"schema": json.dumps(record(*text))},
        3: {"schema": json.dumps(record({"name": "d", "type": "string"})).replace('"string"', deep)},
        4: {"schema": json.dumps(record({"name": "next", "type": ["null", "Order"]}))},
        5: {"schema": json.dumps(record()) + " " * 5_000_000},
        6: {"schema": json.dumps(record())},
        7: {
            "schema": json.dumps(record({"name": "to", "type": "shop.Address"})),
            "references": [{"name": "shop.Address", "subject": "address", "version": 2}],
        },
    }
    given = [struct.pack(">bI", 0, one) + b"\x02" for one in schemas]
    address = {"type": "record", "name": "shop.Address", "fields": [{"name": "town", "type": "string"}]}
    given[6] = written(record({"name": "to", "type": address}), {"to": {"town": "Zug"}, "id": 5}, 7)
    given[1] = written(record(*text), {"id": 5, **{one["name"]: "a" for one in text}}, 2)
    # A record that contains itself, beside the field that is named.
    given[3] = written(record({"name": "next", "type": ["null", "Order"]}), {"next": None, "id": 5}, 4)
    stream = stream_of(scheme={"type": "avro", "registry": "ours", "fields": {"id": "integer"}})
    with serving(schemas) as served:
        served.versions = {"address/2": {"schema": json.dumps(address)}}
        found = became(spark, stream, given, connections={"ours": Connection("ours", served.url)}.__getitem__)
    assert [outcome for outcome, _ in found] == [INVALID, STORED, INVALID, STORED, INVALID, STORED, STORED]
    assert [found[number][1] for number in (0, 2, 4)] == [
        "schema 1: it refers to version 1 of 'b', which the registry does not have",
        f"schema 3: the schema is {NESTED}",
        "schema 5: the registry answers with more than 4194304 bytes",
    ]


# The whole way


def orders(*sinks: dict[str, Any]) -> Example:
    return Example(
        "throwing",
        {
            "source": {"topics": []},
            "scheme": SCHEME,
            "sinks": [*sinks] or SINKS,
            "dead_letters": {"type": "hbase", "table": "-"},
        },
        ("throwing",),
        1,
        lambda count, first: iter(()),
        lambda value: Outcome(None, None),
    )


def send(live: LiveStream, given: Iterator[bytes]) -> None:
    live.kafka.send((live.topics[0], 0, None, value) for value in given)


@pytest.mark.full
@pytest.mark.covers("C4", "E46", "E55")
@pytest.mark.usefixtures("spark")
def test_a_window_of_them_commits_and_its_audit_agrees(make: Make) -> None:
    given: list[Throwing] = [*THROWING[:6], *TOO_DEEP]
    live = make(orders(), transform=transform(given))
    send(live, values(given))
    (record,) = live.ingest()
    (tally,) = record.tallies
    assert (tally.stored.number, tally.failed.number) == (len(given), len(given))
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()


@pytest.mark.full
@pytest.mark.covers("E55")
@pytest.mark.usefixtures("spark")
def test_an_error_that_ends_a_job_names_what_it_was_and_the_offsets(make: Make) -> None:
    """Memory is no fault of a message. The JVM lives on, and says so."""
    sql = "SELECT *, size(array_repeat(s, int(at))) AS made FROM messages"
    live = make(orders(), transform={"sql": sql, "fields": {"made": "integer"}})
    send(live, values([("", 2**31 - 100, "x")]))
    with pytest.raises(ProcessingFailed) as ended:
        live.ingest()
    assert f"{live.topics[0]}/0@0-2" in str(ended.value)
    assert "A Spark task had too little memory: " in str(ended.value)


@pytest.mark.full
def test_null_and_a_text_that_is_called_like_its_folder(make: Make, spark: SparkSession) -> None:
    live = make(orders({"type": "parquet", "folder": "-", "partition_by": ["s"]}))
    texts = [None, "__HIVE_DEFAULT_PARTITION__", "", "__hive_default_partition__", "NL", None, "nl", "Nl"]
    send(live, (json.dumps({"at": number, "s": text}).encode() for number, text in enumerate(texts)))
    (record,) = live.ingest()
    (sink,) = record.receipt.sinks if record.receipt else ()
    found = spark.read.parquet(sink.place["folder"]).select("at", field("s"), "by_s").orderBy("at").collect()
    assert [row["s"] for row in found] == texts
    assert [row["by_s"] for row in found] == [
        None,
        "%5F_HIVE_DEFAULT_PARTITION__",
        None,
        "%5F_hive_default_partition__",
        "NL",
        None,
        "nl",
        "Nl",
    ]
    assert Path(sink.place["folder"].removeprefix("file://")).exists()
