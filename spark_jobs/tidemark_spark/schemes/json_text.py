"""Strict JSON, as its standard says. Spark's own functions accept more."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tidemark.schemes.json_depth import DEEPEST, TOO_DEEP
from tidemark_spark.columns import VALUE
from tidemark_spark.runtime.compiling import compiled, new_instance

NOT_JSON = "not one JSON value, or a key stands twice in it"

_DEPTH = Path(__file__).with_name("Depth.java")
_NAME = "tidemark_json_too_deep"

# Random, so that no writer of messages can know it.
_END = secrets.token_hex(16)


def too_deep(spark: SparkSession) -> Column:
    """Whether VALUE is nested so deeply that what reads JSON might overflow a task's stack, which ends Spark's JVM.

    Spark's own limit is higher than what its functions have room for.
    """
    if not spark.catalog.functionExists(_NAME):
        java: Any = spark
        jvm: Any = spark.sparkContext._jvm
        function = new_instance(compiled(spark.sparkContext, _DEPTH), DEEPEST)
        java._jsparkSession.udf().register(_NAME, function, jvm.org.apache.spark.sql.types.DataTypes.BooleanType)
    # As many brackets need as many bytes.
    return (F.octet_length(VALUE) > DEEPEST) & F.call_udf(_NAME, F.col(VALUE))


def why_not_json(spark: SparkSession) -> Column:
    """The reason for a VALUE that is text, and not one JSON value."""
    return F.when(too_deep(spark), F.lit(TOO_DEEP)).otherwise(F.lit(NOT_JSON))


def one_value(text: Column) -> Column:
    """The JSON value of a text, as a variant; null when the text is not exactly one value, or has a key twice in an object.

    Null too for a variant of more than 16 MiB.
    """
    # Spark ignores everything after the first value of a text. So the text becomes the first element of an array with an end
    # of ours: it can then neither be more than one value nor close the array itself.
    parsed = elements(F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',"{_END}"]'))))
    ended = F.try_variant_get(F.get(parsed, F.lit(1)), "$", "string") == _END
    return F.when((F.size(parsed) == 2) & ended, F.get(parsed, F.lit(0)))


def elements(value: Column) -> Column:
    """The elements of a JSON array, each a variant; null for another value."""
    return F.try_variant_get(value, "$", "array<variant>")


def members(value: Column) -> Column:
    """The values of a JSON object by their keys, which are in order; null for another value."""
    return F.try_variant_get(value, "$", "map<string, variant>")
