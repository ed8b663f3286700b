"""Fields of all types: one digest of a value by the one-pass way, the kept way, and readers without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.rows import messages_of, stream_of
from tests.support.typed_values import VECTORS, json_of, types, values
from tidemark.offsets.blocks import WHOLE
from tidemark.offsets.hashing import content_hash, coordinate_hash, row_hash, unsigned
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.values import value_of
from tidemark.spark.columns import DIGEST, OFFSET, content_digest, field, text
from tidemark.spark.readers.parquet import schema_of
from tidemark.spark.readers.places import of_text
from tidemark.spark.rows.one_pass import one_pass
from tidemark.spark.rows.outcomes import hashed
from tidemark.spark.rows.pipeline import rows_of
from tidemark.streams.model import Stream
from tidemark.types.digests import digested
from tidemark.types.fields import canonical, spark_type, text_of

AT = TopicPartition("orders", 0, 1)


def one_way(messages: DataFrame, stream: Stream) -> dict[int, int]:
    """The digest of each stored message, as Java computes it."""
    made = one_pass(messages.sparkSession, lambda counted: messages, stream, (), WHOLE)
    assert made is not None
    return {row[OFFSET]: unsigned(row[DIGEST]) for row in made.stored.select(OFFSET, DIGEST).collect()}


def kept_way(messages: DataFrame, stream: Stream) -> dict[int, int]:
    """The same as Spark computes it."""
    rows = hashed(rows_of(messages, stream).frame, stream.fields)
    return {row[OFFSET]: unsigned(row[DIGEST]) for row in rows.select(OFFSET, DIGEST).collect()}


def expected_digest(offset: int, fields: dict[str, str], row: dict[str, Any]) -> int:
    columns = [digested(kind, row[name]) for name, kind in fields.items()]
    return content_hash(row_hash(coordinate_hash(AT, offset), 0), [_bytes(one) for one in columns])


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.covers("N82")
@pytest.mark.parametrize(("kind", "value", "encoded", "hashed"), VECTORS)
def test_vectors(spark: SparkSession, kind: str, value: Any, encoded: str, hashed: str) -> None:
    """Spark's expressions give the canonical bytes that are specified."""
    from tidemark.spark.columns import _canonical
    from tidemark.types.ddl import type_alone

    given = dict(value) if kind.startswith("map") else value
    if isinstance(given, dict) and "m" in given:
        given = {**given, "m": dict(given["m"])}
    frame = spark.createDataFrame([(given,)], f"c {spark_type(canonical(kind))}")
    made = F.expr(_canonical("c", type_alone(kind), 0))
    (row,) = frame.select(F.hex(made).alias("bytes"), F.xxhash64(made).alias("hash")).collect()
    assert (row["bytes"].lower(), f"{unsigned(row['hash']):016x}") == (encoded, hashed)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    kinds = draw(st.lists(types(), min_size=5, max_size=5))
    fields = {f"F-{number}": text_of(kind) for number, kind in enumerate(kinds)}
    row = st.fixed_dictionaries({f"F-{number}": values(kind) for number, kind in enumerate(kinds)})
    return fields, draw(st.lists(row, min_size=5, max_size=10))


def check_agreement(spark: SparkSession, folder: Path, fields: dict[str, str], rows: list[dict[str, Any]]) -> None:
    stream = stream_of(scheme={"type": "json", "fields": fields})
    messages = messages_of(spark, [json_of(row).encode() for row in rows])
    expected = {offset: expected_digest(offset, fields, row) for offset, row in enumerate(rows)}
    assert one_way(messages, stream) == expected
    assert kept_way(messages, stream) == expected
    made = rows_of(messages, stream).frame
    # Files, by Arrow and by Spark.
    made.select(OFFSET, *map(field, fields)).write.mode("overwrite").parquet(str(folder))
    read = ds.dataset(folder, format="parquet").to_table().to_pylist()
    assert {row[OFFSET]: expected_digest(row[OFFSET], fields, row) for row in read} == expected
    columns = [one.name for one in schema_of(fields) if one.name in fields]
    files = spark.read.schema(schema_of(fields)).parquet(str(folder)).select(OFFSET, *map(field, columns))
    both = made.select(OFFSET, *map(field, fields)).join(
        files.withColumnRenamed(OFFSET, "o"), F.col(OFFSET) == F.col("o")
    )
    assert both.count() == len(rows)
    # HBase's texts, by Python and by Spark.
    texts = [text(name, kind).alias(f"t{number}") for number, (name, kind) in enumerate(fields.items())]
    stored = made.select(OFFSET, *texts)
    for row in stored.collect():
        contents = [None if one is None else bytes(one) for one in row[1:]]
        found = [*map(value_of, fields.values(), contents)]
        assert content_hash(row_hash(coordinate_hash(AT, row[0]), 0), found) == expected[row[0]], (fields, row)
    back = [
        of_text(F.col(f"t{number}"), spark_type(kind)).alias(name) for number, (name, kind) in enumerate(fields.items())
    ]
    place = made.drop(*fields).join(stored.select(OFFSET, *back), OFFSET)
    again = place.select(OFFSET, content_digest(fields).alias("digest"))
    assert {row[OFFSET]: unsigned(row["digest"]) for row in again.collect()} == expected


@pytest.mark.covers("N82")
@settings(
    max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck], derandomize=True
)
@given(case=_cases())
def test_all_ways_agree(spark: SparkSession, tmp_path: Path, case: tuple[dict[str, str], list[dict[str, Any]]]) -> None:
    check_agreement(spark, tmp_path, *case)


@pytest.mark.full
@settings(max_examples=40, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
@given(case=_cases())
def test_all_ways_agree_on_many(
    spark: SparkSession, tmp_path: Path, case: tuple[dict[str, str], list[dict[str, Any]]]
) -> None:
    check_agreement(spark, tmp_path, *case)
