"""Doubles as the text that Spark writes into HBase: one value has one text, whichever sink it is read from."""

from __future__ import annotations

import math
from decimal import Decimal

# Java writes numbers between these without an exponent.
_LEAST, _MOST = 1e-3, 1e7


def double_text(value: float) -> str:
    """As Java's `Double.toString`, with as few digits as tell the value from all others."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _LEAST <= abs(value) < _MOST:
        return repr(value)
    # Java takes two digits where one would do, which tells more of the smallest numbers: 4.9E-324.
    short = f"{value:.1e}"
    sign, digits, exponent = Decimal(short if float(short) == value else repr(value)).normalize().as_tuple()
    written = "".join(map(str, digits))
    return f"{'-' * sign}{written[0]}.{written[1:] or '0'}E{int(exponent) + len(written) - 1}"
