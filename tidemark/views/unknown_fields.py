"""Keys of messages that the stream file does not name: how many messages of some windows had any, and which keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidemark.ledger.records import Record, UnknownFields
from tidemark.offsets.counting import number_of

# A line has this many names, with this many characters of each.
_MAX, _CHARACTERS = 5, 30


def unknown_in(records: Iterable[Record]) -> UnknownFields | None:
    """Of all of some windows together; None for none. A key that is not among the most frequent of a window lacks its times."""
    messages, names = 0, Counter[str]()
    for one in records:
        unknown = one.receipt.unknown if one.receipt is not None else None
        if unknown is not None:
            messages += unknown.messages
            names.update(dict(unknown.names))
    return UnknownFields.of(messages, names)


def sentence(unknown: UnknownFields | None) -> str | None:
    """As `3 messages have keys that the stream does not name: a (2), "b c" (1)`."""
    if unknown is None:
        return None
    named = [f"{_shown(name)} ({times})" for name, times in unknown.names[:_MAX]]
    more = [f"{len(unknown.names) - _MAX} more"] if len(unknown.names) > _MAX else []
    have = number_of(unknown.messages, "message", "has", "have")
    return f"{have} keys that the stream does not name: {', '.join([*named, *more])}"


def _shown(name: str) -> str:
    """A key that a producer has written, as one word on one line."""
    cut = name if len(name) <= _CHARACTERS else f"{name[:_CHARACTERS]}…"
    return name if name == cut and name.isidentifier() else repr(cut)
