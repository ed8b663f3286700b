"""The scheme `message_metadata`: where and when a message is, in place of what it says."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.streams.schemes import MessageMetadataScheme
from tidemark_spark.columns import OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC


def parse(messages: DataFrame, _: MessageMetadataScheme) -> DataFrame:
    return messages.withColumns(
        {
            "topic": F.col(TOPIC),
            "partition": F.col(PARTITION).cast("long"),
            "offset": F.col(OFFSET),
            "timestamp": F.col(TIMESTAMP),
            REASON: F.lit(None).cast("string"),
        }
    )
