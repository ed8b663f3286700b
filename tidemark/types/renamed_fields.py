"""Fields that got another name: what was stored under an older one is read under today's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

V = TypeVar("V")

# The older names of fields, by today's.
Names = Mapping[str, Sequence[str]]
NEVER: Names = {}


def by_today(was: Names, stored: dict[str, V]) -> dict[str, V]:
    """The fields of one row by today's names; what has today's name already stays."""
    if not was:
        return stored
    today = {old: name for name, names in was.items() for old in names if name not in stored}
    return {today.get(name, name): value for name, value in stored.items()}


def both(one: Names, other: Names) -> dict[str, tuple[str, ...]]:
    """The older names that either of two says, with those that these had before."""
    names_of = {name: tuple(dict.fromkeys((*one.get(name, ()), *other.get(name, ())))) for name in {**one, **other}}
    for name in names_of:
        at = 0
        while at < len(names := names_of[name]):
            names_of[name] = tuple(dict.fromkeys((*names, *names_of.get(names[at], ()))))
            at += 1
    return names_of


def same_names(was: Names, before: Sequence[str], now: Sequence[str]) -> bool:
    """Whether fields are those of before, in their order, some of which may have other names now."""
    return len(before) == len(now) and all(
        old == name or old in was.get(name, ()) for old, name in zip(before, now, strict=True)
    )
