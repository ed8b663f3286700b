"""What a stream file may say of messages that hold several rows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from tidemark.streams.parts import Part


class Explode(Part):
    """How a value is split into pieces, each of which the scheme then takes for a value: one of these ways."""

    # Text or bytes with this between the pieces; one at the end begins no piece.
    lines: Annotated[str, Field(min_length=1, max_length=20)] | None = None
    # True: the value is a JSON array. A text: it is a JSON object, with the array under this key.
    json_array: bool | str | None = None

    @field_validator("json_array")
    @classmethod
    def _where(cls, given: bool | str | None) -> bool | str | None:
        if given is False or given == "":
            raise ValueError("expected true (the value is the array), or the key under which the array stands")
        return given

    @model_validator(mode="after")
    def _one_way(self) -> Explode:
        if (self.lines is None) == (self.json_array is None):
            raise ValueError('expected one of lines and json_array, like `explode: {lines: "\\n"}`')
        return self
