"""Text that is JSON as its standard says, and nothing else: what Spark's own functions pass over is told apart here."""

from __future__ import annotations

import secrets

from pyspark.sql import Column
from pyspark.sql import functions as F

NOT_JSON = "not one JSON value, or a key stands twice in it"

# Nobody who wrote a message can have known it.
_END = secrets.token_hex(16)


def one_value(text: Column) -> Column:
    """The JSON value that a text is, as a variant; null when it is not exactly one, or has a key twice in an object.

    A variant of more than 16 MiB is none either.
    """
    # Behind the first value of a text, Spark looks no further. As the first element of an array with an end of ours, the
    # text can neither be more than one value nor close the array itself.
    parsed = elements(F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',"{_END}"]'))))
    ended = F.try_variant_get(F.get(parsed, F.lit(1)), "$", "string") == _END
    return F.when((F.size(parsed) == 2) & ended, F.get(parsed, F.lit(0)))


def elements(value: Column) -> Column:
    """The elements of a JSON array, each a variant; null for another value."""
    return F.try_variant_get(value, "$", "array<variant>")


def members(value: Column) -> Column:
    """The values of a JSON object by their keys, which are in order; null for another value."""
    return F.try_variant_get(value, "$", "map<string, variant>")
