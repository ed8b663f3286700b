"""Constants of a stream file's SQL that are wrong for every message, and so no message's fault.

A regular expression, a form of times, a time zone, a JSON path, a charset, a unit. Spark looks at them only when it computes
rows. There a wrong one looks like an error of each message, or makes null of each: a check with one refuses nothing,
so it would never refuse anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark.spark.runtime.own_errors import first_cause
from tidemark.spark.runtime.plan_nodes import nodes_of

# Spark's expressions with a regular expression, which is the second child of each.
_WITH_PATTERN = {
    "RLike",
    "RegExpCount",
    "RegExpExtract",
    "RegExpExtractAll",
    "RegExpInStr",
    "RegExpReplace",
    "RegExpSubStr",
    "StringSplit",
    "StringToMap",
}
_NOW = "timestamp_micros(0)"
_READS_TIMES = "try_to_timestamp('x', ?) IS NULL"
_IN_ZONE = f"from_utc_timestamp({_NOW}, ?)"
# By expression and child, what is not null and does not throw with a constant that is right.
_TRIED: Mapping[tuple[str, int], str] = {
    ("DateFormatClass", 1): f"date_format({_NOW}, ?)",
    ("FromUnixTime", 1): "from_unixtime(0, ?)",
    **{(name, 1): _READS_TIMES for name in ("ParseToTimestamp", "ParseToDate", "UnixTimestamp", "ToUnixTimestamp")},
    **{(name, 1): _READS_TIMES for name in ("GetTimestamp", "TryToTimestampExpression")},
    ("FromUTCTimestamp", 1): _IN_ZONE,
    ("ToUTCTimestamp", 1): _IN_ZONE,
    ("ConvertTimezone", 0): _IN_ZONE,
    ("ConvertTimezone", 1): _IN_ZONE,
    ("MakeTimestamp", 6): _IN_ZONE,
    ("TruncTimestamp", 0): f"date_trunc(?, {_NOW})",
    ("TruncDate", 1): f"trunc(date({_NOW}), ?)",
    ("NextDay", 1): f"next_day(date({_NOW}), ?)",
    ("Encode", 1): "encode('x', ?)",
    ("StringDecode", 1): "decode(binary('x'), ?)",
    ("VariantGet", 1): "coalesce(try_variant_get(parse_json('1'), ?, 'string'), '')",
    ("ParseUrl", 1): "parse_url('http://a:b@c.d/e?f=g#h', ?)",
    ("SplitPart", 2): "split_part('x', 'y', ?)",
    ("Sha2", 1): "sha2('x', ?)",
}
_JSON_PATH = ("GetJsonObject", 1)
# What Spark reads as one. Its own reader of paths stands in another place in each version.
_IS_JSON_PATH = re.compile(r"\s*\$\s*(?:\.\s*[^.\[]+|\[\s*(?:\*|[0-9]+|'[^'?]+')\s*\]\s*)*+")


def wrong_constant(rows: DataFrame) -> str | None:
    """A constant in a plan that is wrong for every row, and why; None if there is none."""
    tried: dict[tuple[str, Any], None] = {}
    for kind, child, value in _constants(rows):
        if kind in _WITH_PATTERN and child == 1 and (why := _no_pattern(rows.sparkSession, value)):
            return f"{value!r} is no regular expression: {why}"
        if (kind, child) == _JSON_PATH and not _IS_JSON_PATH.fullmatch(value):
            return f"{value!r} is no JSON path, as $.a or $.a[0].b: each row would be null"
        if (kind, child) in _TRIED:
            tried[_TRIED[kind, child], value] = None
    # One query for all. From a row of its own it is computed while it is planned, and takes no job.
    if tried and _problem(rows.sparkSession, *tried):
        for one in tried:
            if why := _problem(rows.sparkSession, one):
                return f"{one[1]!r} is wrong for every message: {why}"
    if why := _not_planned(rows):
        return f"cannot be computed, whatever a message is: {why}"
    return None


def _not_planned(rows: DataFrame) -> str | None:
    """Why Spark cannot plan the rows: while it plans, it computes what is made of constants alone, such as `1 / 0`."""
    query: Any = rows._jdf.queryExecution()
    try:
        # An error of Java itself is no constant's.
        with suppress(Py4JJavaError):
            query.optimizedPlan()
    except PySparkException as problem:
        return _said(problem)
    return None


def _constants(rows: DataFrame) -> Iterator[tuple[str, int, Any]]:
    """The name, child number and value of each expression with a constant below it."""
    for node in nodes_of(rows):
        for child, below in enumerate(node.below):
            if below.kind == "Literal" and below.fields["value"] is not None:
                value = below.fields["value"]
                yield node.kind, child, int(value) if below.fields.get("dataType") == "integer" else value


def _no_pattern(spark: SparkSession, text: str) -> str | None:
    jvm: Any = spark.sparkContext._jvm
    try:
        jvm.java.util.regex.Pattern.compile(text)
    except IllegalArgumentException as problem:
        return str(problem).splitlines()[0]
    return None


def _problem(spark: SparkSession, *tried: tuple[str, Any]) -> str | None:
    columns = ", ".join(f"{sql} AS _{number}" for number, (sql, _) in enumerate(tried))
    # The texts are of _TRIED; values of people are arguments.
    query = f"SELECT {columns} FROM VALUES (0)"  # noqa: S608
    try:
        (row,) = spark.sql(query, args=[value for _, value in tried]).collect()
    except PySparkException as problem:
        return _said(problem)
    except Py4JJavaError as problem:
        return " ".join(first_cause(problem).split("\n")[0].split())[:300]
    # A row itself is asked for the names of its columns.
    return "each row would be null" if None in tuple(row) else None


def _said(problem: PySparkException) -> str:
    return " ".join(str(problem).split("SQLSTATE")[0].split())[:300]
