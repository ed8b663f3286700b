"""The keys for messages that hold several rows, in a stream file."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from tidemark.settings.parts import Part


class Explode(Part):
    """How a value is split into pieces, each of which the scheme then takes for a value: one of these ways."""

    lines: Annotated[str, Field(min_length=1, max_length=20)] | None = Field(
        default=None,
        description='`"\\n"` splits at this separator, of up to 20 characters; the bytes between need not be text. A separator '
        "at the end begins no piece, so the last line may end with one or not. An empty line is a piece. "
        '`"\\n"` takes a carriage return before it, too.',
    )
    json_array: bool | str | None = Field(
        default=None,
        description="`true`: the value is a JSON array. A piece is an element as it is in the message, byte for byte; a "
        "string is its text. A null element is the text `null`, not a tombstone. A name, like `items`: the value is a JSON "
        "object with such an array under this key; its other keys are ignored.",
    )

    @property
    def between(self) -> str:
        """The separator of lines, as a regular expression of Java and Python. Lines of a text end with CRLF, too."""
        return r"\r?\n" if self.lines == "\n" else re.escape(self.lines or "")

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
