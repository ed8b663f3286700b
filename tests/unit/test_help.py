"""Each command says what it does, with an example that it takes."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any
from unittest import mock

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.support.commands import COMMANDS
from tests.support.covering import REPOSITORY
from tidemark import __version__
from tidemark.cli.app import LOOK, PROVE, REPAIR, REPLAY, RUN, SET_UP, app, main
from tidemark.runs.requests.forms import ReplayRequest


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


@pytest.mark.parametrize("words", [(), ("replay",), ("status",), ("streams", "check"), ("engine", "stop")])
def test_an_option_without_a_value_is_shown_as_it_is_typed(words: tuple[str, ...]) -> None:
    said = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "100"}).stdout
    assert "--help" in said
    assert "<bool>" not in said


def test_options_stand_in_the_sections_of_the_form() -> None:
    said = CliRunner().invoke(app, ["replay", "--help"], env={"COLUMNS": "100"}).stdout
    sections = {
        field.json_schema_extra["section"] for field in ReplayRequest.model_fields.values() if field.json_schema_extra
    }
    assert len(sections) > 2
    assert all(f"\u2500 {section} \u2500" in said for section in sections)


@pytest.mark.slow
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


# The changelog names what is gone.
DOCUMENTS = [*REPOSITORY.glob("docs/**/*.md"), *(REPOSITORY / f"{name}.md" for name in ("README", "CONTRIBUTING"))]
_FENCE, _SPAN = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE), re.compile(r"`([^`]+)`")
_OF_TIDEMARK = re.compile(r"(?:\$ |\./run |docker compose exec \S+ )*tidemark (.*)")


def shown_commands(text: str) -> Iterator[list[str]]:
    """The words behind `tidemark` of each command that a document shows, in a block or within a sentence."""
    blocks = [line for block in _FENCE.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    for line in (*blocks, *_SPAN.findall(_FENCE.sub("", text))):
        if found := _OF_TIDEMARK.fullmatch(" ".join(line.split())):
            yield shlex.split(found[1], comments=True)


def not_there(words: list[str]) -> list[str]:
    """What of a command the command line does not know."""
    names = next((names for names in COMMANDS if tuple(words[: len(names)]) == names), None)
    if names is None:
        groups = {names[0] for names in COMMANDS if len(names) > 1}
        return [] if words[0] in {"...", "--help", *groups} and len(words) == 1 else [" ".join(words)]
    known = {option for parameter in COMMANDS[names].params for option in parameter.opts} | {"--help"}
    return [" ".join([*names, word]) for word in words if word.startswith("--") and word.partition("=")[0] not in known]


def test_the_commands_that_documents_show_are_there() -> None:
    shown = [words for document in DOCUMENTS for words in shown_commands(document.read_text())]
    assert len(shown) > 150
    assert [missing for words in shown for missing in not_there(words)] == []


def test_a_command_that_is_not_there_would_be_noticed() -> None:
    text = "`tidemark ledger close orders`\n\n```sh\n$ tidemark run orders --everything    # all\n./run tidemark ...\n```\n"
    missing = [one for words in shown_commands(text) for one in not_there(words)]
    assert missing == ["run --everything", "ledger close orders"]


def test_an_option_says_the_names_of_other_options_as_they_are_typed() -> None:
    """Its text is that of a field, which names other fields."""
    texts = {option: parameter.help for parameter in COMMANDS[("replay",)].params for option in parameter.opts}
    assert "--if-none has no effect" in texts["--since"]
    assert "since or --until-time" in texts["--dead-letters"]


@pytest.mark.parametrize("name", ["status", "replay", "audit"])
def test_a_command_loads_no_client_that_its_stream_may_not_need(name: str) -> None:
    program = (
        f"import sys; from tidemark.cli.app import main; sys.argv = ['tidemark', '{name}', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'happybase', 'thriftpy2', 'kazoo', 'sqlalchemy', 'pyarrow', 'deltalake', 'pyspark'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_help_of_the_program_imports_no_command() -> None:
    """And says of each what the command says of itself, whose first sentences are read from the source."""
    program = (
        "import sys; from tidemark.cli.app import main; sys.argv = ['tidemark', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'pydantic', 'kafka', 'happybase', 'httpx', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    group: Any = get_command(app)
    context = group.make_context("tidemark", ["status"])
    real = {name: group.get_command(context, name) for name in group.list_commands(context)}
    with mock.patch.object(group, "_listing", new=True):
        for name, command in real.items():
            described = group.get_command(context, name)
            assert (described.name, described.help, described.rich_help_panel) == (
                command.name,
                command.help,
                command.rich_help_panel,
            )
