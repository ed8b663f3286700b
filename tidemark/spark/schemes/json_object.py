"""The scheme `json`: one JSON object per message."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.schemes.kinds import UNKNOWN, JsonScheme
from tidemark.spark.columns import REASON, UNKNOWN_NAMES, VALUE, field
from tidemark.spark.schemes.fields import NOT_UTF8, utf8_text
from tidemark.spark.schemes.json_text import json_value, members, unmarked, why_not_json
from tidemark.spark.schemes.json_values import json_text, member_problem, value
from tidemark.types.ddl import Type

_TEXT, _JSON, _MEMBERS = "_text", "_json", "_members"
NOT_OBJECT = "not a JSON object"
# A reason has this many characters of a key, and so have counts of keys.
_MAX_CHARACTERS = 100
# This many keys that are not named are counted of a message.
_MAX_NAMES = 20


def parse(messages: DataFrame, scheme: JsonScheme) -> DataFrame:
    columns = scheme.columns
    spark = messages.sparkSession
    frame = messages.withColumn(_TEXT, utf8_text())
    frame = frame.withColumn(_JSON, json_value(spark, F.col(_TEXT)))
    frame = frame.withColumn(_MEMBERS, members(F.col(_JSON)))
    frame = frame.withColumns(
        {
            f"_given_{column.name}": F.try_element_at(_MEMBERS, F.lit(scheme.source_of(column.name)))
            for column in columns
        }
    )
    given = {column.name: field(f"_given_{column.name}") for column in columns}
    made = {f"_made_{column.name}": value(given[column.name], column.type, scheme.timestamp) for column in columns}
    frame = frame.withColumns(made)
    problems = [member_problem(given[column.name], field(f"_made_{column.name}"), column) for column in columns]
    reason = (
        F.when(F.col(VALUE).isNull(), F.lit(None).cast("string"))
        .when(F.col(_TEXT).isNull(), F.lit(NOT_UTF8))
        .when(F.col(_JSON).isNull(), why_not_json(spark))
        .when(F.col(_MEMBERS).isNull(), F.lit(NOT_OBJECT))
        .otherwise(F.coalesce(*problems, _refused(scheme)))
    )
    fields = {
        column.name: _stored(field(f"_made_{column.name}"), column.type, scheme.stored(column)) for column in columns
    }
    if scheme.unknown == "keep":
        others = _others(scheme)
        fields[UNKNOWN] = F.when(F.cardinality(others) > 0, unmarked(F.to_json(others)))
    kept = [column.alias(name) for name, column in fields.items()]
    return frame.withColumn(REASON, reason).select(*messages.columns, *kept, REASON, _unknown_names(scheme))


def _others(scheme: JsonScheme) -> Column:
    """The members that are not named."""
    return F.map_filter(F.col(_MEMBERS), lambda name, _: ~name.isin(*scheme.keys))


def _unknown_names(scheme: JsonScheme) -> Column:
    others = F.array_except(F.map_keys(F.col(_MEMBERS)), F.array(*map(F.lit, scheme.keys)))
    cut = F.transform(F.slice(others, 1, _MAX_NAMES), lambda name: F.substring(name, 1, _MAX_CHARACTERS))
    return F.when(F.cardinality(others) > 0, F.array_distinct(cut)).alias(UNKNOWN_NAMES)


def _refused(scheme: JsonScheme) -> Column:
    """Why a message is invalid whose members are not all named, if that is asked for."""
    if scheme.unknown != "fail":
        return F.lit(None).cast("string")
    first = F.get(F.map_keys(_others(scheme)), F.lit(0))
    return F.concat(F.substring(first, 1, _MAX_CHARACTERS), F.lit(" is no field of the stream"))


def _stored(made: Column, kind: Type, stored: Type) -> Column:
    """A value as its field stores it: in its type, in a wider one, or as text."""
    if stored == kind:
        return made
    match kind.name:
        case "float":
            # Through its text, so that 0.1 stays 0.1.
            return made.cast("string").cast("double")
        case "array" | "map" | "struct" | "variant":
            return json_text(made)
    return made.cast(str(stored))
