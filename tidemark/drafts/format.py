"""The judgement of a draft on some messages: what they are, which scheme reads them, and which of them it refuses."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tidemark.drafts.columns import Column
from tidemark.settings.parts import FieldName

# Why a value would be a dead letter; None where it would be a row.
Refusal = Callable[[bytes], str | None]

_EXAMPLE = 40
# As many names as a person reads through.
_NAMES = 200
# Of a name in a message, and of one that is made of it.
_MAX_NAME, _MAX_LETTERS = 1_000, 200
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
    # How the sending program compressed each value; None where it did not.
    decompress: str | None = None


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


def named(sources: Iterable[str], taken: Iterable[str] = (), *, any_case: bool = False) -> dict[str, str]:
    """The name that a stream file has for the field of each name in a message. `taken`: names that none of them gets.

    Of names that differ in case alone, the first; with `any_case` each, the others with a number. Names that cannot be are
    left out.
    """
    sources = [*sources]
    fields: dict[str, str] = {}
    spellings: set[str] = set()
    lower = {name.lower() for name in taken}
    # Those that can be a field's name as they are come before those that get another one.
    for source in sorted(dict.fromkeys(sources), key=lambda source: not is_field_name(source)):
        if source.lower() in spellings or not 0 < len(source) <= _MAX_NAME or not _is_text(source):
            continue
        if not any_case:
            spellings.add(source.lower())
        name = _free(source if is_field_name(source) else _as_name(source), lower)
        lower.add(name.lower())
        fields[source] = name
    return {source: fields[source] for source in sources if source in fields}


def typed_as(name: str, source: str, kind: str) -> str | dict[str, str]:
    """The type of a field as a stream file has it, with the name in the message where it is another."""
    return kind if name == source else {"type": kind, "from": source}


def _as_name(source: str) -> str:
    """A name that a field may have, as near as can be."""
    text = re.sub(r"[^\w-]+", "_", unicodedata.normalize("NFC", source))[:_MAX_LETTERS].strip("_-")
    if is_field_name(text):
        return text
    text = f"field_{text}" if text else "field"
    return text if is_field_name(text) else "field"


def _free(name: str, taken: Collection[str]) -> str:
    return next(one for one in chain([name], (f"{name}_{number}" for number in count(2))) if one.lower() not in taken)


def _is_text(source: str) -> bool:
    """Whether a file can have a name: not half of a pair of surrogates, nor what YAML does not print."""
    return source.isprintable() and text_in(source.encode(errors="surrogatepass")) is not None


def example(values: Iterable[Any], test: Callable[[Any], bool] | None = None) -> str:
    """The first value that passes a test, as a short text."""
    first = next((value for value in values if test is None or test(value)), "")
    text = first if isinstance(first, str) else json.dumps(first, ensure_ascii=False, default=str)
    return text if len(text) <= _EXAMPLE else f"{text[: _EXAMPLE - 1]}…"


def some(names: Sequence[str]) -> str:
    """Some names, for a note: nobody should look for one of them in vain."""
    shown = ", ".join(repr(name) for name in names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown}, and {len(names) - _NAMES} more"
