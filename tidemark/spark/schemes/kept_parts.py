"""The parts of a message that a stream file asks for by `keep`, whatever the scheme."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.schemes.kinds import MessagePart
from tidemark.spark.columns import HEADERS, KEY, TIMESTAMP, TIMESTAMP_TYPE, VALUE

# The headers in their order, values in base64; null when there are none.
HEADERS_JSON = f"to_json({HEADERS}, map('ignoreNullFields', 'false'))"


def kept(keep: Mapping[str, MessagePart]) -> dict[str, Column]:
    """A column for each field that is kept."""
    parts: dict[MessagePart, Column] = {
        "key": F.col(KEY),
        "value": F.col(VALUE),
        "headers": F.expr(HEADERS_JSON),
        "timestamp": F.col(TIMESTAMP),
        # The numbers are those of Kafka's TimestampType. A message without a time has another number.
        "timestamp_type": F.when(F.col(TIMESTAMP_TYPE) == 0, "CreateTime").when(
            F.col(TIMESTAMP_TYPE) == 1, "LogAppendTime"
        ),
    }
    return {name: parts[part] for name, part in keep.items()}
