"""Doubles as the text that Spark writes into HBase: one value has one text, whichever sink it is read from."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal

# Java writes numbers between these without an exponent.
_LEAST, _MAX = 1e-3, 1e7
_TEXT = re.compile(r"-?\d+\.\d+(E-?\d+)?|NaN|-?Infinity")
_FLOAT = struct.Struct("<f")


def is_double_text(text: str) -> bool:
    """Whether Java may have written a text for a number."""
    return _TEXT.fullmatch(text) is not None


def as_float(value: float) -> float:
    """The nearest number of 32 bits. Raises ValueError where there is none."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(value))[0])
    except OverflowError as problem:
        raise ValueError(f"{value} is too large for a float") from problem


def float_text(value: float) -> str:
    """As Java's `Float.toString`, of a number of 32 bits."""
    if math.isnan(value) or math.isinf(value):
        return double_text(value)
    # At most nine digits tell a number of 32 bits from all others.
    return double_text(next(near for digits in range(1, 10) if as_float(near := float(f"{value:.{digits}g}")) == value))


def double_text(value: float) -> str:
    """As Java's `Double.toString`, with as few digits as tell the value from all others."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _LEAST <= abs(value) < _MAX:
        return repr(value)
    # Java takes two digits where one would do, which tells more of the smallest numbers: 4.9E-324.
    short = f"{value:.1e}"
    sign, digits, exponent = Decimal(short if float(short) == value else repr(value)).normalize().as_tuple()
    written = "".join(map(str, digits))
    return f"{'-' * sign}{written[0]}.{written[1:] or '0'}E{int(exponent) + len(written) - 1}"
