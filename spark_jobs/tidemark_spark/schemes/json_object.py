"""The scheme `json`: one JSON object a message."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.streams.schemes import UNKNOWN, JsonScheme
from tidemark_spark.columns import REASON, VALUE
from tidemark_spark.schemes.fields import NOT_UTF8, SPARK_TYPES, utf8_text

_TEXT, _OBJECT, _REFUSED, _ALL = "_text", "_object", "_refused", "_all"
NOT_THIS_OBJECT = "not a JSON object with these fields"


def parse(messages: DataFrame, scheme: JsonScheme) -> DataFrame:
    columns = messages.columns
    schema = ", ".join(f"`{name}` {SPARK_TYPES[kind]}" for name, kind in scheme.named.items())
    # PERMISSIVE puts the text of what does not fit the schema into the extra column, instead of failing the task.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _REFUSED}
    frame = messages.withColumn(_TEXT, utf8_text()).withColumn(
        _OBJECT, F.from_json(F.col(_TEXT), f"{schema}, {_REFUSED} string", options)
    )
    fields = [F.col(f"{_OBJECT}.`{name}`").alias(name) for name in scheme.named]
    refused = F.col(_OBJECT).isNull() | F.col(f"{_OBJECT}.{_REFUSED}").isNotNull() | (F.trim(F.col(_TEXT)) == "")
    if scheme.unknown == "keep":
        frame = frame.withColumn(_ALL, F.from_json(F.col(_TEXT), "map<string, variant>"))
        others = F.map_filter(F.col(_ALL), lambda name, _: ~name.isin(*scheme.named))
        fields.append(F.when(F.cardinality(others) > 0, F.to_json(others)).alias(UNKNOWN))
        # A key that stands twice within a value: nobody can say which of them is meant.
        refused = refused | F.col(_ALL).isNull()
    reason = (
        F.when(F.col(VALUE).isNull(), F.lit(None).cast("string"))
        .when(F.col(_TEXT).isNull(), F.lit(NOT_UTF8))
        .when(refused, F.lit(NOT_THIS_OBJECT))
    )
    return frame.withColumn(REASON, reason).select(*columns, *fields, REASON)
