"""Rows that are larger than a sink can ever take: found before any sink writes, so that none of them holds up a window."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.results.keyed_rows import MOST_KEY_BYTES
from tidemark.streams.schemes import Fields
from tidemark_spark.columns import field, text

# Longest text of a number, a time or a boolean.
_SHORT = 40


def is_long(kind: str) -> bool:
    """Whether a field of a type can be of any size."""
    return kind in ("string", "binary")


def size_of(name: str) -> Column:
    """The bytes of a text or binary field; null for null."""
    return F.octet_length(field(name))


def at_most(fields: Fields, each: int) -> Column:
    """More bytes than the fields take, with `each` for one byte of a text and for its name. Costs next to nothing."""
    sizes = [
        F.coalesce(size_of(name), F.lit(0)).cast("long") * each if is_long(kind) else F.lit(_SHORT)
        for name, kind in fields.items()
    ]
    return reduce(add, sizes, F.lit(sum(each * len(name.encode()) + 8 for name in fields)))


def packed_size(fields: Fields) -> Column:
    """The bytes that all fields of a row take in one cell, with their names and lengths; or a few more. Never null."""
    return at_most(fields, 1) + 24 * len(fields)


def keyed_too_large(sink: str, key: Column, cell: Column, most: int) -> Column:
    """The refusal where the key of a row in HBase, or its cell, is beyond the most; `cell` is what it takes beside the key."""
    row = key + cell
    each = [(f"sink {sink}: the key", key, MOST_KEY_BYTES), (f"sink {sink}: the cell of the row", row, most)]
    return first_too_large(each, (key > MOST_KEY_BYTES) | (row > most))


def key_size(key: Iterable[str]) -> Column:
    """The bytes that fields take in a row's key."""
    return reduce(add, (F.coalesce(F.octet_length(text(name)), F.lit(0)) + 5 for name in key))


def too_large(what: str, size: Column, most: Column) -> Column:
    """The refusal where a size is beyond the most that is taken, both in bytes."""
    return F.when(size > most, refusal(F.lit(f"{what} is too large"), size, most))


def first_too_large(each: Iterable[tuple[str, Column, int]], where: Column) -> Column:
    """The refusal of the first size that is beyond its most, of rows where one may be: each with what it is the size of.

    By a function on a list, since each condition makes the method longer that Spark generates for all that is done with a
    row: beyond 8,000 bytes, Java does not compile it.
    """
    found = F.array(*(refusal(F.lit(f"{what} is too large"), size, F.lit(most)) for what, size, most in each))
    return F.when(where, F.get(F.filter(found, lambda one: one["size"] > one["most"]), F.lit(0)))


def refusal(reason: Column, size: Column | None = None, most: Column | None = None) -> Column:
    """Why a sink can never take a row: the reason, the same for all rows for which it is so, and the sizes of this one."""
    numbers = {"size": size, "most": most}
    return F.struct(
        reason.alias("reason"),
        *((F.lit(None) if one is None else one).cast("long").alias(name) for name, one in numbers.items()),
    )
