"""Schemes: how the bytes of a message become fields. One module each; `parse` chooses by the stream file's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from tidemark.streams.model import JsonScheme, RegexScheme, Scheme
from tidemark_spark.schemes import json_object, regex

# Each takes messages, and gives them a column for each field and REASON: null, or why the message is invalid.
_PARSERS: dict[type[Any], Callable[[DataFrame, Any], DataFrame]] = {
    RegexScheme: regex.parse,
    JsonScheme: json_object.parse,
}


def parse(messages: DataFrame, scheme: Scheme) -> DataFrame:
    """Messages with a column for each field of the scheme, and with REASON."""
    return _PARSERS[type(scheme)](messages, scheme)
