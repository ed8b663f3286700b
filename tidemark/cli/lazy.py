"""Groups of commands, whose modules are imported when a command is used. Their help is read from the source until then."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

from tidemark.cli.flags import CommandOfFlags, GroupOfFlags

_MODULES = "tidemark.cli.commands"


@dataclass(frozen=True, eq=False)
class CommandGroup:
    """Commands in the order of `--help`, each as `module:function` of tidemark.cli.commands, or a group with its name.

    `panels`: by the heading that they have in the help; an empty one is the usual heading.
    """

    help: str
    panels: Mapping[str, tuple[str | tuple[str, CommandGroup], ...]]


def made(group: CommandGroup) -> typer.Typer:
    """The program of a group."""
    known = {
        one[0] if isinstance(one, tuple) else _name(one): (panel, one)
        for panel, commands in group.panels.items()
        for one in commands
    }

    class _Commands(GroupOfFlags):
        """The group, for click."""

        _listing = False

        def list_commands(self, ctx: Any) -> list[str]:
            return list(known)

        def get_command(self, ctx: Any, name: str) -> Any:
            if name not in known:
                return None
            panel, one = known[name]
            return (_described if self._listing else _imported)(name, panel, one)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            self._listing = True
            try:
                super().format_help(ctx, formatter)
            finally:
                self._listing = False

    return typer.Typer(cls=_Commands, help=group.help, no_args_is_help=True, pretty_exceptions_enable=False)


def _name(where: str) -> str:
    return where.partition(":")[2].rstrip("_").replace("_", "-")


@cache
def _imported(name: str, panel: str, one: str | tuple[str, CommandGroup]) -> Any:
    """The command itself, of its module."""
    if isinstance(one, tuple):
        return _group(name, panel, one[1])
    module, _, function = one.partition(":")
    found = getattr(import_module(f"{_MODULES}.{module}"), function)
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=CommandOfFlags, help=_paragraphs(found.__doc__), rich_help_panel=panel or None)(found)
    return get_command(alone)


def _described(name: str, panel: str, one: str | tuple[str, CommandGroup]) -> Any:
    """What the help of its group says of a command."""
    if isinstance(one, tuple):
        return _group(name, panel, one[1])
    module, _, function = one.partition(":")
    tree = _tree(module)
    (found,) = (part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == function)
    said = ast.get_docstring(found) or ""
    return TyperCommand(name, callback=None, help=_paragraphs(said), rich_help_panel=panel or None)


def _group(name: str, panel: str, group: CommandGroup) -> Any:
    found: Any = get_group(made(group))
    found.name, found.rich_help_panel = name, panel or None
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(resources.files(_MODULES).joinpath(f"{module}.py").read_text(encoding="utf-8"))


def _paragraphs(text: str) -> str:
    """A docstring whose paragraphs are lines: a terminal breaks them where it is full, and not where the source does."""
    return "\n\n".join(" ".join(one.split()) for one in cleandoc(text).split("\n\n"))
