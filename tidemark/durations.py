"""A span of time as people read it."""

from __future__ import annotations

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def in_words(milliseconds: int) -> str:
    """The two largest units that a span has: `3 d 4 h`, `20 min`, `0 s`. Rounded down; less than nothing is nothing."""
    parts: list[str] = []
    left = max(0, milliseconds)
    for name, size in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number} {name}" if number else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part) or "0 s"
