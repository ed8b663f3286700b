"""The user's transform: rows into other rows, and the proof that each row belongs to a message that the transform got."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.errors import ProcessingFailed, TidemarkError, TransformRefused, WrongUse
from tidemark.functions import load_function
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Outcome
from tidemark.schemes.kinds import Fields
from tidemark.spark.columns import (
    COORDINATE,
    INCARNATION,
    INDEX,
    KEY,
    OFFSET,
    OUTCOME,
    PARTITION,
    REASON,
    TIMESTAMP,
    TOMBSTONE,
    TOPIC,
    VALUE,
    code,
    field,
    has,
)
from tidemark.spark.rows.explode import carries_too_much
from tidemark.spark.runtime.compiling import compiled, new_instance
from tidemark.spark.runtime.frames import frame_of, rows_of
from tidemark.spark.runtime.masking import masked
from tidemark.spark.runtime.single_computation import depends_on_order, repeatable
from tidemark.spark.schemes.fields import INTEGERS, accepted
from tidemark.streams.transform import GIVEN_BACK, MESSAGES, Transform
from tidemark.types.fields import spark_type

_IS_ROW, _ALONE, _NUMBER = "_is_row", "_alone", "_number"
_PROBLEM = "_problem"
# The size of a message's value, and whether its rows would keep its key too often.
_SIZE, _TOO_MANY = "_size", "_too_many"
# In bytes, of the rows that a transform makes of one message. Kafka's messages have a megabyte.
MAX_OF_ONE_MESSAGE = 256 << 20
_BOUNDED = Path(__file__).with_name("Bounded.java")
_DECIDED = (OUTCOME, REASON, TOMBSTONE)
# The columns that sinks may need on every row.
_ON_EACH = (KEY, TIMESTAMP)
_SHOWN = 5
# Semicolons and comments at the end of a statement.
_AT_THE_END = re.compile(r"(?:;|\s|--[^\n]*|/\*(?:(?!\*/).)*\*/)+\Z", re.DOTALL)


def transformed(rows: DataFrame, given: Fields, transform: Transform) -> DataFrame:
    """The rows that a transform makes of rows with the fields `given`; `refuse_invented` checks them later.

    The transform gets the valid messages, without tombstones. Tombstones stay, with those of their fields that the transform
    gives under the same name and type. A message for which the transform gives no row is skipped. Raises WrongUse, before
    anything is computed, when the transform cannot run, or lacks columns that it must give.
    """
    fields = transform.declared()
    through = goes_through()
    result = bounded(apart(given_to(rows, given)), transform)
    # The other columns of a message: key, value, time, and those that a dead letter needs.
    carried = [column for column in rows.schema if column.name not in {*GIVEN_BACK, *_DECIDED, *given}]
    messages = rows.where(through & (F.col(INDEX) == 0)).select(
        *GIVEN_BACK,
        *(column.name for column in carried),
        *_nulls(fields).values(),
        F.lit(False).alias(_IS_ROW),
        F.octet_length(VALUE).alias(_SIZE),
    )
    nothing = [F.lit(None).cast(column.dataType).alias(column.name) for column in carried]
    made = result.select(
        *GIVEN_BACK, *nothing, *map(field, fields), F.lit(True).alias(_IS_ROW), F.lit(None).cast("int").alias(_SIZE)
    )
    null = _nulls(fields)
    beside = rows.where(~through).select(
        *GIVEN_BACK,
        *(column.name for column in carried),
        *_DECIDED,
        F.lit(None).cast("string").alias(_PROBLEM),
        *(field(name) if given.get(name) == kind else null[name] for name, kind in fields.items()),
    )
    return beside.unionByName(_joined(messages.unionByName(made), [column.name for column in carried], fields))


def goes_through() -> Column:
    """Whether a transform gets a row: it is valid, and no tombstone."""
    return has(Outcome.STORED) & ~F.col(TOMBSTONE)


def given_to(rows: DataFrame, given: Fields) -> DataFrame:
    """The rows, and their columns, that a transform gets."""
    return rows.where(goes_through()).select(*GIVEN_BACK, *map(field, given))


def apart(rows: DataFrame) -> DataFrame:
    """The same rows, as if they came from a table: no expression over them is computed for a row that is not among them.

    Otherwise Spark may compute a condition of the transform before the one that leaves out messages which it fails on, and
    those that a check has refused.
    """
    return frame_of(rows.sparkSession, rows_of(rows), rows.schema)


def made_of(given: DataFrame, transform: Transform) -> DataFrame:
    """A transform's result for the rows that it gets. Raises WrongUse as `transformed` does."""
    return _checked(_applied(given, transform), transform.declared())


def bounded(given: DataFrame, transform: Transform) -> DataFrame:
    """As `made_of`. Computing it fails for a message whose rows are larger together than any message needs.

    A `LATERAL VIEW` may keep a long field of a message once for each of its pieces, and would fill a disk with it.
    """
    made = made_of(given, transform)
    passing = new_instance(compiled(made.sparkSession.sparkContext, _BOUNDED), MAX_OF_ONE_MESSAGE)
    return frame_of(made.sparkSession, rows_of(made).mapPartitions(passing), made.schema)


def _joined(both: DataFrame, carried: Sequence[str], fields: Fields) -> DataFrame:
    """Each message with the rows that were made of it, numbered from 0 in the order of their indexes; or alone.

    One shuffle puts a message first, and its rows after it. Here the message at offset 7 became rows with the indexes 4 and
    9, and the message at offset 8 was dropped:

        given       _is_row  INDEX   becomes
        offset 7    false    0       nothing: it is not alone
                    true     4       index 0, stored, with what the line above it carries (value, headers)
                    true     9       index 1, stored, with key and time only
        offset 8    false    0       index 0, skipped: it is alone
    """
    is_row, whole = F.col(_IS_ROW), Window.partitionBy(*COORDINATE)
    # Each row gets the key: see `explode`. What is dropped here was not counted yet.
    both = both.withColumn(
        _TOO_MANY,
        F.coalesce(
            carries_too_much(
                F.count_if(is_row).over(whole),
                F.max(F.coalesce(F.octet_length(KEY), F.lit(0))).over(whole).cast("long"),
                F.max(_SIZE).over(whole),
            ),
            F.lit(False),
        ),
    ).where(~is_row | ~F.col(_TOO_MANY))
    together = whole.orderBy(_IS_ROW, INDEX)
    problem = (
        F.when(is_row & F.first(_IS_ROW).over(together), F.lit("of a message that it was not given"))
        .when(is_row & F.col(INDEX).isNull(), F.lit("without an index"))
        .when(is_row & F.lag(_IS_ROW).over(together) & (F.lag(INDEX).over(together) == F.col(INDEX)), F.lit("twice"))
    )
    joined = both.withColumns(
        {
            _PROBLEM: problem,
            _ALONE: ~is_row & F.lead(_IS_ROW).over(together).isNull(),
            _NUMBER: F.when(is_row, F.row_number().over(together) - 2).otherwise(F.lit(0)),
            # Only the first row, right after the message's own, gets the value: values may be large.
            **{
                name: F.first(name).over(together)
                if name in _ON_EACH
                else F.when(is_row, F.lag(name).over(together)).otherwise(F.col(name))
                for name in carried
            },
        }
    )
    return joined.where(is_row | F.col(_ALONE)).select(
        *COORDINATE,
        F.when(F.col(_PROBLEM).isNull(), F.col(_NUMBER)).otherwise(F.col(INDEX)).alias(INDEX),
        *carried,
        F.when(is_row, code(Outcome.STORED))
        .when(F.col(_TOO_MANY), code(Outcome.FAILED))
        .otherwise(code(Outcome.SKIPPED))
        .alias(OUTCOME),
        F.when(F.col(_TOO_MANY), F.lit("transform: too many rows for the length of its key")).alias(REASON),
        F.lit(False).alias(TOMBSTONE),
        _PROBLEM,
        *map(field, fields),
    )


def repeats(rows: DataFrame, given: Fields, transform: Transform) -> bool:
    """Whether a transform makes the same rows each time. Spark can tell that for SQL, but not for a function."""
    if transform.sql is None:
        return False
    messages = rows.sparkSession.createDataFrame([], rows.select(*GIVEN_BACK, *map(field, given)).schema)
    result = _applied(messages, transform)
    return repeatable(result) and not depends_on_order(result)


def refuse_invented(rows: DataFrame) -> DataFrame:
    """The rows, if each belongs to a message that the transform got, and is there once. Raises TransformRefused."""
    invented = rows.where(F.col(_PROBLEM).isNotNull()).orderBy(*COORDINATE, INDEX).limit(_SHOWN).collect()
    if not invented:
        return rows.drop(_PROBLEM)
    named = "; ".join(f"{_at(row)} index {row[INDEX]} {row[_PROBLEM]}" for row in invented)
    raise TransformRefused(
        f"the transform gives rows that cannot be told apart or come from nowhere: {named}. It has to give "
        f"{', '.join(GIVEN_BACK[:-1])} as they came, and each row of a message with an `_index` of its own"
    )


def _at(row: Row) -> str:
    topic, incarnation, partition, offset = (row[name] for name in COORDINATE)
    if None in (topic, incarnation, partition, offset):
        return f"{topic}/{partition}@{offset}"
    return str(Coordinate(TopicPartition(topic, partition, incarnation), offset))


def _applied(given: DataFrame, transform: Transform) -> DataFrame:
    if transform.sql is None:
        return _called(given, transform.function or "")
    spark = given.sparkSession
    given.createOrReplaceTempView(MESSAGES)
    try:
        _refuse_statement(spark, transform.sql)
        return spark.sql(transform.sql)
    except PySparkException as problem:
        raise WrongUse(f"transform.sql: {masked(problem)}") from problem
    finally:
        spark.catalog.dropTempView(MESSAGES)


def _refuse_statement(spark: SparkSession, sql: str) -> None:
    """Raises WrongUse for SQL that is no query: `spark.sql` carries out an INSERT or a SET at once."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    try:
        parser.parsePlan(sql)
    except PySparkException:
        return  # No statement at all: `spark.sql` says what is wrong with it.
    # A query may end with a semicolon, which Spark's grammar rule for queries does not allow.
    for text in (sql, _AT_THE_END.sub("", sql)):
        with suppress(PySparkException):
            parser.parseQuery(text)
            return
    raise WrongUse("transform.sql: expected a query; this is another statement of Spark's, which it would carry out")


def _called(given: DataFrame, name: str) -> DataFrame:
    function = load_function("transform.function", name)
    try:
        result = function(given)
    except PySparkException as problem:
        raise WrongUse(f"transform.function: {name}: {masked(problem)}") from problem
    except TidemarkError:
        raise
    except Exception as problem:
        raise ProcessingFailed(
            f"transform.function: {name} raised {type(problem).__name__}: {masked(problem)}"
        ) from problem
    if not isinstance(result, DataFrame):
        raise WrongUse(f"transform.function: {name} gives {type(result).__name__}; expected a DataFrame")
    return result


def _checked(result: DataFrame, fields: Fields) -> DataFrame:
    """The columns that a transform has to give, with their types; drops all others. Raises WrongUse."""
    own = {TOPIC: "string", INCARNATION: "int", PARTITION: "int", OFFSET: "integer", INDEX: "int"}
    expected = {**own, **fields}
    times = Counter(name.lower() for name in result.columns)
    types = {column.name.lower(): column.dataType for column in result.schema}
    for name, kind in expected.items():
        wanted = spark_type(kind)
        if times[name.lower()] != 1:
            what = "no column" if name.lower() not in times else f"{times[name.lower()]} columns"
            raise WrongUse(
                f"transform: the result has {what} {name}; expected one of type {wanted}. It has to give "
                f"{', '.join(GIVEN_BACK)} as they came, and each of `fields`; it gives {', '.join(result.columns)}"
            )
        type_ = types[name.lower()]
        # An index is numbered again, so that any integer does.
        if not accepted(type_, kind) and not (name == INDEX and isinstance(type_, INTEGERS)):
            raise WrongUse(f"transform: {name} is {type_.simpleString()} in the result; expected {wanted}")
    return result.select(*(field(name).cast(spark_type(kind)).alias(name) for name, kind in expected.items()))


def _nulls(fields: Fields) -> dict[str, Column]:
    return {name: F.lit(None).cast(spark_type(kind)).alias(name) for name, kind in fields.items()}
