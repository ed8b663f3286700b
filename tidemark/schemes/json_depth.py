"""How deep JSON may be nested. What reads it calls itself for each level, and a thread's stack has an end."""

from __future__ import annotations

import re

# Spark needs a thread's whole stack of 1 MB for some 800 levels. Real messages have a few.
DEEPEST = 200
TOO_DEEP = f"nested deeper than {DEEPEST} levels"

_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)
_OTHERS = re.compile(rb"[^][{}]+")


def too_deep(text: bytes) -> bool:
    """Whether a JSON text is nested deeper than DEEPEST, as Spark's side says it too. Nothing calls itself for it."""
    depth = 0
    for one in _OTHERS.sub(b"", _STRINGS.sub(b"", text)):
        depth += 1 if one in b"{[" else -1
        if depth > DEEPEST:
            return True
    return False
