"""Keys, values and headers of messages as people may look at them: always text, never obeyed, and cut with a note.

Control characters, escape codes and marks that turn the direction of writing are shown by their numbers. Bytes that are no
UTF-8 are shown as backslash codes, and everything is there in hexadecimal too.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from dataclasses import dataclass

# How many bytes of one value are shown as text, and how many in hexadecimal.
MAX_TEXT = 16_384
MAX_HEX = 512

_DECODER = getincrementaldecoder("utf-8")


@dataclass(frozen=True)
class Masked:
    """The size of a value in bytes alone."""

    bytes: int


@dataclass(frozen=True)
class Value:
    """A value as a text, in which nothing is hidden, and in hexadecimal; its size, and how many bytes are not shown."""

    bytes: int
    text: str
    utf8: bool
    more: int
    hex: str
    hex_more: int


def shown(value: bytes, most: int = MAX_TEXT) -> Value:
    """The first bytes of a value as text and in hexadecimal."""
    part = value[:most]
    text, utf8 = _text(part, final=len(part) == len(value))
    hex_more = max(0, len(value) - MAX_HEX)
    return Value(len(value), text, utf8, len(value) - len(part), value[:MAX_HEX].hex(" "), hex_more)


def masked(value: bytes) -> Masked:
    return Masked(len(value))


def visible(text: str) -> str:
    """A text in which nothing is hidden and nothing is obeyed. Lines and tabs stay."""
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def _text(part: bytes, *, final: bool) -> tuple[str, bool]:
    """Bytes as a text, and whether they are UTF-8. When they were cut, a character that was cut too is left out."""
    try:
        return visible(_DECODER("strict").decode(part, final)), True
    except UnicodeDecodeError:
        return visible(part.decode("utf-8", "backslashreplace")), False
