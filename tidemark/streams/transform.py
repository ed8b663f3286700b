"""The keys of a transform in a stream file: rows into other rows, by SQL or by a function of the user's own."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from tidemark.schemes.kinds import Fields, named_once
from tidemark.settings.parts import FieldName, FunctionName, Part
from tidemark.types.fields import FieldType

# The columns that a transform returns unchanged. It chooses `_index` itself for rows that it makes.
GIVEN_BACK = ("_topic", "_incarnation", "_partition", "_offset", "_index")
# The name of a transform's input rows in its SQL.
MESSAGES = "messages"


# Comments, and texts and names in quotes: their contents are no SQL.
_QUOTED = re.compile(r"/\*.*?\*/|--[^\n]*|'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"|`[^`]*+`", re.DOTALL)
_BRACKETS = re.compile(r"\([^()]*+\)")
_WRITES = ("insert", "merge", "update", "delete")


def _query(sql: str) -> str:
    bare = re.sub(r"/\*.*?\*/|--[^\n]*", " ", sql, flags=re.DOTALL)
    if not re.match(r"\s*(select|with)\b", bare, re.IGNORECASE):
        raise ValueError("expected a query that begins with SELECT or WITH")
    if (word := _behind_with(sql)) in _WRITES:
        raise ValueError(
            f"expected a query; this is {word.upper()}, which writes. The sinks are what a stream writes to"
        )
    if not re.search(rf"\b{MESSAGES}\b", bare, re.IGNORECASE):
        raise ValueError(f"expected a query of `{MESSAGES}`, which are the rows that it is given")
    return sql


def _behind_with(sql: str) -> str:
    """The word after the queries of a WITH, which says what the statement does. Spark parses a statement before it runs."""
    left = _QUOTED.sub(" q ", sql)
    while left != (left := _BRACKETS.sub("\0", left)):
        pass
    words = re.findall(r"\w+|\0|[^\w\s]", left.lower())
    if words[:1] != ["with"]:
        return ""
    return next((word for before, word in pairwise(words) if before == "\0" and word not in ("as", "max", ",")), "")


class Transform(Part):
    """A query of `messages`, or a function `module:name` that takes and gives a DataFrame; `fields` are what it gives."""

    sql: Annotated[str, AfterValidator(_query)] | None = Field(
        default=None,
        description="A query of [Spark's SQL](https://spark.apache.org/docs/4.2.0/sql-ref.html) that begins with `SELECT` or "
        "`WITH`. A statement that is not a query, such as `WITH ... INSERT`, ends the job with code 2 before Spark runs it. "
        "The rows are in `messages`.",
    )
    function: FunctionName | None = Field(
        default=None,
        description="Instead of `sql`: `module:name`. The driver calls it for each window, and once before that without "
        "rows, to check its columns.",
    )
    fields: Annotated[
        dict[FieldName, FieldType],
        Field(
            min_length=1,
            description="The fields of the result and their types, in order, as the sinks write them and readers get them.",
        ),
    ]

    @model_validator(mode="after")
    def _one_way(self) -> Transform:
        if (self.sql is None) == (self.function is None):
            raise ValueError("expected one of sql and function")
        named_once(self.fields)
        return self

    @model_validator(mode="after")
    def _complete(self) -> Transform:
        # Without a star, the result has only columns that the query names.
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
