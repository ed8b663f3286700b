"""The scheme `protobuf`: one message of Protocol Buffers a value, read by our Java class `Protobuf.java`."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.clients.registry_answers import RefusedSchema
from tidemark.schemes.kinds import ProtobufScheme
from tidemark.schemes.protobuf_projection import projected
from tidemark.schemes.protobuf_schema import message_of, normal, problem_with
from tidemark.spark.columns import REASON, VALUE
from tidemark.spark.runtime.compiling import value_by_java
from tidemark.types.ddl import quoted
from tidemark.types.fields import columns_in_ddl

_PROTOBUF = Path(__file__).with_name("Protobuf.java")
# As of a message of JSON.
MAX_BYTES = 16 * 1024 * 1024
_FOUND = "_protobuf"
# The number of the only schema, that of the file.
_OF_FILE = ""


def parse(messages: DataFrame, scheme: ProtobufScheme) -> DataFrame:
    sets, problems = _of_registry(scheme)
    if scheme.registry is None:
        sets = {_OF_FILE: _projected(b64decode(scheme.writer), scheme.message, scheme.by_source(scheme.given))}
    fields = columns_in_ddl(scheme.by_source(scheme.given))
    schema = T.StructType.fromDDL(fields).json()
    given = (schema, scheme.message, MAX_BYTES, [*sets], [*sets.values()], [*problems], [*problems.values()])
    said = sha256(repr(given).encode()).hexdigest()[:16]
    kind = f"struct<why: string, found: struct<{fields}>>"
    parsed = value_by_java(messages.sparkSession, f"tidemark_protobuf_{said}", _PROTOBUF, kind, *given)
    values = [F.col(f"{_FOUND}.found.{quoted(scheme.source_of(name))}").alias(name) for name in scheme.given]
    return messages.withColumn(_FOUND, parsed).select(
        *messages.columns, *values, F.when(F.col(VALUE).isNotNull(), F.col(f"{_FOUND}.why")).alias(REASON)
    )


def _of_registry(scheme: ProtobufScheme) -> tuple[dict[str, str], dict[str, str]]:
    """The sets of descriptors by the numbers of schemas, and what is wrong with the other schemas."""
    sets: dict[str, str] = {}
    problems: dict[str, str] = {}
    for number, text in sorted(scheme.writers.items()):
        if isinstance(text, RefusedSchema):
            problems[str(number)] = text.why
        elif text is not None:
            try:
                sets[str(number)] = _checked(text, scheme.message, scheme.by_source(scheme.given))
            except ValueError as problem:
                problems[str(number)] = str(problem)
    return sets, problems


def _checked(text: str, message: str, fields: Mapping[str, str]) -> str:
    """A set as the Java class takes it. Raises ValueError for one whose message cannot give the fields."""
    descriptors = normal(b64decode(text))
    if (problem := problem_with(message_of(descriptors, message), fields, may_lack=True)) is not None:
        raise ValueError(problem)
    return _projected(descriptors, message, fields)


def _projected(descriptors: bytes, message: str, fields: Mapping[str, str]) -> str:
    return b64encode(projected(descriptors, message, fields)).decode()
