"""Texts that are an integer, a number, a boolean, a date, a time: one table for the schemes `regex`, `delimited` and `json`.

Regular expressions for a whole text, in the syntax that Java and Python share. Spark's own casts are no measure: they
take `3d`, `0x1p4`, `Infinity`, `y`, `T`, and any control character around a number. None of these expressions goes back,
so each takes linear time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Final

# Of no number in a message are there more.
_ALL_DIGITS = Context(prec=20_000_000)
_AROUND = r"[ \t\r\n]*+"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_LOCAL = rf"{_DATE}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}}+0*+)?+"


def _whole(form: str) -> str:
    # Not ^ and $: a $ also stands before a line end. Java and Python write the very end otherwise.
    return rf"\A{form}(?![\s\S])"


# A number has to be finite, too: text of a larger one is not a number.
OF_TYPE: Final[Mapping[str, str]] = {
    "integer": _whole(rf"{_AROUND}[+-]?+[0-9]++{_AROUND}"),
    "double": _whole(rf"{_AROUND}[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+{_AROUND}"),
    "boolean": _whole(rf"{_AROUND}(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]){_AROUND}"),
}
# ISO 8601, with microseconds at most. Zeros after them are allowed.
DATE: Final = _whole(_DATE)
LOCAL_TIME: Final = _whole(_LOCAL)
TIME: Final = _whole(rf"{_LOCAL}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?+")


def is_exact_double(text: str) -> bool:
    """Whether a double holds a number, as `ExactDouble.java` has it: 0.1 and 1e23, and not 2**53 + 1."""
    found = float(text)
    if math.isinf(found):
        return False
    number = Decimal(text)
    if not found or not number:
        return found == number
    number = number.normalize(_ALL_DIGITS)
    return Context(prec=len(number.as_tuple().digits)).create_decimal(found) == number
