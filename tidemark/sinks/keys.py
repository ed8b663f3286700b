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


# What Debezium writes in the place of a value that the database has not sent, as it did not change.
UNSENT = "__debezium_unavailable_value"
Unsent = Annotated[
    str | None,
    Field(
        min_length=1,
        description="The placeholder for [a value that was not sent](sinks.md#values-that-were-not-sent), as Debezium writes "
        "it: a message with it in a field is a dead letter. `null`: it is an ordinary value.",
    ),
]
Key = Annotated[
    Items[FieldName],
    Field(
        min_length=1,
        max_length=16,
        description="The field that is the key, or a list of fields. A table keeps the key that it was created with, and "
        "Tidemark refuses another one.",
    ),
    BeforeValidator(_one_or_several, json_schema_input_type=FieldName | Items[FieldName]),
    AfterValidator(_each_once),
]
