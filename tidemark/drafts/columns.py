"""The type that fits the values of a field. Each type takes what docs/schemes.md says, and so what a scheme takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# A type that fits all values but these few is taken: the others are dead letters, and the draft shows them.
FITS = 0.98
_LONGS = range(-(2**63), 2**63)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
# An identifier such as 007 is no number.
_PADDED = re.compile(r"[+-]?0\d", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6}0*)?(?:Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_BLANK = " \t\r\n"
# Forms of times in text, as Spark's patterns have them and as Python does.
FORMS = (
    ("yyyy-MM-dd'T'HH:mm:ssXXX", "%Y-%m-%dT%H:%M:%S%z", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)"),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "%Y-%m-%dT%H:%M:%S.%f%z", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?:Z|[+-]\d\d:\d\d)"),
    ("yyyy-MM-dd'T'HH:mm:ss", "%Y-%m-%dT%H:%M:%S", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"),
    ("yyyy-MM-dd HH:mm:ss", "%Y-%m-%d %H:%M:%S", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
    ("yyyy-MM-dd HH:mm:ss.SSS", "%Y-%m-%d %H:%M:%S.%f", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"),
    ("dd/MMM/yyyy:HH:mm:ss Z", "%d/%b/%Y:%H:%M:%S %z", r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}"),
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A field as the messages have it: its type, how many have a value, and one that fits."""

    name: str
    type: str
    values: int
    example: str


Test = Callable[[Any], bool]


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _LONGS


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_time(value: object) -> bool:
    """Whether a text is a time in ISO 8601, with date and seconds."""
    if not isinstance(value, str) or not _ISO.fullmatch(value):
        return False
    try:
        # Python takes six digits of a second; the others are zeros.
        datetime.fromisoformat(re.sub(r"(\.\d{6})0+", r"\1", value))
    except ValueError:
        return False
    return True


# The types of JSON's values, the narrowest first. VARIANT takes all others.
OF_JSON: tuple[tuple[str, Test], ...] = (
    ("boolean", lambda value: isinstance(value, bool)),
    ("integer", is_integer),
    ("double", is_number),
    ("timestamp", is_time),
    ("string", lambda value: isinstance(value, str)),
)
VARIANT = "variant"


def text_types(form: str | None) -> tuple[tuple[str, Test], ...]:
    """The types of text; all others are strings. `form`: how its times are written, one of FORMS; None without times."""
    times: tuple[tuple[str, Test], ...] = ()
    if form is not None:
        times = (("timestamp", _tester(form)),)
    return (
        ("boolean", lambda value: value.strip(_BLANK).lower() in ("true", "false")),
        ("integer", _whole),
        ("double", _decimal),
        *times,
    )


def _whole(value: str) -> bool:
    text = value.strip(_BLANK)
    return bool(_INTEGER.fullmatch(text)) and not _PADDED.match(text) and len(text) < 21 and int(text) in _LONGS


def _decimal(value: str) -> bool:
    text = value.strip(_BLANK)
    return bool(_DOUBLE.fullmatch(text)) and not _PADDED.match(text) and math.isfinite(float(text))


def in_form(value: str, form: str) -> bool:
    """Whether a text is a time in one of FORMS."""
    _, python, pattern = next(known for known in FORMS if known[0] == form)
    if not re.fullmatch(pattern, value, re.ASCII):
        return False
    try:
        datetime.strptime(value, python)
    except ValueError:
        return False
    return True


def _tester(form: str) -> Test:
    return lambda value: in_form(value, form)


def form_of(columns: Iterable[Sequence[str]]) -> str | None:
    """The form of times that fits most columns; None where no column holds times. One stream file has one form."""
    columns = [column for column in columns if column]
    fitting = [(sum(share(column, _tester(form)) >= FITS for column in columns), form) for form, *_ in FORMS]
    number, form = max(fitting, key=lambda fit: fit[0])
    return form if number else None


def type_of(values: Sequence[Any], types: Sequence[tuple[str, Test]], otherwise: str) -> str:
    """The narrowest type that takes all values, or else one that takes nearly all; `otherwise` where none does."""
    shares = [(share(values, test), name) for name, test in types]
    for least in (1.0, FITS):
        for part, name in shares:
            if part >= least and values:
                return name
    return otherwise


def share(values: Sequence[Any], test: Test) -> float:
    """Which part of some values passes a test; 0 of none."""
    return sum(map(test, values)) / len(values) if values else 0.0
