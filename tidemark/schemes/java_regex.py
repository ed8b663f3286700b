r"""The groups of a regular expression in Java's syntax, which only Java knows whole: `\p{L}`, `\Q..\E`, `[a-z&&[^b]]`."""

from __future__ import annotations

import re

_PARTS = re.compile(
    r"\\Q.*?(?:\\E|\Z)"  # a text that stands for itself
    r"|\\."
    r"|\(\?<(?P<name>[^=!>][^>]*)>"
    r"|(?P<look>\(\?)"
    r"|(?P<group>\()"
    r"|(?P<close>\))"
    r"|(?P<class>\[\^?\]?)"
    r"|.",
    re.DOTALL,
)
_IN_CLASS = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|(?P<open>\[\^?\]?)|(?P<close>\])|.", re.DOTALL)


def groups_of(regex: str) -> list[str | None]:
    """The groups that capture, in order, by their names; None for one without. Raises ValueError for open brackets."""
    groups: list[str | None] = []
    at = opened = 0
    while part := _PARTS.match(regex, at):
        at = part.end()
        if part["class"]:
            at = _end_of_class(regex, at)
        if part["name"] or part["group"]:
            groups.append(part["name"])
        opened += bool(part["name"] or part["group"] or part["look"]) - bool(part["close"])
        if opened < 0:
            raise ValueError("not a regular expression: a ) closes nothing")
    if opened:
        raise ValueError("not a regular expression: a ( has no end")
    return groups


def _end_of_class(regex: str, at: int) -> int:
    """The place behind a class of characters, which may have others in it."""
    depth = 1
    while part := _IN_CLASS.match(regex, at):
        at = part.end()
        depth += bool(part["open"]) - bool(part["close"])
        if not depth:
            return at
    raise ValueError("not a regular expression: a [ has no end")
