"""The commands of the command line, by their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from tidemark.cli.app import app


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


COMMANDS = dict(commands(get_command(app)))
