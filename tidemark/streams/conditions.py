"""Conditions of checks in Spark's SQL, as far as they are checked without Spark."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

# Texts, quoted names and comments, where words mean nothing. None of these goes back.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"|`[^`]*+`|--[^\n]*+|/\*(?:(?!\*/).)*+\*/", re.DOTALL)
_OF_OTHERS = {
    "a window (OVER)": re.compile(r"\bOVER\s*+\(", re.IGNORECASE),
    # A field may be called from, table or values, so what follows has to tell.
    "a subquery": re.compile(
        r"\(\s*+(?:(?:SELECT|WITH)\b|FROM\s(?:[^()]*+\([^()]*+\))?[^()]*?\bSELECT\b|TABLE\s++[\w.]++\s*+\)|VALUES\s*+['(\d])",
        re.IGNORECASE,
    ),
}


def _of_one_message(condition: str) -> str:
    words = _QUOTED.sub("''", condition)
    for what, pattern in _OF_OTHERS.items():
        if pattern.search(words):
            raise ValueError(
                f"{condition!r} has {what}: a check looks at one message alone, since the others of its window differ from "
                "one try to the next. Use a transform, or a key that a sink keeps once"
            )
    return condition


Condition = Annotated[
    str,
    AfterValidator(_of_one_message),
    Field(min_length=1, description="A condition in Spark's SQL: a message for which it is true is invalid."),
]
