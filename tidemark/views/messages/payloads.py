"""Keys, values and headers of messages as people may look at them: always text, never obeyed, and cut with a note.

Control characters, escape codes and marks that turn the direction of writing are shown by their numbers. Bytes that are no
UTF-8 are shown as backslash codes, and everything is there in hexadecimal too.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import Any

# How many bytes of one value are shown as text, and how many in hexadecimal.
MOST_TEXT = 16_384
MOST_HEX = 512

_DECODER = getincrementaldecoder("utf-8")


def shown(value: bytes | None, most: int = MOST_TEXT) -> dict[str, Any] | None:
    """The first bytes of a value as text and in hexadecimal, its size in bytes, and how many are not shown of each."""
    if value is None:
        return None
    part = value[:most]
    text, utf8 = _text(part, final=len(part) == len(value))
    return {
        "bytes": len(value),
        "text": text,
        "utf8": utf8,
        "more": len(value) - len(part),
        "hex": value[:MOST_HEX].hex(" "),
        "hex_more": max(0, len(value) - MOST_HEX),
    }


def masked(value: bytes | None) -> dict[str, Any] | None:
    """Only the size of a value in bytes; None for one that is absent."""
    return None if value is None else {"bytes": len(value)}


def visible(text: str) -> str:
    """A text in which nothing is hidden and nothing is obeyed. Lines and tabs stay."""
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def _text(part: bytes, *, final: bool) -> tuple[str, bool]:
    """Bytes as a text, and whether they are UTF-8. When they were cut, a character that was cut too is left out."""
    try:
        return visible(_DECODER("strict").decode(part, final)), True
    except UnicodeDecodeError:
        return visible(part.decode("utf-8", "backslashreplace")), False
