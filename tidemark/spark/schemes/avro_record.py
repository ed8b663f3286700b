"""The scheme `avro`: one Avro record per message, read by the schema that it was written with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from tidemark.clients.registry_answers import NOT_FRAMED, RefusedSchema
from tidemark.errors import WrongUse
from tidemark.schemes.avro_projection import MAX_DIGITS, fixed_digits, projected
from tidemark.schemes.kinds import AvroScheme, Fields
from tidemark.spark.columns import REASON, VALUE
from tidemark.spark.schemes.fields import accepted, not_utf8
from tidemark.spark.schemes.schema_ids import schema_number
from tidemark.types.ddl import Type
from tidemark.types.fields import spark_type, type_of

_IN_MILLISECONDS = ("timestamp-millis", "local-timestamp-millis")
# The milliseconds of a time whose microseconds are a number of 64 bits.
_MAX_MILLISECONDS = 2**63 // 1000
_ID, _RECORD = "_schema_id", "_record"


@dataclass(frozen=True)
class _Written:
    """The records of one schema: their column, and what is wrong with the schema itself, if anything is.

    `found`: what the record calls the named fields that it has.
    """

    number: int | None
    column: str
    found: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    # A field that only a record has which was read.
    read: str = ""
    # The types of the named fields, as they are read.
    types: Mapping[str, T.DataType] = field(default_factory=dict)
    # Whether a part of a named field is one that Spark cannot hold, for those that have such types.
    beyond: Mapping[str, Column] = field(default_factory=dict)


def parse(messages: DataFrame, scheme: AvroScheme) -> DataFrame:
    if scheme.registry is None:
        frame, written = _written(messages, None, scheme.writer, scheme, F.col(VALUE))
        if written.problem is not None:
            raise WrongUse(f"{scheme.schema_file}: {written.problem}")
        return _typed(frame, messages.columns, [written], scheme.given, F.lit(None).cast("string"))
    frame = messages.withColumn(_ID, schema_number())
    known: list[_Written] = []
    for number, text in sorted(scheme.writers.items()):
        if isinstance(text, RefusedSchema):
            known.append(_Written(number, "", problem=text.why))
        elif text is not None:
            payload = F.when(F.col(_ID) == number, F.expr(f"substring({VALUE}, 6)"))
            frame, written = _written(frame, number, text, scheme, payload)
            known.append(written)
    unknown = F.concat(F.lit("schema "), F.col(_ID).cast("string"), F.lit(" is not an Avro schema of the registry"))
    is_known = F.col(_ID).isin([one.number for one in known]) if known else F.lit(False)
    reason = F.when(F.col(_ID).isNull(), F.lit(NOT_FRAMED)).when(~is_known, unknown)
    return _typed(frame, messages.columns, known, scheme.given, reason)


def _written(
    messages: DataFrame, number: int | None, schema: str, scheme: AvroScheme, payload: Column
) -> tuple[DataFrame, _Written]:
    """Messages with the records of one schema, and whether these have the fields in their types."""
    column = _RECORD if number is None else f"{_RECORD}_{number}"
    try:
        known = projected(schema, scheme.by_source(scheme.given), may_lack=number is not None)
        by_schema = _read(payload, known.writer, known.reader)
        structure = messages.select(by_schema.alias(column)).schema[column].dataType
        reader = _with_whole_decimals(known.reader)
        frame = messages.withColumn(column, _read(payload, known.writer, reader))
    except ValueError as problem:
        return messages, _Written(number, column, problem=str(problem))
    except (PySparkException, Py4JJavaError) as problem:
        return messages, _Written(number, column, problem=f"Spark cannot read it: {_line(problem)}")
    types = {one.name: one.dataType for one in structure} if isinstance(structure, T.StructType) else {}
    columns = {
        name: known.columns[source] for name in scheme.given if (source := scheme.source_of(name)) in known.columns
    }
    for name, at in columns.items():
        kind = scheme.given[name]
        given = _named(types[at], type_of(kind), known.names)
        if not accepted(given, kind):
            why = f"{name} is {given.simpleString()}, and not {kind}"
            return messages, _Written(number, column, problem=why)
    as_read = {name: types[at] for name, at in columns.items()}
    frame, beyond = _beyond(
        frame, f"{column}_as_written", F.col(f"{column}.{known.read}").isNull(), payload, known.writer, reader
    )
    of_fields = {name: beyond[at] for name, at in columns.items() if at in beyond}
    return frame, _Written(number, column, columns, read=known.read, types=as_read, beyond=of_fields)


def _beyond(
    frame: DataFrame, column: str, unread: Column, payload: Column, writer: Mapping[str, Any], reader: Mapping[str, Any]
) -> tuple[DataFrame, dict[str, Column]]:
    """Whether the members of a record have times or decimals that Spark cannot hold, of a message that it cannot read.

    Spark counts microseconds, and has 38 digits: it fails for a whole record where a time or a decimal has more. So it reads
    the record once more, with the numbers and bytes that these are made of.
    """
    given = {one["name"]: _unreadable(F.col(f"{column}.`{one['name']}`"), one["type"]) for one in reader["fields"]}
    beyond = {name: one for name, one in given.items() if one is not None}
    if not beyond:
        return frame, {}
    return frame.withColumn(column, F.when(unread, _read(payload, writer, _as_written(reader)))), beyond


def _unreadable(value: Column, type_: Any) -> Column | None:
    """Whether a part of a value, as it is written, is none that Spark can hold; None for a type without such parts."""
    if isinstance(type_, list):
        others = [one for one in type_ if one not in ("null", {"type": "null"})]
        return _unreadable(value, others[0]) if len(others) == 1 else None
    if not isinstance(type_, dict):
        return None
    kind = type_["type"]
    if type_.get("logicalType") in _IN_MILLISECONDS:
        return ~value.between(-_MAX_MILLISECONDS, _MAX_MILLISECONDS)
    if type_.get("logicalType") == "decimal":
        return _has_too_many_digits(value)
    if kind == "record":
        each = [_unreadable(value[one["name"]], one["type"]) for one in type_["fields"]]
        some = [F.coalesce(one, F.lit(False)) for one in each if one is not None]
        return reduce(or_, some) if some else None
    if kind not in ("array", "map"):
        return None
    inner, parts = type_["items" if kind == "array" else "values"], value if kind == "array" else F.map_values(value)
    if _unreadable(value, inner) is None:
        return None
    return F.exists(parts, lambda one: F.coalesce(_unreadable(one, inner), F.lit(False)))  # type: ignore[arg-type]


def _has_too_many_digits(value: Column) -> Column:
    """Whether an unscaled number has more than 38 digits, or no bytes at all."""
    # In 16 bytes, texts of numbers of one sign are in the order of the numbers.
    text = F.regexp_replace(F.hex(value), "^(?:(?:00)+(?=[0-7])|(?:FF)+(?=[89A-F]))", "")
    is_negative = F.substring(text, 1, 1) >= "8"
    whole = F.when(is_negative, F.lpad(text, 32, "F")).otherwise(F.lpad(text, 32, "0"))
    most, least = (f"{number % (1 << 128):032X}" for number in (10**MAX_DIGITS - 1, 1 - 10**MAX_DIGITS))
    beyond = F.when(is_negative, whole < least).otherwise(whole > most)
    return (F.length(text) == 0) | (F.length(text) > 32) | beyond


def _as_written(schema: Any) -> Any:
    """A schema whose times in milliseconds are numbers, and whose decimals are bytes."""
    if isinstance(schema, list):
        return [_as_written(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {name: _as_written(one) for name, one in schema.items()}
    if whole.get("logicalType") not in (*_IN_MILLISECONDS, "decimal"):
        return whole
    return {name: one for name, one in whole.items() if name not in ("logicalType", "precision", "scale")}


def _read(payload: Column, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Column:
    return from_avro(payload, json.dumps(writer), {"mode": "PERMISSIVE", "avroSchema": json.dumps(reader)})


def _named(given: T.DataType, kind: Type, names: Mapping[str, str | None]) -> T.DataType:
    """A type with the names that the schema has, and with the members that it lacks: these are null."""
    if isinstance(given, T.ArrayType):
        return T.ArrayType(_named(given.elementType, kind.of or kind, names))
    if isinstance(given, T.MapType):
        return T.MapType(given.keyType, _named(given.valueType, kind.of or kind, names))
    if not isinstance(given, T.StructType):
        return given
    members = []
    for place, one in enumerate(given):
        wanted = kind.members[place] if place < len(kind.members) else None
        name = names.get(one.name, one.name)
        if name is None and wanted is not None:
            members.append(T.StructField(wanted.name, T.DataType.fromDDL(spark_type(wanted.type))))
        else:
            inner = kind if wanted is None else wanted.type
            members.append(T.StructField(name or one.name, _named(one.dataType, inner, names)))
    return T.StructType(members)


def _with_whole_decimals(schema: Any) -> Any:
    """A schema whose decimals have all digits that they may have.

    Of a decimal with at most 18 digits by its schema, Spark takes 64 bits of the value, whatever the value is.
    """
    if isinstance(schema, list):
        return [_with_whole_decimals(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {name: _with_whole_decimals(one) for name, one in schema.items()}
    if whole.get("logicalType") == "decimal":
        size = whole.get("size")
        # A fixed value has room for this many digits. With more, Avro would take it for bytes.
        most = MAX_DIGITS if size is None else fixed_digits(size)
        whole["precision"] = max(whole["precision"], min(MAX_DIGITS, most))
    return whole


def _typed(
    frame: DataFrame, columns: Iterable[str], written: list[_Written], fields: Fields, reason: Column
) -> DataFrame:
    values = {}
    too_large = {}
    for name, kind in fields.items():
        of_type = type_of(kind)
        # A field that the writer's schema lacks is null.
        having = [one for one in written if name in one.found]
        read = [F.col(f"{one.column}.`{one.found[name]}`") for one in having]
        # A decimal may have more digits than its schema says.
        cast = [one.try_cast(spark_type(kind)) if _has_decimal(of_type) else one.cast(spark_type(kind)) for one in read]
        values[name] = F.coalesce(*cast, F.lit(None).cast(spark_type(kind)))
        lost = [
            _lost(there, made, of_type, one.types[name]) for one, there, made in zip(having, read, cast, strict=True)
        ]
        if some := [F.coalesce(one, F.lit(False)) for one in lost if one is not None]:
            too_large[name] = reduce(or_, some)
    for one in written:
        of = "" if one.number is None else f" {one.number}"
        here = F.lit(True) if one.number is None else F.col(_ID) == one.number
        if one.problem is not None:
            reason = F.coalesce(reason, F.when(here, F.lit(f"schema{of}: {one.problem}")))
        else:
            unread = here & F.col(f"{one.column}.{one.read}").isNull()
            for name, beyond in one.beyond.items():
                what = fields[name] if _has_decimal(type_of(fields[name])) else "a time"
                reason = F.coalesce(reason, F.when(unread & beyond, F.lit(f"{name} is not {what}")))
            reason = F.coalesce(reason, F.when(unread, F.lit(f"not a record of the schema{of}")))
    for name, wrong in too_large.items():
        reason = F.coalesce(reason, F.when(wrong, F.lit(f"{name} is not {fields[name]}")))
    for name, kind in fields.items():
        wrong_text = not_utf8(values[name], type_of(kind))
        if wrong_text is not None:
            reason = F.coalesce(reason, F.when(wrong_text, F.lit(f"{name} is not UTF-8")))
    return frame.withColumns({**values, REASON: F.when(F.col(VALUE).isNotNull(), reason)}).select(
        *columns, *(F.col(f"`{name}`") for name in fields), REASON
    )


def _has_decimal(of: Type) -> bool:
    return of.name == "decimal" or any(
        _has_decimal(one) for one in (*([of.of] if of.of else []), *(m.type for m in of.members))
    )


def _lost(read: Column, made: Column, of: Type, given: T.DataType) -> Column | None:
    """Whether a decimal of a value has more digits than its type; None for a type without decimals."""
    if not _has_decimal(of):
        return None
    if of.name == "decimal":
        return read.isNotNull() & made.isNull()
    if isinstance(given, T.StructType):
        each = [
            _lost(read[theirs.name], made[ours.name], ours.type, theirs.dataType)
            for ours, theirs in zip(of.members, given, strict=True)
        ]
        return reduce(or_, [F.coalesce(one, F.lit(False)) for one in each if one is not None])
    if of.of is None or not isinstance(given, (T.ArrayType, T.MapType)):
        return None
    inner, element = of.of, given.elementType if isinstance(given, T.ArrayType) else given.valueType
    parts = (read, made) if isinstance(given, T.ArrayType) else (F.map_values(read), F.map_values(made))
    found = F.zip_with(*parts, lambda one, other: F.coalesce(_lost(one, other, inner, element), F.lit(False)))  # type: ignore[arg-type]
    return F.exists(found, lambda one: one)


def _line(problem: PySparkException | Py4JJavaError) -> str:
    text = str(problem.java_exception.getMessage()) if isinstance(problem, Py4JJavaError) else str(problem)
    return " ".join(text.split())[:200]
