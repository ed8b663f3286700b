"""Commands whose help shows no type for an option that takes no value: `--dry-run`, and not `--dry-run <bool>`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup


class CommandOfFlags(TyperCommand):
    """A command, whose help says what is to be typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class GroupOfFlags(TyperGroup):
    """A group of commands, whose help says what is to be typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(params: Iterable[Any]) -> list[Any]:
    found = list(params)
    for param in found:
        if getattr(param, "is_flag", False):
            param.display_type_rich = _no_type
    return found


def _no_type(*_: object, **__: object) -> None:
    """What typer shows of a flag's value: it has none."""
