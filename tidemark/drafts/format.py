"""The judgement of a draft on some messages: what they are, which scheme reads them, and which of them it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tidemark.drafts.columns import Column
from tidemark.settings.parts import FieldName

# Why a value would be a dead letter; None where it would be a row.
Refusal = Callable[[bytes], str | None]

_EXAMPLE = 40
_NAMES = 5
_NAME: TypeAdapter[str] = TypeAdapter(FieldName)
# The name of a value of each type in a refusal.
A_VALUE = {
    "boolean": "a boolean",
    "integer": "an integer",
    "double": "a number",
    "timestamp": "a time",
    "date": "a date",
    "array": "an array",
    "map": "an object",
    "struct": "an object",
    "string": "a string",
}


@dataclass(frozen=True)
class Format:
    """The kind of some messages, and the scheme that reads them, as a stream file has it."""

    what: str
    scheme: Mapping[str, Any]
    refusal: Refusal
    columns: tuple[Column, ...] = ()
    explode: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


def text_in(value: bytes) -> str | None:
    """The text of some bytes; None where they are no UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def no_text(value: bytes) -> str | None:
    """The refusal of a scheme that takes any text."""
    return "not UTF-8" if text_in(value) is None else None


def is_field_name(text: str) -> bool:
    """Whether a stream file may have a field of this name."""
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True


def field_names(names: Iterable[str]) -> list[str]:
    """Those that a stream file may have as fields beside each other. Of names that differ in case alone, the first."""
    by_lower: dict[str, str] = {}
    for name in filter(is_field_name, names):
        by_lower.setdefault(name.lower(), name)
    return [*by_lower.values()]


def example(values: Iterable[Any], test: Callable[[Any], bool] | None = None) -> str:
    """The first value that passes a test, as a short text."""
    first = next((value for value in values if test is None or test(value)), "")
    text = first if isinstance(first, str) else json.dumps(first, ensure_ascii=False, default=str)
    return text if len(text) <= _EXAMPLE else f"{text[: _EXAMPLE - 1]}…"


def some(names: Sequence[str]) -> str:
    """The first of some names, for a note."""
    shown = ", ".join(repr(name) for name in names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown} ..."
