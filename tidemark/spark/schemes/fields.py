"""Text into typed fields, for the schemes that begin with text. All are Spark expressions."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.functions.types import FieldType
from tidemark.schemes.kinds import TextType
from tidemark.schemes.texts import OF_TYPE
from tidemark.spark.columns import VALUE
from tidemark.spark.runtime.caught import null_if_it_throws

SPARK_TYPES: Mapping[FieldType, str] = {
    "string": "string",
    "integer": "bigint",
    "double": "double",
    "timestamp": "timestamp",
    "boolean": "boolean",
    "binary": "binary",
}
# The types that each type may be made from without loss.
INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
ACCEPTED: Mapping[FieldType, tuple[type[T.DataType], ...]] = {
    "string": (T.StringType,),
    "integer": INTEGERS,
    "double": (T.FloatType, T.DoubleType),
    "timestamp": (T.TimestampType,),
    "boolean": (T.BooleanType,),
    "binary": (T.BinaryType,),
}
_ARTICLES: Mapping[TextType, str] = {
    "string": "a string",
    "integer": "an integer",
    "double": "a number",
    "timestamp": "a time",
    "boolean": "a boolean",
}

NOT_UTF8 = "not UTF-8"


def utf8_text(part: str = VALUE) -> Column:
    """The value (or key) as text, null when its bytes are not UTF-8."""
    return F.when(F.is_valid_utf8(F.col(part).cast("string")), F.col(part).cast("string"))


def typed(text: Column, kind: TextType, timestamp_form: str | None) -> Column:
    """The text as its type; null when it is not of that type, as `tidemark.schemes.texts` says."""
    if kind == "string":
        return text
    if kind == "timestamp":
        return null_if_it_throws(F.try_to_timestamp(text, F.lit(timestamp_form)))
    made = F.when(F.rlike(text, F.lit(OF_TYPE[kind])), text.try_cast(SPARK_TYPES[kind]))
    return finite(made) if kind == "double" else made


def finite(number: Column) -> Column:
    """A double or float; null when it is too large for its type."""
    return F.when(F.abs(number) != float("inf"), number)


def first_problem(texts: Mapping[str, Column], values: Mapping[str, Column], kinds: Mapping[str, TextType]) -> Column:
    """The reason for the first field that is not of its type; null when all are."""
    problems = [
        F.when(values[name].isNull() & texts[name].isNotNull(), F.lit(f"{name} is not {_ARTICLES[kind]}"))
        for name, kind in kinds.items()
        if kind != "string"
    ]
    return F.coalesce(*problems, F.lit(None).cast("string"))
