"""The key of sinks that keep a row for each key."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from tidemark.settings.parts import FieldName, Items


def _one_or_several(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _each_once(key: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(key)) < len(key):
        raise ValueError("a field is named twice")
    return key


Key = Annotated[
    Items[FieldName],
    Field(
        min_length=1,
        max_length=16,
        description="The field that is the key, or a list of fields. A table keeps the key that it "
        "was made with, and Tidemark refuses another one.",
    ),
    BeforeValidator(_one_or_several, json_schema_input_type=FieldName | Items[FieldName]),
    AfterValidator(_each_once),
]
