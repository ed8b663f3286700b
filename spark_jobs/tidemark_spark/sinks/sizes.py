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
    return F.coalesce(
        too_large(f"sink {sink}: the key", key, F.lit(MOST_KEY_BYTES)),
        too_large(f"sink {sink}: the cell of the row", key + cell, F.lit(most)),
    )


def key_size(key: Iterable[str]) -> Column:
    """The bytes that fields take in a row's key."""
    return reduce(add, (F.coalesce(F.octet_length(text(name)), F.lit(0)) + 5 for name in key))


def too_large(what: str, size: Column, most: Column) -> Column:
    """The refusal where a size is beyond the most that is taken, both in bytes: `reason`, and `detail` with both sizes.

    So the reason is the same for all messages for which this is so.
    """
    return F.when(size > most, refusal(F.lit(f"{what} is too large"), sizes(size, most)))


def refusal(reason: Column, detail: Column | None = None) -> Column:
    """Why a sink can never take a row: the reason, the same for all rows for which it is so, and what is so of this one."""
    return F.struct(reason.alias("reason"), (F.lit(None).cast("string") if detail is None else detail).alias("detail"))


def sizes(size: Column, most: Column) -> Column:
    """What is said of a size that is beyond the most."""
    return F.concat(size.cast("string"), F.lit(" bytes, the most is "), most.cast("string"))
