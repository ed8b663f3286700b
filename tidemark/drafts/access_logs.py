"""Lines of an access log in the common or the combined form, with or without more at their end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidemark.drafts.columns import Column, in_form
from tidemark.drafts.format import Format, example, text_in

_QUOTED = r'"((?:[^"\\]++|\\.)*+)"'
_REGEX = (
    r'(\S+) \S+ (?:-|(\S+)) \[([^\]]+)\] "(?:([A-Z]+) (\S+) (HTTPS?/[0-9.]+)|(?:[^"\\]++|\\.)*+)" (\d{3}) (?:(\d+)|-)'
    rf"(?: {_QUOTED} {_QUOTED})?(?: (.*))?"
)
_ACCESS = re.compile(_REGEX, re.ASCII)
_ACCESS_FIELDS = {
    "host": "string",
    "user": "string",
    "time": "timestamp",
    "method": "string",
    "path": "string",
    "protocol": "string",
    "status": "integer",
    "size": "integer",
    "referer": "string",
    "agent": "string",
    "rest": "string",
}
_ACCESS_FORM = "dd/MMM/yyyy:HH:mm:ss Z"


def is_access_log(text: str) -> bool:
    return _ACCESS.fullmatch(text) is not None


def access_log_format(texts: Sequence[str]) -> Format:
    """The scheme `regex` for some lines, of which most are an access log's."""
    matches = [match.groups() for text in texts if (match := _ACCESS.fullmatch(text)) is not None]
    columns = []
    for index, (name, kind) in enumerate(_ACCESS_FIELDS.items()):
        values = [match[index] for match in matches if match[index] is not None]
        columns.append(Column(name, kind, len(values), example(values)))
    pattern = {"name": "access_log", "regex": _REGEX, "fields": list(_ACCESS_FIELDS), "timestamp": _ACCESS_FORM}

    def refusal(value: bytes) -> str | None:
        text = text_in(value)
        if text is None:
            return "not UTF-8"
        match = _ACCESS.fullmatch(text)
        if match is None:
            return "not a line of an access log"
        return None if in_form(match[3], _ACCESS_FORM) else "time is not a time"

    scheme = {"type": "regex", "fields": _ACCESS_FIELDS, "patterns": [pattern]}
    return Format("lines of an access log, as Apache and nginx write them", scheme, refusal, tuple(columns))
