"""What Spark computes for us is what plain Python does: digests, to the bit, and texts in SQL."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.offsets.hashing import Value, content_hash, coordinate_hash, row_hash, unsigned
from tidemark.offsets.ranges import MAX_OFFSET, TopicPartition
from tidemark.spark import columns
from tidemark.spark.columns import INCARNATION, INDEX, OFFSET, PARTITION, TOPIC

PLACE = f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, {OFFSET} long, {INDEX} int"
KINDS: dict[str, Any] = {"string": "ü x", "binary": b"\x00\xff", "long": -7, "double": -1.5, "boolean": True}


def of_any_kind(chance: random.Random, kinds: list[str]) -> list[Any]:
    return [None if chance.random() < 0.4 else KINDS[kind] for kind in kinds]


def as_hashed(value: Any) -> Value:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("width", [0, 1, 63, 64, 65, 130])
def test_digests_of_rows_with_many_fields_and_nulls(spark: SparkSession, width: int) -> None:
    """A bit for each of 64 fields says whether it is null, the 64th in the sign of a long."""
    chance = random.Random(width)
    kinds = [chance.choice([*KINDS]) for _ in range(width)]
    names = [f"a-{number}" for number in range(width)]
    places = [
        (chance.choice(["orders", "über"]), 3, 7, offset, index)
        for offset in (0, 5, MAX_OFFSET - 1)
        for index in (0, 2)
    ]
    values = [of_any_kind(chance, kinds) for _ in places[2:]] + [[None] * width, [KINDS[kind] for kind in kinds]]
    schema = ", ".join([PLACE, *(f"`{name}` {kind}" for name, kind in zip(names, kinds, strict=True))])
    rows = spark.createDataFrame([(*at, *row) for at, row in zip(places, values, strict=True)], schema)
    computed = rows.select(
        *columns.COORDINATE,
        INDEX,
        columns.message_hash().alias("message"),
        columns.row_hash().alias("row"),
        columns.content_digest(names).alias("content"),
    ).orderBy(F.col(OFFSET), F.col(INDEX))
    for (topic, incarnation, partition, offset, index), row, found in zip(
        places, values, computed.collect(), strict=True
    ):
        message = coordinate_hash(TopicPartition(topic, partition, incarnation), offset)
        of_row = row_hash(message, index)
        assert [unsigned(found[name]) for name in ("message", "row", "content")] == [
            message,
            of_row,
            content_hash(of_row, [as_hashed(value) for value in row]),
        ]


TEXTS = [
    "",
    "a",
    "it's",
    "''",
    "\\",
    "\\'",
    "a\\nb",
    "a\nb",
    '"`%',
    "${user.home}",
    "yyyy-MM-dd'T'HH",
    "\u00fc\u2028\U0001f600",
]


@pytest.mark.parametrize("escaped", ["false", "true"])
def test_a_text_stands_for_itself_in_sql(spark: SparkSession, escaped: str) -> None:
    name = "spark.sql.parser.escapedStringLiterals"
    spark.conf.set(name, escaped)
    try:
        (row,) = spark.range(1).select(*(F.expr(columns.literal(text)) for text in TEXTS)).collect()
    finally:
        spark.conf.unset(name)
    assert list(row) == TEXTS
