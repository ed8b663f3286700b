"""Strict JSON, whose numbers keep their text. Spark's own functions accept more, and write numbers in their own way."""

from __future__ import annotations

import secrets
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tidemark.schemes.json_depth import DEEPEST, TOO_DEEP
from tidemark.spark.runtime.compiling import value_by_java

NOT_JSON = "not one JSON value, or a key stands twice in it"

_NUMBERS, _ELEMENTS = (Path(__file__).with_name(f"{name}.java") for name in ("Numbers", "Elements"))

# Random, so that no writer of messages can know them. The first begins the text of a number, which is a text in a variant.
_MARK = secrets.token_hex(6)
_END = secrets.token_hex(16)


def json_value(spark: SparkSession, text: Column) -> Column:
    """The JSON value of VALUE, which is `text`, as a variant; null when it is not exactly one, or has a key twice in an object.

    Null too for what is nested too deeply, and for a variant of more than 16 MiB. A number that a variant would write in
    another way (`1e3`, `1.10`, 50 digits) is a marked text in it: see `number`. For each level, what reads JSON calls itself.
    Without an end to the levels, it would overflow a task's stack, which ends Spark's JVM.
    """
    return _one_value(F.when(text.isNotNull(), _marked(spark)).cast("string"))


def why_not_json(spark: SparkSession) -> Column:
    """The reason for a VALUE that is text, and not one JSON value."""
    return F.when(_marked(spark).isNull(), F.lit(TOO_DEEP)).otherwise(F.lit(NOT_JSON))


def elements_as_written(spark: SparkSession, key: str | None) -> Column:
    """The elements of the JSON array in VALUE, or of its member `key`, as bytes; null for another value.

    Each is as it stands there; of a string it is the text. VALUE has to be JSON.
    """
    name = "tidemark_json_elements" if key is None else f"tidemark_json_elements_{key.encode().hex()}"
    return value_by_java(spark, name, _ELEMENTS, "array<binary>", key)


def number(text: Column) -> Column:
    """The text of a number, of the text that stands for it in a variant; null for the text of a string."""
    return F.when(F.startswith(text, F.lit(_MARK)), F.substr(text, F.lit(len(_MARK) + 1)))


def unmarked(json: Column) -> Column:
    """JSON of variants, with the numbers as they were written."""
    return F.when(F.contains(json, F.lit(_MARK)), F.regexp_replace(json, f'"{_MARK}([^"]*+)"', "$1")).otherwise(json)


def elements(value: Column) -> Column:
    """The elements of a JSON array, each a variant; null for another value."""
    return F.try_variant_get(value, "$", "array<variant>")


def members(value: Column) -> Column:
    """The values of a JSON object by their keys, which are in order; null for another value."""
    return F.try_variant_get(value, "$", "map<string, variant>")


def _one_value(text: Column) -> Column:
    # Spark ignores everything after the first value of a text. So the text becomes the first element of an array with an end
    # of ours: it can then neither be more than one value nor close the array itself.
    parsed = elements(F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',"{_END}"]'))))
    ended = F.try_variant_get(F.get(parsed, F.lit(1)), "$", "string") == _END
    return F.when((F.size(parsed) == 2) & ended, F.get(parsed, F.lit(0)))


def _marked(spark: SparkSession) -> Column:
    return value_by_java(spark, f"tidemark_json_{_MARK}", _NUMBERS, "binary", DEEPEST, _MARK)
