"""Text into typed fields, for the schemes that begin with text. All are Spark expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import cast

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.schemes.kinds import TextType
from tidemark.schemes.texts import DATE, LOCAL_TIME, OF_TYPE
from tidemark.spark.columns import VALUE
from tidemark.spark.runtime.compiling import by_java
from tidemark.spark.runtime.safe_expressions import null_if_it_throws
from tidemark.types.ddl import Type, quoted, type_alone
from tidemark.types.fields import FieldType, holds, spark_type, text_of, type_of

# Types of an index.
INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_ARTICLES: Mapping[str, str] = {
    "string": "a string",
    "tinyint": "an integer of 8 bits",
    "smallint": "an integer of 16 bits",
    "int": "an integer of 32 bits",
    "bigint": "an integer",
    "float": "a number of 32 bits",
    "double": "a number",
    "date": "a date",
    "timestamp": "a time",
    "timestamp_ntz": "a time without a zone",
    "boolean": "a boolean",
    "binary": "base64",
    "array": "an array",
    "map": "an object",
    "struct": "an object",
}

_EXACT_DOUBLE = Path(__file__).with_name("ExactDouble.java")
_EXACT_LENGTH = {"double": 15, "float": 6}

NOT_UTF8 = "not UTF-8"

# The texts of types that are written alike.
_LIKE = {**dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer"), "float": "double"}
_DIGITS = r"\A[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?![\s\S])"


def utf8_text(part: str = VALUE) -> Column:
    """The value (or key) as text, null when its bytes are not UTF-8."""
    return F.when(F.is_valid_utf8(F.col(part).cast("string")), F.col(part).cast("string"))


def words(kind: Type) -> str:
    """The name of a type's value in a reason: `an integer`."""
    return _ARTICLES.get(kind.name, str(kind))


def accepted(type_: T.DataType, kind: FieldType) -> bool:
    """Whether a column may be cast to the type of a field: no value changes by that."""
    try:
        return holds(type_of(kind), type_of(field_type(type_)))
    except ValueError:
        return False


def field_type(type_: T.DataType) -> FieldType:
    """The type of a field that has what a column has. Raises ValueError for a column that no field is like."""
    return text_of(type_alone(_ddl(type_)))


def typed(text: Column, kind: TextType, forms: Sequence[str] | None) -> Column:
    """The text as its type; null when it is not of that type, as `tidemark.schemes.texts` says."""
    of = type_of(kind)
    match of.name:
        case "string":
            return text
        case "timestamp":
            return time_of(text, forms or ())
        case "date":
            return F.when(F.rlike(text, F.lit(DATE)), text.try_cast("date"))
        case "timestamp_ntz":
            return F.when(F.rlike(text, F.lit(LOCAL_TIME)), text.try_cast("timestamp_ntz"))
        case "binary":
            return F.try_to_binary(text, F.lit("base64"))
        case "decimal":
            return decimal(F.trim(text, F.lit(" \t\r\n")), of)
    made = F.when(F.rlike(text, F.lit(OF_TYPE[_LIKE.get(of.name, of.name)])), text.try_cast(spark_type(of)))
    return F.when(is_exact(text, of), finite(made)) if of.name in ("double", "float") else made


def time_of(text: Column, forms: Sequence[str]) -> Column:
    """The time of a text in the first of these forms that fits; null for a text in none of them."""
    return F.coalesce(*(null_if_it_throws(F.try_to_timestamp(text, F.lit(form))) for form in forms))


def without_nulls(text: Column, nulls: Sequence[str]) -> Column:
    """A text; null where it is one of those that stand for null."""
    return F.when(~text.isin(*nulls), text) if nulls else text


def decimal(text: Column, kind: Type) -> Column:
    """The digits of a text as a decimal; null where they are more than fit: Spark would round, or overflow."""
    # Zeros at either end add nothing.
    fraction = rf"(?:\.[0-9]{{0,{kind.scale}}}+0*+)?+"
    whole = kind.precision - kind.scale
    fits = rf"\A[+-]?+0*+[0-9]{{0,{whole}}}+{fraction}(?![\s\S])"
    return F.when(F.rlike(text, F.lit(_DIGITS)) & F.rlike(text, F.lit(fits)), text.try_cast(str(kind)))


def is_exact(text: Column, of: Type) -> Column:
    """Whether a double or a float holds the number in a text: not one like 2^53 + 1, which would become its neighbour."""
    # Up to here there are no more digits than the type has, and no exponent.
    plain = (F.length(text) <= _EXACT_LENGTH[of.name]) & ~F.contains(F.lower(text), F.lit("e"))
    name, single = f"tidemark_exact_{of.name}", of.name == "float"
    return plain | F.coalesce(
        by_java(SparkSession.active(), name, text, _EXACT_DOUBLE, "boolean", single), F.lit(False)
    )


def finite(number: Column) -> Column:
    """A double or float; null when it is too large for its type."""
    return F.when(F.abs(number) != float("inf"), number)


def first_problem(texts: Mapping[str, Column], values: Mapping[str, Column], kinds: Mapping[str, TextType]) -> Column:
    """The reason for the first field that is not of its type; null when all are."""
    problems = [
        F.when(values[name].isNull() & texts[name].isNotNull(), F.lit(f"{name} is not {words(type_of(kind))}"))
        for name, kind in kinds.items()
        if kind != "string"
    ]
    return F.coalesce(*problems, F.lit(None).cast("string"))


def not_utf8(value: Column, of: Type) -> Column | None:
    """Whether some text of a value is not UTF-8; None for a type without texts."""
    if of.name == "string":
        return ~F.is_valid_utf8(value)
    inner = of.of
    if inner is not None and of.name == "array":
        return None if not_utf8(value, inner) is None else _some(value, inner)
    if inner is not None:
        keys = _some(F.map_keys(value), Type("string"))
        return keys if not_utf8(value, inner) is None else keys | _some(F.map_values(value), inner)
    each = [not_utf8(value[member.name], member.type) for member in of.members]
    refusals = [F.coalesce(one, F.lit(False)) for one in each if one is not None]
    return reduce(or_, refusals) if refusals else None


def _some(values: Column, of: Type) -> Column:
    """Whether some of these values have a text that is not UTF-8."""
    return F.exists(values, lambda value: F.coalesce(cast("Column", not_utf8(value, of)), F.lit(False)))


def _ddl(type_: T.DataType) -> str:
    """A type in the DDL, whole: Spark's own text of it leaves out members after the 25th."""
    if isinstance(type_, T.ArrayType):
        return f"array<{_ddl(type_.elementType)}>"
    if isinstance(type_, T.MapType):
        return f"map<{_ddl(type_.keyType)},{_ddl(type_.valueType)}>"
    if isinstance(type_, T.StructType):
        return f"struct<{','.join(f'{quoted(one.name)}:{_ddl(one.dataType)}' for one in type_)}>"
    return type_.simpleString()
