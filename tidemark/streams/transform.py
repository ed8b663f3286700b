"""What a stream file may say of a transform: rows into other rows, by SQL or by a function of the user's own."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from tidemark.functions import FUNCTION_NAME
from tidemark.streams.parts import FieldName, Part
from tidemark.streams.schemes import Fields, FieldType, named_once

# What a transform has to give back as it came; of a row that it makes anew, `_index` is its own.
GIVEN_BACK = ("_topic", "_incarnation", "_partition", "_offset", "_index")
# The rows that a transform is given, by their name in its SQL.
MESSAGES = "messages"


def _query(sql: str) -> str:
    bare = re.sub(r"/\*.*?\*/|--[^\n]*", " ", sql, flags=re.DOTALL)
    if not re.match(r"\s*(select|with)\b", bare, re.IGNORECASE):
        raise ValueError("expected a query that begins with SELECT or WITH")
    if not re.search(rf"\b{MESSAGES}\b", bare, re.IGNORECASE):
        raise ValueError(f"expected a query of `{MESSAGES}`, which are the rows that it is given")
    return sql


class Transform(Part):
    """A query of `messages`, or a function `module:name` that takes and gives a DataFrame; `fields` are what it gives."""

    sql: Annotated[str, AfterValidator(_query)] | None = None
    function: Annotated[str, Field(pattern=FUNCTION_NAME, max_length=200)] | None = None
    fields: Annotated[dict[FieldName, FieldType], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_way(self) -> Transform:
        if (self.sql is None) == (self.function is None):
            raise ValueError("expected one of sql and function")
        named_once(self.fields)
        return self

    @model_validator(mode="after")
    def _complete(self) -> Transform:
        # Without a star, the result can have no column that the query does not name.
        if self.sql is None or "*" in self.sql:
            return self
        missing = [name for name in (*GIVEN_BACK, *self.fields) if name.lower() not in self.sql.lower()]
        if missing:
            raise ValueError(
                f"sql: the query does not give {missing[0]}; it has to give {', '.join(GIVEN_BACK)} as they came, and each of "
                "`fields`"
            )
        return self

    def declared(self) -> Fields:
        """The fields of the rows that the transform gives, and their types, in order."""
        return {**self.fields}
