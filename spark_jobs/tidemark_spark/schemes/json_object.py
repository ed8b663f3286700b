"""The scheme `json`: one JSON object a message."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.streams.model import JsonScheme
from tidemark_spark.columns import REASON, VALUE
from tidemark_spark.schemes.fields import NOT_UTF8, SPARK_TYPES, utf8_text

_TEXT, _OBJECT, _REFUSED = "_text", "_object", "_refused"
NOT_THIS_OBJECT = "not a JSON object with these fields"


def parse(messages: DataFrame, scheme: JsonScheme) -> DataFrame:
    columns = messages.columns
    schema = ", ".join(f"`{name}` {SPARK_TYPES[kind]}" for name, kind in scheme.fields.items())
    # PERMISSIVE puts the text of what does not fit the schema into the extra column, instead of failing the task.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _REFUSED}
    frame = messages.withColumn(_TEXT, utf8_text()).withColumn(
        _OBJECT, F.from_json(F.col(_TEXT), f"{schema}, {_REFUSED} string", options)
    )
    refused = F.col(_OBJECT).isNull() | F.col(f"{_OBJECT}.{_REFUSED}").isNotNull() | (F.trim(F.col(_TEXT)) == "")
    reason = (
        F.when(F.col(VALUE).isNull(), F.lit(None).cast("string"))
        .when(F.col(_TEXT).isNull(), F.lit(NOT_UTF8))
        .when(refused, F.lit(NOT_THIS_OBJECT))
    )
    fields = [F.col(f"{_OBJECT}.`{name}`").alias(name) for name in scheme.fields]
    return frame.withColumn(REASON, reason).select(*columns, *fields, REASON)
