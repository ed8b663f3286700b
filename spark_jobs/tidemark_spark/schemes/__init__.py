"""Schemes: how the bytes of a message become fields. One module each; `parse` chooses by the stream file's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from tidemark.streams.schemes import (
    AvroScheme,
    DelimitedScheme,
    JsonScheme,
    KeyValueScheme,
    MessageMetadataScheme,
    RawScheme,
    RegexScheme,
    Scheme,
    StringScheme,
)
from tidemark_spark.schemes import (
    avro_record,
    delimited,
    json_object,
    key_value,
    metadata,
    raw_bytes,
    regex,
    string_value,
)
from tidemark_spark.schemes.kept import kept

# Each takes messages, and gives them a column for each field and REASON: null, or why the message is invalid.
PARSERS: dict[type[Any], Callable[[DataFrame, Any], DataFrame]] = {
    RegexScheme: regex.parse,
    JsonScheme: json_object.parse,
    AvroScheme: avro_record.parse,
    DelimitedScheme: delimited.parse,
    RawScheme: raw_bytes.parse,
    StringScheme: string_value.parse,
    KeyValueScheme: key_value.parse,
    MessageMetadataScheme: metadata.parse,
}


def parse(messages: DataFrame, scheme: Scheme) -> DataFrame:
    """Messages with a column for each field of the scheme, also those that it keeps, and with REASON."""
    return PARSERS[type(scheme)](messages, scheme).withColumns(kept(scheme.keep))
