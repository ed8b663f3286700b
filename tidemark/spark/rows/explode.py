"""Splitting a message into pieces by `explode`, before the scheme reads them.

Pieces are bytes, so that any scheme can take them. Nothing is shuffled: a message is split in its own task.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.spark.columns import FAILURE, HEADERS, INDEX, KEY, REASON, VALUE, detail
from tidemark.spark.schemes.fields import NOT_UTF8, utf8_text
from tidemark.spark.schemes.json_text import elements, elements_as_written, json_value, members, why_not_json
from tidemark.streams.explode import Explode

# The value of the whole message, only on the row of its first piece. On all rows, a message of a thousand lines would take
# a thousand times its size.
WHOLE = "_whole"
# Whether a message has no pieces, and why its value cannot be split. VALUE is null in both cases.
EMPTY, UNSPLIT = "_empty", "_unsplit"
TOO_MANY_PIECES = "too many pieces for the length of its key"

# What each row of a message carries with it (its key, and headers where the stream keeps them) is kept once for each row.
# A message may carry this many times its own size, or this many bytes: more would let one message fill a disk.
MAX_TIMES, MAX_CARRIED = 64, 256 * 1024

_PIECES, _PARTS, _PIECE = "_pieces", "_parts", "_piece"
_TEXT, _JSON = "_text", "_json"
# In this charset each byte is one character, so that any bytes can be split as text.
_BYTES = "ISO-8859-1"


def in_pieces(messages: DataFrame, explode: Explode, whole: str = VALUE, *, keeps_headers: bool = False) -> DataFrame:
    """A row for each piece, with the piece in VALUE and its number in INDEX. A message without pieces keeps one row.

    A tombstone keeps one row too, neither EMPTY nor UNSPLIT. Adds INDEX, WHOLE, EMPTY and UNSPLIT. `whole` is the column of
    the message's own value. With `keeps_headers`, each row keeps the headers. A message whose pieces would carry too much
    cannot be split.
    """
    columns = [name for name in messages.columns if name not in (VALUE, whole)]
    split = _lines(messages, explode.between) if explode.lines is not None else _array(messages, explode.json_array)
    key = F.coalesce(F.octet_length(KEY), F.lit(0)).cast("long")
    carried = key + _of_headers() if keeps_headers else key
    many = carries_too_much(F.size(_PIECES), carried, F.octet_length(whole))
    split = split.withColumn(UNSPLIT, F.coalesce(UNSPLIT, F.when(many, F.lit(TOO_MANY_PIECES))))
    split = split.withColumn(_PIECES, F.when(~F.coalesce(many, F.lit(False)), F.col(_PIECES)))
    empty = F.coalesce(F.size(_PIECES) == 0, F.lit(False))
    none = F.array(F.struct(F.lit(None).cast("binary").alias("piece"), F.col(whole).alias("whole")))
    some = F.transform(
        _PIECES, lambda piece, index: F.struct(piece.alias("piece"), F.when(index == 0, F.col(whole)).alias("whole"))
    )
    with_pieces = split.withColumn(EMPTY, empty).withColumn(_PIECES, F.when(F.size(_PIECES) > 0, some).otherwise(none))
    exploded = with_pieces.select(*columns, EMPTY, UNSPLIT, F.posexplode(_PIECES).alias(INDEX, _PIECE))
    return exploded.select(
        *columns, EMPTY, UNSPLIT, INDEX, F.col(f"{_PIECE}.piece").alias(VALUE), F.col(f"{_PIECE}.whole").alias(WHOLE)
    )


def carries_too_much(rows: Column, carried: Column, size: Column) -> Column:
    """Whether so many rows of a message carry too much, with `carried` bytes on each. `size`: that of the message's value."""
    most = F.lit(MAX_TIMES) * (carried + F.coalesce(size, F.lit(0)))
    return rows * carried > F.greatest(F.lit(MAX_CARRIED).cast("long"), most)


def _of_headers() -> Column:
    # In base64, and each with its name.
    each = F.transform(HEADERS, lambda one: F.octet_length(one["key"]) + 2 * F.octet_length(one["value"]))
    return F.coalesce(
        F.aggregate(each, F.lit(0).cast("long"), lambda sum_, one: sum_ + F.coalesce(one, F.lit(0))), F.lit(0)
    )


def _lines(messages: DataFrame, separator: str) -> DataFrame:
    between = separator.encode().decode(_BYTES)
    frame = messages.withColumn(_PARTS, F.split(F.decode(VALUE, _BYTES), between, -1))
    # No piece begins after the last separator, nor in an empty value.
    ended = F.element_at(_PARTS, -1) == ""
    parts = F.when(ended, F.slice(_PARTS, 1, F.size(_PARTS) - 1)).otherwise(F.col(_PARTS))
    pieces = F.transform(parts, lambda part: F.encode(part, _BYTES))
    return frame.withColumn(_PIECES, pieces).withColumn(UNSPLIT, F.lit(None).cast("string"))


def _array(messages: DataFrame, key: bool | str | None) -> DataFrame:
    spark = messages.sparkSession
    frame = messages.withColumn(_TEXT, utf8_text())
    frame = frame.withColumn(_JSON, json_value(spark, F.col(_TEXT)))
    under = key if isinstance(key, str) else None
    array = F.col(_JSON) if under is None else F.try_element_at(members(F.col(_JSON)), F.lit(under))
    # A null element is no tombstone.
    pieces = F.when(elements(array).isNotNull(), elements_as_written(spark, under))
    expected = "not a JSON array" if under is None else f"not a JSON object with an array {under!r}"
    why = (
        F.when(F.col(VALUE).isNull(), F.lit(None).cast("string"))
        .when(F.col(_TEXT).isNull(), F.lit(NOT_UTF8))
        .when(F.col(_JSON).isNull(), why_not_json(spark))
        .when(F.col(_PIECES).isNull(), F.lit(expected))
    )
    return frame.withColumn(_PIECES, pieces).withColumn(UNSPLIT, why)


def of_pieces(parsed: DataFrame) -> DataFrame:
    """Parsed pieces with the message's own VALUE again. For an invalid piece, FAILURE names the piece.

    REASON does not name the piece: it has to be the same for all messages that are invalid for the same reason.
    """
    where = F.when(F.col(REASON).isNotNull(), F.concat(F.lit("piece "), F.col(INDEX).cast("string")))
    failure = F.when(F.col(UNSPLIT).isNull() & F.col(VALUE).isNotNull(), detail(where))
    reason = F.coalesce(F.col(UNSPLIT), F.col(REASON))
    return parsed.withColumns({FAILURE: failure, REASON: reason, VALUE: F.col(WHOLE)}).drop(WHOLE, UNSPLIT)
