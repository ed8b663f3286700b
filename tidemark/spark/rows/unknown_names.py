"""Keys of messages that no field of the stream has: in how many messages of a window, and which are the most frequent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.ledger.records import UnknownFields
from tidemark.spark.columns import COORDINATE, UNKNOWN_NAMES

# A receipt names this many.
_MAX = 20
_NAME, _TIMES = "_name", "_times"


def of_lines(lines: Iterable[Sequence[str]]) -> UnknownFields | None:
    """From what `Separating.java` gives for each of its tasks."""
    messages, names = 0, Counter[str]()
    for times, name in lines:
        if name:
            names[bytes.fromhex(name).decode(errors="replace")] += int(times)
        else:
            messages += int(times)
    unknown = UnknownFields.of(messages, names)
    return unknown and unknown.for_a_receipt()


def of_rows(rows: DataFrame, *, several: bool) -> UnknownFields | None:
    """Of rows that Spark keeps. `several`: a message may have more than one row with names."""
    if UNKNOWN_NAMES not in rows.columns:
        return None
    named = rows.where(F.col(UNKNOWN_NAMES).isNotNull()).select(*COORDINATE, UNKNOWN_NAMES)
    messages = (named.select(*COORDINATE).distinct() if several else named).count()
    if not messages:
        return None
    each = named.select(*COORDINATE, F.explode(UNKNOWN_NAMES).alias(_NAME))
    counted = (each.distinct() if several else each).groupBy(_NAME).agg(F.count("*").alias(_TIMES))
    most = counted.orderBy(F.col(_TIMES).desc(), _NAME).limit(_MAX).collect()
    unknown = UnknownFields.of(messages, {row[_NAME]: row[_TIMES] for row in most})
    return unknown and unknown.for_a_receipt()
