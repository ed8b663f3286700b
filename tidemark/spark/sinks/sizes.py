"""Rows that are too large for a sink: found before any sink writes, so that no such row holds up a window."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.schemes.kinds import Fields
from tidemark.spark.columns import field, flat_text, text
from tidemark.types.fields import FieldType, is_long, is_nested

# Longest text of a number, a time or a boolean.
_SHORT = 40


def size_of(name: str, kind: FieldType) -> Column:
    """The bytes of a field that is a text, bytes or JSON; null for null."""
    return F.octet_length(text(name, kind) if is_nested(kind) else field(name))


def at_most(fields: Fields, each: int) -> Column:
    """An upper bound of the fields' bytes, with `each` for one byte of a text or of a name. Cheap to compute."""
    sizes = [
        F.coalesce(size_of(name, kind), F.lit(0)).cast("long") * each if is_long(kind) else F.lit(_SHORT)
        for name, kind in fields.items()
    ]
    return reduce(add, sizes, F.lit(sum(each * len(name.encode()) + 8 for name in fields)))


def packed_size(fields: Fields) -> Column:
    """The bytes of all fields of a row in one cell, with their names and lengths, or a few more. Never null."""
    return at_most(fields, 1) + 24 * len(fields)


def key_size(key: Iterable[str]) -> Column:
    """The bytes that fields take in a row's key."""
    return reduce(add, (F.coalesce(F.octet_length(flat_text(name)), F.lit(0)) + 5 for name in key))


def too_large(what: str, size: Column, most: Column) -> Column:
    """The refusal of a size above `most`, both in bytes."""
    return F.when(size > most, refusal(F.lit(f"{what} is too large"), size, most))


def first_too_large(each: Iterable[tuple[str, Column, int]], where: Column) -> Column:
    """The refusal of the first size above its limit. `each`: the name of a thing, its size, its limit.

    `where` selects rows that may have such a size. The sizes go through a function on a list, because each condition
    lengthens the method that Spark generates for a row. Java does not compile a method of more than 8,000 bytes.
    """
    refusals = F.array(*(refusal(F.lit(f"{what} is too large"), size, F.lit(most)) for what, size, most in each))
    return F.when(where, F.get(F.filter(refusals, lambda one: one["size"] > one["most"]), F.lit(0)))


def refusal(reason: Column, size: Column | None = None, most: Column | None = None) -> Column:
    """Why a sink can never take a row: a reason that is the same for all such rows, and the sizes of this row."""
    numbers = {"size": size, "most": most}
    return F.struct(
        reason.alias("reason"),
        *((F.lit(None) if one is None else one).cast("long").alias(name) for name, one in numbers.items()),
    )
