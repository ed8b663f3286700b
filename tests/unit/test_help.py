"""Each command says what it does, with an example that it takes."""

from __future__ import annotations

import io
import shlex
from contextlib import redirect_stdout

import pytest
from typer.testing import CliRunner

from tests.support.commands import COMMANDS
from tidemark import __version__
from tidemark.cli.app import LOOK, PROVE, REPAIR, REPLAY, RUN, SET_UP, app, main


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_its_help_has_an_example_that_it_takes(names: tuple[str, ...]) -> None:
    command = COMMANDS[names]
    _, _, example = command.help.partition("Example: tidemark ")
    words = shlex.split(example)
    assert tuple(words[: len(names)]) == names
    # Raises what the command line would say of options that it does not know.
    command.make_context(" ".join(names), words[len(names) :])
    assert all(parameter.help for parameter in command.params)


def test_the_version_is_shown_without_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CODE_VERSION", "abc")
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"{__version__}+abc\n")


def test_a_line_of_the_help_ends_where_it_is_full_and_the_usage_is_what_was_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not where a line of the source ends: that would leave a line of two words."""
    for names, command in COMMANDS.items():
        assert all("\n" not in paragraph for paragraph in command.help.split("\n\n")), names
    monkeypatch.setenv("TIDEMARK_CALLED_AS", "./run tidemark")
    monkeypatch.setattr("sys.argv", ["tidemark", "status", "--help"])
    with pytest.raises(SystemExit), redirect_stdout(io.StringIO()) as said:
        main()
    assert "Usage: ./run tidemark status [OPTIONS] [stream]" in said.getvalue()


def test_commands_stand_in_groups_by_what_a_person_wants_and_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    for words in ([], *([*names] for names in COMMANDS)):
        done = CliRunner().invoke(app, [*words, "--help"])
        assert done.exit_code == 0, words
        assert max(map(len, done.stdout.splitlines())) <= 80, words
        # The name of an option that is cut cannot be typed.
        assert "…" not in done.stdout, words
    top = CliRunner().invoke(app, ["--help"]).stdout
    assert [top.index(f"─ {group} ─") > 0 for group in (LOOK, RUN, REPLAY, PROVE, SET_UP, REPAIR)] == [True] * 6
