"""JSON values as columns of their types. All are Spark expressions.

Spark's own conversions from JSON are lenient. They turn anything into text, numbers into times in seconds, and too large
numbers into infinity. Here a value of another type is refused, and only null becomes null. What a variant would not keep of a
number is read from its text: see `json_text.number`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.schemes import texts
from tidemark.spark.columns import JSON_TIMES
from tidemark.spark.schemes.fields import decimal, finite, is_exact, time_of, words
from tidemark.spark.schemes.json_text import elements, members, number, unmarked
from tidemark.types.ddl import Member, Type


def value(given: Column, kind: Type, form: Sequence[str] | None) -> Column:
    """A variant as its type; null when it is null or of another type. `form`: the forms of times, if there are any."""
    of = kind.of
    if of is not None and kind.name == "array":
        return F.transform(elements(given), lambda element: value(element, of, form))
    if of is not None:
        return F.transform_values(members(given), lambda _, member: value(member, of, form))
    if kind.name == "struct":
        of_object = members(given)
        fields = [value(_member(of_object, member), member.type, form).alias(member.name) for member in kind.members]
        return F.when(of_object.isNotNull(), F.struct(*fields))
    if kind.name == "variant":
        return F.when(_is_there(given), given)
    return _scalar(given, kind, form)


def _problem(given: Column, made: Column, kind: Type, path: str) -> Column:
    """Why a variant is not what `value` has made of it, naming the first part that is wrong; null when it is."""
    wrong = F.when(_is_there(given) & made.isNull(), F.lit(f"{path} is not {words(kind)}"))
    of = kind.of
    if of is not None:
        parts, into = elements(given), made
        if kind.name == "map":
            parts, into = F.map_values(members(given)), F.map_values(made)
        problems = F.zip_with(parts, into, lambda part, other: _problem(part, other, of, f"{path}[]"))
        return F.coalesce(wrong, F.get(F.filter(problems, lambda one: one.isNotNull()), F.lit(0)))
    if kind.name == "struct":
        problems = members(given)
        of_each = [
            member_problem(_member(problems, member), made[member.name], member, f"{path}.") for member in kind.members
        ]
        return F.coalesce(wrong, F.when(problems.isNotNull(), F.coalesce(*of_each)))
    return wrong


def member_problem(given: Column, made: Column, member: Member, within: str = "") -> Column:
    """As `_problem`, of a member of an object: whether it has to be there, too."""
    path = within + member.name
    problem = _problem(given, made, member.type, path)
    if not member.required:
        return problem
    return F.coalesce(F.when(~_is_there(given), F.lit(f"{path} is missing")), problem)


def json_text(made: Column) -> Column:
    """A value as compact JSON. Null fields of a struct are left out. Numbers of variants are as they were written."""
    return unmarked(F.to_json(made, JSON_TIMES))


def _member(of_object: Column, member: Member) -> Column:
    return F.try_element_at(of_object, F.lit(member.name))


def _is_there(given: Column) -> Column:
    return given.isNotNull() & ~F.is_variant_null(given)


def _scalar(given: Column, kind: Type, form: Sequence[str] | None) -> Column:  # noqa: C901  (a case for each type)
    written = F.schema_of_variant(given)
    given_text = F.when(written == "STRING", F.try_variant_get(given, "$", "string"))
    digits = number(given_text)
    text = F.when(digits.isNull(), given_text)
    is_integer, is_decimal = written == "BIGINT", F.startswith(written, F.lit("DECIMAL"))
    match kind.name:
        case "string":
            return text
        case "boolean":
            return F.when(written == "BOOLEAN", F.try_variant_get(given, "$", "boolean"))
        case "tinyint" | "smallint" | "int" | "bigint":
            # A fraction or an exponent makes it no integer, whatever its value is.
            of_digits = F.when(F.rlike(digits, F.lit(r"\A-?[0-9]++\z")), digits.try_cast(kind.name))
            return F.coalesce(F.when(is_integer, F.try_variant_get(given, "$", kind.name)), of_digits)
        case "float" | "double":
            written_digits = F.coalesce(
                digits, F.when(is_integer | is_decimal, F.try_variant_get(given, "$", "string"))
            )
            return F.when(is_exact(written_digits, kind), finite(written_digits.try_cast(kind.name)))
        case "decimal":
            return decimal(
                F.coalesce(digits, F.when(is_integer | is_decimal, F.try_variant_get(given, "$", "string"))), kind
            )
        case "date":
            return F.when(F.rlike(text, F.lit(texts.DATE)), text.try_cast("date"))
        case "timestamp" if form is not None:
            return time_of(text, form)
        case "timestamp":
            return F.when(F.rlike(text, F.lit(texts.TIME)), text.try_cast("timestamp"))
        case "timestamp_ntz":
            return F.when(F.rlike(text, F.lit(texts.LOCAL_TIME)), text.try_cast("timestamp_ntz"))
        case "binary":
            return F.try_to_binary(text, F.lit("base64"))
    raise AssertionError(kind)
