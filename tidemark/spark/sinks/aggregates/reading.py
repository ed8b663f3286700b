"""Totals with Spark: by the history, and as the table has them."""

from __future__ import annotations

from functools import reduce
from operator import and_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.window import Window

from tidemark.schemes.kinds import Fields
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.aggregates.states import Aggregate
from tidemark.spark.columns import COORDINATE, DIGEST, INDEX, content_digest, field, flat_text
from tidemark.spark.sinks.latest.reading import NEWEST, THERE
from tidemark.types.fields import spark_type

PLACE = (*COORDINATE, INDEX)
# The last digits of a sum of doubles depend on the order of the numbers, and how many do on the size of these: large numbers
# may add up to a small one. So this is of the sum of their absolute values.
_TOLERANCE = 1e-9


def _key(number: int) -> str:
    return f"key_{number}"


def _value(number: int) -> str:
    return f"value_{number}"


def _scale(number: int) -> str:
    return f"scale_{number}"


def key_totals(rows: DataFrame, sink: AggregatesSettings, fields: Fields) -> DataFrame:
    """Key and values of each key of some rows, with their types."""
    aggregates = sink.aggregates(fields)
    keys = [field(name).alias(_key(number)) for number, name in enumerate(sink.key)]
    totals = rows.groupBy(*keys).agg(*(_total(one).alias(_value(number)) for number, one in enumerate(aggregates)))
    return totals.toDF(*sink.key, *sink.values)


def _total(one: Aggregate) -> Column:
    kind = spark_type(one.type)
    if one.field is None:
        return F.count("*").cast(kind)
    # -0.0 becomes 0.0: which of the two Spark takes for the least or the most depends on their order.
    value = field(one.field) + F.lit(0.0) if one.kind == "double" else field(one.field)
    if one.function == "sum":
        # A table has fewer than 10^19 rows of a key, so 38 digits hold any sum of integers.
        return F.sum(value.cast("decimal(28,0)") if one.kind == "integer" else value).cast(kind)
    return F.min(value) if one.function == "min" else F.max(value)


def _keys(sink: AggregatesSettings, fields: Fields) -> dict[str, Column]:
    """The key of a row as the table has it."""
    return {_key(number): _text_of_key(name, fields) for number, name in enumerate(sink.key)}


def _text_of_key(name: str, fields: Fields) -> Column:
    text = flat_text(name)
    return F.when(field(name) == 0, F.lit("0.0").cast("binary")).otherwise(text) if _is_float(fields[name]) else text


def _is_float(kind: str) -> bool:
    return kind in ("double", "float")


def with_newest(rows: DataFrame, sink: AggregatesSettings, fields: Fields) -> DataFrame:
    """Rows of a history, with NEWEST: whether each is the last one of its key, by its coordinate."""
    last = Window.partitionBy(*_keys(sink, fields).values()).orderBy(*(F.col(name).desc() for name in PLACE))
    return rows.withColumn(NEWEST, F.row_number().over(last) == 1)


def compared_totals(there: DataFrame, newest: DataFrame, sink: AggregatesSettings, fields: Fields) -> DataFrame:
    """A table as rows at the places of the last ones of their keys, with THERE: the digest of that row if the total is right.

    `there`: the table's rows with the columns of `totals_schema`. `newest`: the history with NEWEST. A key that the history
    lacks is at the place that the table gives it.
    """
    aggregates = sink.aggregates(fields)
    keys = _keys(sink, fields)
    scaled = [number for number, one in enumerate(aggregates) if one.sums_doubles]
    states = [_total(one).cast("string").cast("binary").alias(_value(number)) for number, one in enumerate(aggregates)]
    scales = [F.sum(F.abs(field(str(aggregates[number].field)))).alias(_scale(number)) for number in scaled]
    totals = newest.groupBy(*(column.alias(name) for name, column in keys.items())).agg(*states, *scales)
    digest = content_digest(fields).alias(THERE)
    last = newest.where(NEWEST).select(*PLACE, DIGEST, digest, *(one.alias(name) for name, one in keys.items()))

    def same_key(one: str, other: str) -> Column:
        return reduce(and_, (F.col(f"{one}.{name}").eqNullSafe(F.col(f"{other}.{name}")) for name in keys))

    by_history = totals.alias("totals").join(last.alias("last"), same_key("totals", "last"))
    by_history = by_history.select("totals.*", *(F.col(f"last.{name}") for name in (*PLACE, DIGEST, THERE)))
    both = there.alias("table").join(by_history.alias("history"), same_key("table", "history"), "left")
    same = reduce(and_, (_same(number, one) for number, one in enumerate(aggregates)))
    wrong = F.coalesce(F.col(f"history.{THERE}"), F.lit(0)).bitwiseXOR(F.lit(1))
    return both.select(
        *(F.coalesce(F.col(f"history.{name}"), F.col(f"table.{name}")).alias(name) for name in PLACE),
        F.coalesce(F.col(f"history.{DIGEST}"), F.lit(0).cast("long")).alias(DIGEST),
        F.when(F.coalesce(same, F.lit(False)), F.col(f"history.{THERE}")).otherwise(wrong).alias(THERE),
    )


def totals_schema(sink: AggregatesSettings) -> pa.Schema:
    """A place, the key and the values, as texts."""
    return pa.schema(
        [
            *zip(PLACE, (pa.string(), pa.int32(), pa.int32(), pa.int64(), pa.int32()), strict=True),
            *((_key(number), pa.binary()) for number, _ in enumerate(sink.key)),
            *((_value(number), pa.binary()) for number, _ in enumerate(sink.values)),
        ]
    )


def as_totals(table: DataFrame, sink: AggregatesSettings, fields: Fields) -> DataFrame:
    """The rows of a table that has a column for each total, with the columns of `totals_schema`. They have no place."""
    kinds = from_arrow_schema(totals_schema(sink))
    places = [F.lit(None).cast(kinds[name].dataType).alias(name) for name in PLACE]
    keys = [one.alias(name) for name, one in _keys(sink, fields).items()]
    values = [flat_text(name).alias(_value(number)) for number, name in enumerate(sink.values)]
    return table.select(*places, *keys, *values)


def _same(number: int, one: Aggregate) -> Column:
    """Whether a value of the table is that of the history."""
    theirs, ours = F.col(f"table.{_value(number)}"), F.col(f"history.{_value(number)}")
    return same_sum(theirs, ours, F.col(f"history.{_scale(number)}")) if one.sums_doubles else theirs.eqNullSafe(ours)


def same_sum(one: Column, other: Column, scale: Column) -> Column:
    """Whether two sums of doubles, as HBase has them, are the same; never null.

    `scale` is the sum of the absolute values behind them.
    """
    numbers = [side.cast("string").try_cast("double") for side in (one, other)]
    # To Spark, NaN equals itself and is larger than all numbers.
    near = (scale < F.lit(float("inf"))) & (F.abs(numbers[0] - numbers[1]) <= scale * _TOLERANCE)
    return one.eqNullSafe(other) | F.coalesce(near, F.lit(False))
