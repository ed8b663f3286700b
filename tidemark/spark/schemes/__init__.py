"""Schemes: how the bytes of a message become fields. `parse` chooses by the stream file's type.

Other packages register schemes as entry points: `tidemark.schemes.kinds.SchemeType`.
"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from pyspark.sql import DataFrame

from tidemark.schemes.kinds import (
    AvroScheme,
    DelimitedScheme,
    JsonScheme,
    KeyValueScheme,
    MessageMetadataScheme,
    ProtobufScheme,
    RawScheme,
    RegexScheme,
    StringScheme,
)
from tidemark.schemes.union import OF_PACKAGES, Scheme
from tidemark.spark.schemes import avro_record, delimited, json_object, passthrough, protobuf, regex
from tidemark.spark.schemes.kept_parts import kept

# Each parser gives messages a column for each field, and REASON: null, or why the message is invalid.
PARSERS: dict[type[Any], Callable[[DataFrame, Any], DataFrame]] = {
    RegexScheme: regex.parse,
    JsonScheme: json_object.parse,
    AvroScheme: avro_record.parse,
    ProtobufScheme: protobuf.parse,
    DelimitedScheme: delimited.parse,
    RawScheme: passthrough.raw,
    StringScheme: passthrough.string,
    KeyValueScheme: passthrough.key_value,
    MessageMetadataScheme: passthrough.message_metadata,
}


def parse(messages: DataFrame, scheme: Scheme) -> DataFrame:
    """Messages with a column for each field of the scheme, its kept fields too, and with REASON."""
    return _parser_of(scheme)(messages, scheme).withColumns(kept(scheme.keep))


def _parser_of(scheme: Scheme) -> Callable[[DataFrame, Any], DataFrame]:
    if type(scheme) in PARSERS:
        return PARSERS[type(scheme)]
    return resolve_name(OF_PACKAGES[scheme.type].parser)  # type: ignore[no-any-return]
