"""Numbers of things in words, in one way for all that people read."""

from __future__ import annotations

from collections.abc import Sequence


def number_of(count: int | str, what: str, one: str = "", many: str = "") -> str:
    """`1 window`, `2 windows`; with a verb for each: `1 window was`, `2 windows were`. Of one, `count` may be a text too."""
    is_one = str(count) == "1"
    verb = one if is_one else many
    return f"{count} {what}{'' if is_one else 's'}{f' {verb}' if verb else ''}"


# So many names stand in one sentence.
_MAX_NAMES = 20


def named_few(names: Sequence[str]) -> str:
    """Names in words: all of them, or the first ones and how many there are beside them."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f", and {more} more" if more > 0 else "")
