"""The type that fits the values of a field. Each type takes what docs/schemes.md says, and so what a scheme takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from tidemark.schemes.texts import is_exact_double
from tidemark.types.ddl import Type

Test = Callable[[Any], bool]
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
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_BLANK = " \t\r\n"
# A number with a point, as programs write amounts: each with as many digits behind it.
_WITH_POINT = re.compile(r"[+-]?(\d+)\.(\d+)", re.ASCII)
_DIGITS = re.compile(r"[+-]?(?=[\d.]*\d)(\d*)(?:\.(\d*))?", re.ASCII)
# The digits of an amount, where the samples have no more.
_USUAL_DIGITS, _MAX_DIGITS = 18, 38
# Integers of more than 64 bits: those of 64 bits without a sign, and all others that a decimal holds.
LONG_INTEGERS = {"decimal(20,0)": 20, "decimal(38,0)": 38}
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


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _LONGS


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class WrittenNumber(float):
    """A number with a point, an exponent or many digits, and its text: 9.90 is an amount of two digits, 9.9 may be any."""

    def __init__(self, text: str) -> None:
        self.text = text


def text_of_number(number: float) -> str:
    """A number as its message has it."""
    return number.text if isinstance(number, WrittenNumber) else str(number)


def is_double(value: object) -> bool:
    """Whether a double holds a value as it is: not an id of 64 bits, which would become its neighbour."""
    return is_number(value) and is_exact_double(text_of_number(value))  # type: ignore[arg-type]


def _is_long_integer(value: object) -> bool:
    """Whether a value is an integer that may have more than 64 bits."""
    return is_integer(value) or (
        isinstance(value, (int, WrittenNumber))
        and not isinstance(value, bool)
        and _INTEGER.fullmatch(text_of_number(value)) is not None
    )


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


def is_date(value: object) -> bool:
    """Whether a text is a day, as 2026-11-21."""
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def written_decimal(texts: Sequence[str]) -> Type | None:
    """The decimal that numbers are, by their texts; None for those that may be any numbers.

    All have as many digits behind the point, two or more, and one of them ends with a 0, which programs do not write behind a
    double: 9.90 and 12.50.
    """
    found = [match for text in texts if (match := _WITH_POINT.fullmatch(text)) is not None]
    scales = {len(match[2]) for match in found}
    if len(found) < len(texts) or len(scales) != 1 or not any(match[2].endswith("0") for match in found):
        return None
    (scale,) = scales
    whole = max(len(match[1]) for match in found)
    if scale < 2 or whole + scale > _MAX_DIGITS:
        return None
    return Type("decimal", _USUAL_DIGITS if whole + scale <= _USUAL_DIGITS else _MAX_DIGITS, scale)


def fits_decimal(text: str, kind: Type) -> bool:
    """Whether a text is a number without an exponent, of no more digits than a decimal has."""
    match = _DIGITS.fullmatch(text)
    if match is None:
        return False
    whole, fraction = match[1].lstrip("0"), (match[2] or "").rstrip("0")
    return len(whole) <= kind.precision - kind.scale and len(fraction) <= kind.scale


def exact_decimal(texts: Sequence[str]) -> Type | None:
    """The decimal that holds numbers of which a double does not hold all; None where it has too few digits."""
    found = [match for text in texts if (match := _DIGITS.fullmatch(text.lstrip("+-"))) is not None]
    if len(found) < len(texts) or not found:
        return None
    whole = max(len(match[1].lstrip("0")) for match in found)
    scale = max(len((match[2] or "").rstrip("0")) for match in found)
    return Type("decimal", _MAX_DIGITS, scale) if whole + scale <= _MAX_DIGITS else None


def _long_integer(digits: int) -> Test:
    def fits(value: object) -> bool:
        return _is_long_integer(value) and len(text_of_number(value).lstrip("+-0")) <= digits  # type: ignore[arg-type]

    return fits


# The flat types of JSON's values, the narrowest first. VARIANT takes all others.
OF_JSON: tuple[tuple[str, Test], ...] = (
    ("boolean", lambda value: isinstance(value, bool)),
    ("integer", is_integer),
    *((name, _long_integer(digits)) for name, digits in LONG_INTEGERS.items()),
    ("double", is_double),
    ("timestamp", is_time),
    ("date", is_date),
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
        *((name, _long_whole(digits)) for name, digits in LONG_INTEGERS.items()),
        ("double", _decimal),
        *times,
        ("date", is_date),
    )


def text_type(values: Sequence[str], types: Sequence[tuple[str, Test]]) -> tuple[str, Test]:
    """The type that fits some texts, and its test. `types`: as `text_types` gives them."""
    kind = type_of(values, types, "string")
    numbers = [value.strip(_BLANK) for value in values]
    amount = None
    if kind == "double" or (kind == "string" and not any(map(_PADDED.match, numbers))):
        amount = written_decimal(numbers) or (exact_decimal(numbers) if kind == "string" else None)
    if amount is not None:
        return str(amount), lambda value: fits_decimal(value.strip(_BLANK), amount)
    return kind, dict(types).get(kind, lambda value: True)


def _whole(value: str) -> bool:
    text = value.strip(_BLANK)
    return bool(_INTEGER.fullmatch(text)) and not _PADDED.match(text) and len(text) < 21 and int(text) in _LONGS


def _long_whole(digits: int) -> Test:
    def fits(value: str) -> bool:
        text = value.strip(_BLANK)
        return bool(_INTEGER.fullmatch(text)) and not _PADDED.match(text) and len(text.lstrip("+-0")) <= digits

    return fits


def _decimal(value: str) -> bool:
    text = value.strip(_BLANK)
    return bool(_DOUBLE.fullmatch(text)) and not _PADDED.match(text) and is_exact_double(text)


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
