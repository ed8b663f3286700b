"""The type that fits some JSON values, at any depth, and what of a value does not fit it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from tidemark.drafts.columns import (
    FITS,
    OF_JSON,
    VARIANT,
    WrittenNumber,
    exact_decimal,
    fits_decimal,
    is_number,
    share,
    text_of_number,
    type_of,
    written_decimal,
)
from tidemark.drafts.format import A_VALUE, is_field_name
from tidemark.types.ddl import DEEPEST, Member, TooManyParts, Type, TypePartCounter, type_alone
from tidemark.types.fields import has_variant, is_nested, spark_type, text_of

# As many members as a person reads through. More are keys made of data, as are those that most objects lack.
_MAX_MEMBERS, _USUAL = 50, 0.5
_UNKNOWN = Type(VARIANT)
_TESTS = dict(OF_JSON)


def json_type(values: Sequence[Any]) -> Type:
    """The narrowest type that fits values, of which none is null, or nearly all of them.

    A variant where they do not agree, at whatever depth, and where they do not say what is in them: `[]` alone.
    """
    try:
        found = _type(values, TypePartCounter(), DEEPEST)
    except TooManyParts:
        return _UNKNOWN
    fits = not has_variant(found) and share(values, lambda value: misfit(value, found, "") is None) >= FITS
    return found if fits else _UNKNOWN


def ddl_of(kind: str) -> str:
    """The type of a field as the DDL of a schema has it."""
    return spark_type(kind) if is_nested(kind) else spark_type(kind).upper()


def misfit(value: Any, kind: Type, path: str) -> str | None:
    """The reason for which the scheme `json` would refuse a value of this type; None for one that fits."""
    of = kind.of
    if value is None or kind.name == VARIANT:
        return None
    if not _test_of(kind)(value):
        word = text_of(kind)
        return f"{path} is not {A_VALUE.get(kind.name, A_VALUE.get(word, word))}"
    if of is not None:
        inner: Iterator[tuple[Any, Type, str]] = (
            (one, of, f"{path}[]") for one in (value.values() if isinstance(value, dict) else value)
        )
    else:
        inner = ((value.get(one.name), one.type, f"{path}.{one.name}") for one in kind.members)
    return next((why for part in inner if (why := misfit(*part)) is not None), None)


def _test_of(kind: Type) -> Callable[[Any], bool]:
    match kind.name:
        case "array":
            return lambda value: isinstance(value, list)
        case "map" | "struct":
            return lambda value: isinstance(value, dict)
        case "decimal":
            return lambda value: is_number(value) and fits_decimal(text_of_number(value), kind)
    return _TESTS[text_of(kind)]


def _type(values: Sequence[Any], parts: TypePartCounter, depth: int) -> Type:
    """As `json_type`. `depth`: how many more levels there may be. Raises TooManyParts."""
    word = type_of(values, OF_JSON, VARIANT)
    if word == "double" and all(isinstance(value, WrittenNumber) for value in values):
        return written_decimal([value.text for value in values]) or Type(word)
    if word != VARIANT:
        return type_alone(word)
    if values and all(map(is_number, values)):
        # More digits than a double has.
        texts = [text_of_number(value) for value in values]
        return written_decimal(texts) or exact_decimal(texts) or _UNKNOWN
    arrays = [value for value in values if isinstance(value, list)]
    if depth and arrays and len(arrays) >= FITS * len(values):
        return _array(arrays, parts, depth - 1)
    objects = [value for value in values if isinstance(value, dict)]
    if depth and objects and len(objects) >= FITS * len(values):
        return _object(objects, parts, depth - 1)
    return _UNKNOWN


def _array(arrays: Sequence[list[Any]], parts: TypePartCounter, depth: int) -> Type:
    parts.add(1)
    return Type("array", of=_type([one for array in arrays for one in array if one is not None], parts, depth))


def _object(objects: Sequence[Mapping[str, Any]], parts: TypePartCounter, depth: int) -> Type:
    """A struct where the keys are names that come again, a map where they are data whose values are of one type."""
    counts = Counter(key for one in objects for key in one)
    names = {key.lower() for key in counts if is_field_name(key)}
    named = 0 < len(counts) == len(names) <= _MAX_MEMBERS
    if named and all(number >= _USUAL * len(objects) for number in counts.values()):
        return _struct(counts, objects, parts, depth)
    parts.add(1)
    of = _type([value for one in objects for value in one.values() if value is not None], parts, depth)
    if has_variant(of) and named and len(counts) <= max(map(len, objects)) / _USUAL:
        return _struct(counts, objects, parts, depth)
    return Type("map", of=of)


def _struct(keys: Collection[str], objects: Sequence[Mapping[str, Any]], parts: TypePartCounter, depth: int) -> Type:
    parts.add(len(keys))
    given = {key: [value for one in objects if (value := one.get(key)) is not None] for key in keys}
    return Type("struct", members=tuple(Member(key, _type(values, parts, depth)) for key, values in given.items()))
