"""Errors about a value that a person wrote, in words for people: pydantic's own are those of Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tidemark.settings.parts import PATTERNS

# A description for the documents may end with a link into them.
_LINK = re.compile(r",? ?(?:see )?\[[^]]*\]\([^)]*\)")
# The most that is shown of a value.
_MOST = 120
_QUOTES = "put it in quotes"
# A number or a truth value, as a text.
_IN_QUOTES = re.compile(r"[+-]?[\d._]+(e[+-]?\d+)?|true|false|yes|no|on|off", re.IGNORECASE)
# What YAML makes of words that are no texts to it.
_BOOLEAN = "YAML takes yes, no, on, off, true and false without quotes for a truth value: "

# By the name of pydantic's error, with what it says of the bound.
_EXPECTED: Mapping[str, str] = {
    "greater_than_equal": "a number of at least {ge}",
    "greater_than": "a number above {gt}",
    "less_than_equal": "a number of at most {le}",
    "less_than": "a number below {lt}",
    "string_too_short": "a text of {min_length} or more characters",
    "string_too_long": "a text of no more than {max_length} characters",
    "too_short": "{min_length} or more entries",
    "too_long": "no more than {max_length} entries",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list, like [a, b]",
    "list_type": "a list, like [a, b]",
    "dict_type": "a map of keys and values",
    "mapping_type": "a map of keys and values",
    "datetime_type": "a time, like 2026-11-21T07:00:00Z",
    "datetime_parsing": "a time, like 2026-11-21T07:00:00Z",
    "datetime_from_date_parsing": "a time, like 2026-11-21T07:00:00Z",
    "datetime_object_invalid": "a time, like 2026-11-21T07:00:00Z",
    "timezone_aware": "a time with its zone, like 2026-11-21T07:00:00Z",
    "date_type": "a day, like 2026-11-21",
    "date_parsing": "a day, like 2026-11-21",
}


def errors(problem: ValidationError) -> list[ErrorDetails]:
    """The errors of a validation, without what only follows from others: that a list lacks the entries which are wrong."""
    found = problem.errors()
    above = {one["loc"][:depth] for one in found for depth in range(len(one["loc"]))}
    return [one for one in found if one["type"] != "too_short" or one["loc"] not in above]


def said(error: ErrorDetails, model: type[BaseModel] = BaseModel) -> str:
    """The expectation at the place of an error of validating `model`, and what was found there instead."""
    found, where = error.get("input"), list(_at(model, error["loc"][:-1]))
    name = str(error["loc"][-1]) if error["loc"] else ""
    match error["type"]:
        case "extra_forbidden":
            keys = _keys(where)
            return f"unknown key{_nearest(name, keys) or '; keys here are: ' + ', '.join(keys)}{_found(found)}"
        case "missing":
            means = next((one.description for one in _fields(where, name) if one.description), "")
            return f"this key is missing. {_LINK.sub('', means)}".rstrip(".:, ")
        case "union_tag_invalid":
            names = _quoted(error["ctx"]["expected_tags"])
            tag = str(error["ctx"]["tag"])
            return f"the type {tag!r} is unknown{_nearest(tag, names) or '; types here are: ' + ', '.join(names)}"
        case "union_tag_not_found":
            return f"expected a map with the key `type`, which says what this is{_found(found)}"
        case "literal_error" | "enum":
            return _one_of(str(error["ctx"]["expected"]), found)
        case "model_type" | "model_attributes_type":
            keys = _keys(_at(model, error["loc"]))
            return f"expected a map with keys among {', '.join(keys)}{_found(found)}"
        case "value_error" | "assertion_error" if isinstance(found, Mapping):
            return _expected(error)
    return f"{_expected(error)}{_found(found)}{_hint(error['type'], found)}"


def _expected(error: ErrorDetails) -> str:
    context: Mapping[str, Any] = error.get("ctx", {})
    if (pattern := context.get("pattern")) is not None:
        return f"expected {PATTERNS.get(pattern, f'a text of the form {pattern}')}"
    if (expected := _EXPECTED.get(error["type"])) is not None:
        return f"expected {expected.format_map(context)}"
    return error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _one_of(expected: str, found: object) -> str:
    names = [one.strip("'") for one in expected.replace(" or ", ", ").split(", ")]
    return f"expected {expected}{_nearest(str(found), names)}{_found(found)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name.lower(), [one.lower() for one in known], n=1, cutoff=0.75)
    return next((f" (did you mean {one}?)" for one in known if near and one.lower() == near[0]), "")


def _quoted(tags: str) -> list[str]:
    return [one.strip().strip("'") for one in tags.split(",")]


def kind_of(found: object) -> str:
    """The value found, in the words of YAML."""
    match found:
        case None:
            return "nothing"
        case Mapping():
            return "a map"
        case str():
            return repr(found if len(found) <= _MOST else found[:_MOST] + "...")
        case Sequence():
            return "a list"
    return str(found)[:_MOST]


def _found(found: object) -> str:
    return f" (found {kind_of(found)})"


def _hint(kind: str, found: object) -> str:
    if kind == "string_type" and isinstance(found, bool):
        return f": {_BOOLEAN}{_QUOTES}"
    if kind == "string_type" and isinstance(found, int | float):
        return f": {_QUOTES}"
    if kind in ("tuple_type", "list_type") and isinstance(found, str):
        return f": write [{found[:_MOST]}]"
    if kind in ("int_type", "float_type", "bool_type") and isinstance(found, str) and _IN_QUOTES.fullmatch(found):
        return ": write it without quotes"
    return ""


def _at(model: type[BaseModel], place: Iterable[int | str]) -> Iterator[type[BaseModel]]:
    """The models that may stand at a place of an error. Parts of a place that only pydantic has are passed over."""
    types: list[Any] = [model]
    for part in place:
        types = [one for type_ in types for one in _below(type_, part)] or types
    for one in types:
        yield from _models(one)


def _below(type_: Any, part: int | str) -> Iterator[Any]:
    if chosen := [one for one in _models(type_) if part in (one.__name__, *_tags(one))]:
        # A word of the key `type` may be the name of a key too.
        yield from chosen
        return
    for one in _members(type_):
        origin = get_origin(one)
        if isinstance(one, type) and issubclass(one, BaseModel):
            yield from (field.annotation for field in _fields([one], str(part)))
        elif isinstance(part, int) and origin in (tuple, list):
            yield get_args(one)[0]
        elif origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            yield get_args(one)[1]


def _members(type_: Any) -> Iterator[Any]:
    """The types of a union; of any other type itself."""
    if get_origin(type_) is Annotated:
        yield from _members(get_args(type_)[0])
    elif get_origin(type_) in (Union, UnionType):
        for one in get_args(type_):
            yield from _members(one)
    else:
        yield type_


def _models(type_: Any) -> Iterator[type[BaseModel]]:
    return (one for one in _members(type_) if isinstance(one, type) and issubclass(one, BaseModel))


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    """The words of the key `type` that choose a model."""
    type_ = model.model_fields.get("type")
    return get_args(type_.annotation) if type_ is not None and get_origin(type_.annotation) is Literal else ()


def _keys(models: Iterable[type[BaseModel]]) -> list[str]:
    return list(dict.fromkeys(field.alias or name for model in models for name, field in model.model_fields.items()))


def _fields(models: Iterable[type[BaseModel]], name: str) -> Iterator[FieldInfo]:
    for model in models:
        for known, field in model.model_fields.items():
            if name in (known, field.alias):
                yield field
