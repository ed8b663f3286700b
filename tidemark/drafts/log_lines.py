"""Lines that look like columns or JSON, and are neither: those of a program's log, and Python's own texts of values."""

from __future__ import annotations

import ast
import re

# A time, as Python's logging, log4j, and others write it first, with a comma or a point before its milliseconds.
_TIME = r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|SEVERE|FATAL|CRITICAL)"
_LINE = re.compile(
    # A level behind the time, with little between, or milliseconds behind a comma, which no time of columns has.
    rf"{_TIME}[ \t\[(|:-]+(?:[^,;\t|]{{0,60}}[ \t\[(|:-])?{_LEVEL}\b(?![,;\t]).*"
    rf"|\[?\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d,\d{{3}}\]?[ \t].*"
    rf"|\[?{_LEVEL}\]?[ :]+.*",
    re.ASCII | re.DOTALL,
)
_MAX_TEXT = 100_000


def is_log_line(text: str) -> bool:
    return _LINE.fullmatch(text) is not None


def is_python(text: str) -> bool:
    """Whether a text is a dictionary or a list as Python prints it, and no JSON."""
    stripped = text.strip()
    if len(stripped) > _MAX_TEXT or (stripped[:1], stripped[-1:]) not in (("{", "}"), ("[", "]")):
        return False
    try:
        return isinstance(ast.literal_eval(stripped), (dict, list))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
