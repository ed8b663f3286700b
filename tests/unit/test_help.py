"""Each command says what it does, with an example that it takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from tidemark.cli.app import app


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


COMMANDS = dict(commands(get_command(app)))


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_its_help_has_an_example_that_it_takes(names: tuple[str, ...]) -> None:
    command = COMMANDS[names]
    _, _, example = command.help.partition("Example: tidemark ")
    words = shlex.split(example)
    assert tuple(words[: len(names)]) == names
    # Raises what the command line would say of options that it does not know.
    command.make_context(" ".join(names), words[len(names) :])
    assert all(parameter.help for parameter in command.params)
