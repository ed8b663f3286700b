"""Which rows are made of their message alone, whenever they are computed: only of these an audit takes the tallies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.rows import GIVEN_BACK, messages_of, stream_of
from tidemark.errors import WrongUse
from tidemark.spark.rows import one_pass, outcomes
from tidemark.spark.rows.pipeline import _may_differ, check_rows
from tidemark.spark.rows.transform import repeats

JSON: dict[str, Any] = {"type": "json", "fields": {"id": "integer", "s": "string", "at": "timestamp"}}
VALUES: list[bytes | None] = [b'{"id":2,"s":"a"}', b'{"id":3,"s":"b"}']
PARTS = [
    ("upper(s)", True),
    ("date_format(at, 'yyyy')", True),
    ("string(to_timestamp(s, 'HH:mm'))", True),
    ("string(CAST(s AS DATE))", True),
    ("string(CAST(at AS TIMESTAMP))", True),
    ("string(timestamp_millis(id))", True),
    ("get_json_object(s, '$.a')", True),
    # Of the day on which they are computed.
    ("string(CAST('12:30' AS TIMESTAMP))", False),
    ("string(CAST(s AS TIMESTAMP))", False),
    ("string(try_cast(concat(s, '') AS TIMESTAMP))", False),
    ("string(to_timestamp(s))", False),
    ("string(try_to_timestamp(s))", False),
    ("string(s > at)", False),
    ("string(hour(s))", False),
    ("string(from_json(s, 'a TIMESTAMP').a)", False),
    ("string(variant_get(parse_json(s), '$', 'timestamp'))", False),
    # Otherwise each time.
    ("hex(aes_encrypt(s, 'abcdefghijklmnop'))", False),
    ("string(Aes_Encrypt (s, 'abcdefghijklmnop'))", False),
    ("uuid()", False),
    ("string(now())", False),
    ("string(date'today')", False),
]


def stream(**parts: Any) -> Any:
    return stream_of(scheme=JSON, **parts)


@pytest.mark.full
@pytest.mark.covers("N6")
@pytest.mark.parametrize(("expression", "alone"), PARTS)
def test_a_transform_and_a_check_of_one_message(spark: SparkSession, expression: str, alone: bool) -> None:
    sql = f"SELECT {GIVEN_BACK}, {expression} AS x FROM messages"
    assert one_pass.made_of_messages(spark, stream(transform={"sql": sql, "fields": {"x": "string"}})) is alone
    checked = stream(checks=[{"invalid_when": f"{expression} = 'x'", "reason": "no"}])
    assert one_pass.made_of_messages(spark, checked) is alone
    assert one_pass.made_of_messages(spark, stream()) is True


def test_what_is_drawn_at_random_is_never_computed_again(spark: SparkSession) -> None:
    """Spark takes the result of aes_encrypt for the same each time: it has a vector drawn at random in it."""
    sql = f"SELECT {GIVEN_BACK}, hex(aes_encrypt(s, 'abcdefghijklmnop')) AS x FROM messages"
    drawn = stream(transform={"sql": sql, "fields": {"x": "string"}})
    frame = messages_of(spark, VALUES)
    assert one_pass.one_pass(spark, lambda _: frame, drawn, (), 10) is None
    assert _may_differ(outcomes.with_outcomes(frame, drawn), drawn)


@pytest.mark.full
@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("SELECT {0}, s AS x FROM messages", True),
        ("WITH a AS (SELECT * FROM messages) SELECT {0}, s AS x FROM a", True),
        ("SELECT {1}, i AS _index, x FROM messages LATERAL VIEW stack(2, 0, s, 1, s) v AS i, x", True),
        ("SELECT {2}, t.s AS x FROM messages m CROSS JOIN parquet.`{3}` t WHERE t.id < m.id", False),
        ("SELECT {2}, t.s AS x FROM messages m JOIN parquet.`{3}` t ON t.id = m.id", False),
        ("SELECT {2}, t.s AS x FROM messages m, (SELECT s FROM parquet.`{3}`) t", False),
    ],
)
def test_rows_of_another_table_may_change(spark: SparkSession, tmp_path: Path, sql: str, same: bool) -> None:
    """However Spark brings them together: a cross join of large tables shuffles nothing."""
    other = str(tmp_path / "other")
    spark.sql("SELECT id, string(id) AS s FROM range(10)").write.parquet(other)
    of_table = ", ".join(f"m.{name}" for name in GIVEN_BACK.split(", "))
    text = sql.format(GIVEN_BACK, GIVEN_BACK.replace(", _index", ""), of_table, other)
    given = stream(transform={"sql": text, "fields": {"x": "string"}})
    rows = outcomes.with_outcomes(messages_of(spark, VALUES), given)
    joined = "spark.sql.autoBroadcastJoinThreshold"
    spark.conf.set(joined, "-1")
    try:
        assert repeats(rows, given.scheme.fields, given.transform) is same
    finally:
        spark.conf.unset(joined)


@pytest.mark.full
@pytest.mark.parametrize("condition", ["count(*) > 1", "max(id) = 2", "explode(array(1, 2)) = 1"])
def test_a_check_over_several_rows_is_refused_before_anything_is_read(spark: SparkSession, condition: str) -> None:
    """What the stream file's own check does not know by its words."""
    with pytest.raises(
        WrongUse, match=r"checks.0.invalid_when: .* (looks at other messages|The generator is not supported)"
    ):
        check_rows(spark, stream(checks=[{"invalid_when": condition, "reason": "no"}]))
    check_rows(spark, stream(checks=[{"invalid_when": "exists(array(id), one -> one = 2)", "reason": "no"}]))
