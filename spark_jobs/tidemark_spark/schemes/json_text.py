"""Strict JSON, as its standard says. Spark's own functions accept more."""

from __future__ import annotations

import secrets

from pyspark.sql import Column
from pyspark.sql import functions as F

NOT_JSON = "not one JSON value, or a key stands twice in it"

# Random, so that no writer of messages can know it.
_END = secrets.token_hex(16)


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
