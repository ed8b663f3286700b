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

# A description for the documents may end with links into them. Those within it are words of its sentences.
_LAST_LINKS = re.compile(r"(?:,? ?(?:see )?\[[^]]*\]\([^)]*\))+\.?$")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
# The most that is shown of a value.
_MAX = 120
_QUOTES = "put it in quotes"
# A number or a truth value, as a text.
_IN_QUOTES = re.compile(r"[+-]?[\d._]+(e[+-]?\d+)?|true|false|yes|no|on|off", re.IGNORECASE)
# YAML's readings of words that look like texts.
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
    problems = problem.errors()
    above = {problem_["loc"][:depth] for problem_ in problems for depth in range(len(problem_["loc"]))}
    return [problem_ for problem_ in problems if problem_["type"] != "too_short" or problem_["loc"] not in above]


def describe_error(error: ErrorDetails, model: type[BaseModel] = BaseModel) -> str:
    """The expectation at the place of an error of validating `model`, and what was found there instead."""
    value, where = error.get("input"), list(_at(model, error["loc"][:-1]))
    name = str(error["loc"][-1]) if error["loc"] else ""
    match error["type"]:
        case "extra_forbidden":
            keys = _keys(where)
            return f"unknown key{nearest(name, keys) or '; keys here are: ' + ', '.join(keys)}{_found(value)}"
        case "missing":
            means = next((field.description for field in _fields(where, name) if field.description), "")
            plain = _LINK.sub(r"\1", _LAST_LINKS.sub("", means))
            return f"this key is missing. {plain}".rstrip(".:, ")
        case "union_tag_invalid":
            names = _quoted(error["ctx"]["expected_tags"])
            tag = str(error["ctx"]["tag"])
            return f"the type {tag!r} is unknown{nearest(tag, names) or '; types here are: ' + ', '.join(names)}"
        case "union_tag_not_found":
            return f"expected a map with the key `type`, which says what this is{_found(value)}"
        case "literal_error" | "enum":
            return _one_of(str(error["ctx"]["expected"]), value)
        case "model_type" | "model_attributes_type":
            keys = _keys(_at(model, error["loc"]))
            return f"expected a map with keys among {', '.join(keys)}{_found(value)}"
        case "value_error" | "assertion_error" if isinstance(value, Mapping):
            return _expected(error)
    expected = _expected(error)
    # A sentence of our own may say what it has found.
    value_found = "" if isinstance(value, str) and repr(value) in expected else _found(value)
    return f"{expected}{value_found}{_hint(error['type'], value)}"


def _expected(error: ErrorDetails) -> str:
    context: Mapping[str, Any] = error.get("ctx", {})
    if (pattern := context.get("pattern")) is not None:
        return f"expected {PATTERNS.get(pattern, f'a text of the form {pattern}')}"
    if (expected := _EXPECTED.get(error["type"])) is not None:
        return f"expected {expected.format_map(context)}"
    return error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _one_of(expected: str, value: object) -> str:
    names = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    return f"expected {expected}{nearest(str(value), names)}{_found(value)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, in brackets behind a wrong one; empty where none is like it."""
    near = get_close_matches(name.lower(), [word.lower() for word in known], n=1, cutoff=0.75)
    return next((f" (did you mean {word}?)" for word in known if near and word.lower() == near[0]), "")


def _quoted(tags: str) -> list[str]:
    return [tag.strip().strip("'") for tag in tags.split(",")]


def kind_of(value: object) -> str:
    """The value found, in the words of YAML."""
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "a map"
        case str():
            return repr(value if len(value) <= _MAX else value[:_MAX] + "...")
        case Sequence():
            return "a list"
    return str(value)[:_MAX]


def _found(value: object) -> str:
    return f" (found {kind_of(value)})"


def _hint(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, bool):
        return f": {_BOOLEAN}{_QUOTES}"
    if kind == "string_type" and isinstance(value, int | float):
        return f": {_QUOTES}"
    if kind in ("tuple_type", "list_type") and isinstance(value, str):
        return f": write [{value[:_MAX]}]"
    if kind in ("int_type", "float_type", "bool_type") and isinstance(value, str) and _IN_QUOTES.fullmatch(value):
        return ": write it without quotes"
    return ""


def _at(model: type[BaseModel], place: Iterable[int | str]) -> Iterator[type[BaseModel]]:
    """The models that may stand at a place of an error. Parts of a place that only pydantic has are passed over."""
    types: list[Any] = [model]
    for part in place:
        types = [inner for type_ in types for inner in _below(type_, part)] or types
    for candidate in types:
        yield from _models(candidate)


def _below(type_: Any, part: int | str) -> Iterator[Any]:
    if chosen := [model for model in _models(type_) if part in (model.__name__, *_tags(model))]:
        # A word of the key `type` may be the name of a key too.
        yield from chosen
        return
    for member in _members(type_):
        origin = get_origin(member)
        if isinstance(member, type) and issubclass(member, BaseModel):
            yield from (field.annotation for field in _fields([member], str(part)))
        elif isinstance(part, int) and origin in (tuple, list):
            yield get_args(member)[0]
        elif origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            yield get_args(member)[1]


def _members(type_: Any) -> Iterator[Any]:
    """The types of a union; of any other type itself."""
    if get_origin(type_) is Annotated:
        yield from _members(get_args(type_)[0])
    elif get_origin(type_) in (Union, UnionType):
        for member in get_args(type_):
            yield from _members(member)
    else:
        yield type_


def _models(type_: Any) -> Iterator[type[BaseModel]]:
    return (member for member in _members(type_) if isinstance(member, type) and issubclass(member, BaseModel))


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
