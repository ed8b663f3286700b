"""What replaces, removes or moves something shows it and asks: with `--yes` not, and with `--dry-run` it only shows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.support.claiming import claim_lane
from tests.support.commands import COMMANDS
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tests.support.terminal import CTRL_C, typed
from tidemark.audit.report import AuditReport
from tidemark.cli import confirmation, lanes_of_runs, stream_lookup
from tidemark.cli.app import app, main
from tidemark.cli.commands import audit as audit_command
from tidemark.cli.commands import compact as compact_command
from tidemark.cli.commands import engine as engine_command
from tidemark.errors import Conflict, NotConfirmed
from tidemark.ledger.records import LaneKind
from tidemark.ledger.register import MAX_CLOCK_DIFFERENCE_MS
from tidemark.runs import erasing
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.contract import Replaceable, Replacement

# Commands that write nothing that others read.
ONLY_SHOW = {
    *("status", "messages", "results", "show", "window", "dead-letters", "complete", "plan", "offsets", "report"),
    *("streams check", "streams try", "streams schema", "engine status"),
    *("ledger show", "ledger coverage", "ledger verify", "ledger events"),
}
# Commands that add something, or let something wait, and take nothing away.
ADD = {"run", "pause", "resume", "init", "engine start"}
CHANGE = {" ".join(names) for names in COMMANDS} - ONLY_SHOW - ADD
# What makes a command change something that else only shows or adds.
OPTIONS = {
    "audit": "--repair execute",
    "engine stop": "--now",
    "ledger clock": "--accept --reason test",
    "ledger backup": "--final --reason test",
}


def options(name: str) -> set[str]:
    return {option for parameter in COMMANDS[tuple(name.split())].params for option in parameter.opts}


def example(name: str) -> list[str]:
    """The example of a command's help, as something that changes."""
    _, _, words = COMMANDS[tuple(name.split())].help.partition("Example: tidemark ")
    return [*shlex.split(words), *shlex.split(OPTIONS.get(name, ""))]


@pytest.mark.covers("N61")
def test_each_command_only_shows_or_can_be_told_to_act_and_to_only_show() -> None:
    """A new command stands in one of the two lists above, or takes both options."""
    assert {" ".join(names) for names in COMMANDS} >= ONLY_SHOW | ADD | OPTIONS.keys()
    assert {name for name in CHANGE if not {"--yes", "--dry-run"} <= options(name)} == set()
    assert {name for name in ONLY_SHOW | ADD if "--yes" in options(name)} == set()
    assert {name for name in CHANGE | ONLY_SHOW | ADD if "--write" in options(name)} == set()


@pytest.mark.covers("N61")
@pytest.mark.parametrize("name", sorted(CHANGE))
def test_without_a_terminal_and_without_a_word_nothing_is_even_looked_at(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(stream_lookup, "opened", looked.append)
    done = CliRunner().invoke(app, example(name), input="y\n")
    assert isinstance(done.exception, NotConfirmed)
    assert done.exception.exit_code == 2
    assert "--yes" in str(done.exception)
    assert "--dry-run" in str(done.exception)
    assert looked == []


@pytest.mark.covers("N61")
@pytest.mark.parametrize("name", ["audit", "ledger clock", "ledger backup"])
def test_a_command_whose_options_change_nothing_does_not_ask(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(stream_lookup, "opened", looked.append)
    done = CliRunner().invoke(app, example(name)[: -len(OPTIONS[name].split())])
    assert looked == ["orders"]
    assert not isinstance(done.exception, NotConfirmed)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """The ingest has read [0, 50) of 60, and a replay has pinned its first window. No command starts a job."""
    stream = StreamInMemory(tmp_path, text=TEXT.replace("scheme:", "limits: {max_records: 20}\nscheme:", 1))
    stream.ends((0, 50))
    while stream.ingest("run 1"):
        pass
    stream.ends((0, 60))
    lane = claim_lane(stream.opened, LaneKind.REPLAY, "mine", offsets((0, 0, 10)), "bug 17")
    assert lanes.plan_lane(stream.opened, lane, "mine") is not None
    monkeypatch.setattr(stream_lookup, "opened", lambda _: stream.opened)
    monkeypatch.setattr(erasing, "remaining", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lanes_of_runs, "process", lambda *_, **__: None)
    monkeypatch.setattr(erasing, "erase", lambda *_, **__: None)
    return stream


ACTS = [
    ("replay orders --records orders/0@15 --reason test", "Read 1 offset again, and replace what 1 sink has of them?"),
    (
        "backfill orders --ranges orders/0@15-18 --mode reprocess --reason test",
        "Read 3 offsets again, and replace what 1 sink has of them?",
    ),
    (
        "erase orders --records orders/0@15 --records orders/0@17 --reason test",
        "Erase 2 messages from 1 sink and the dead letters, for good?",
    ),
    ("cancel orders mine --reason test", "Cancel orders/LANE, with 10 offsets not read?"),
    ("ledger abandon orders LANE --reason test", "Give up window 1 of orders/LANE, which may be at work?"),
    ("ledger skip orders --to latest --reason test", "Skip 10 offsets of orders?"),
    ("ledger export orders --to csv:out.csv --group g", "Write these offsets to csv:out.csv, in place of what group g"),
    ("ledger backup orders out --final --reason test", "End the use of this ledger of orders for good?"),
    ("ledger rebuild orders out", "Write what is left of the ledger of orders to out?"),
]


def words_of(made: StreamInMemory, text: str) -> str:
    return text.replace("LANE", lanes.lane_name(LaneKind.REPLAY, "mine"))


def called(text: str, *more: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, [*shlex.split(text), *more], input=answer)


def state(made: StreamInMemory) -> tuple[dict[Any, bytes], list[str]]:
    return dict(made.store.values), sorted(path.name for path in made.folder.iterdir())


@pytest.mark.slow
@pytest.mark.covers("N61")
@pytest.mark.parametrize(("text", "question"), ACTS, ids=[text.partition(" orders")[0] for text, _ in ACTS])
def test_it_asks_and_changes_nothing_until_somebody_agrees(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch, text: str, question: str
) -> None:
    text, question = words_of(made, text), words_of(made, question)
    before = state(made)
    for more in ([], ["--yes"]):
        shown = called(text, "--dry-run", *more)
        assert (shown.exit_code, shown.exception) == (0, None)
        assert "changed" in shown.stderr or "dry run" in shown.stderr
        assert state(made) == before

    monkeypatch.setattr(confirmation, "at_terminal", lambda: True)
    # The end of the input, Return, a no.
    for answer in ("", "\n", "n\n"):
        refused = called(text, answer=answer)
        assert refused.exit_code == 2, refused.stderr
        assert question in refused.stderr
        assert refused.stderr.endswith("Nothing was changed.\n")
        assert state(made) == before
    done = called(text, answer="y\n")
    assert (done.exit_code, done.exception) == (0, None)
    assert question in done.stderr
    assert state(made) != before


Ready = Callable[[StreamInMemory, pytest.MonkeyPatch], None]


def _as_it_is(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None: ...


def _emptied(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is lost, and a backup and the exported offsets are there."""
    assert called("ledger backup orders backup").exit_code == 0
    assert called("ledger export orders --to csv:offsets.csv --group g", "--yes").exit_code == 0
    made.store.values.clear()


def _far_ahead(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong clock has drawn the last generation."""
    now, made.now = made.now, made.now + 2 * MAX_CLOCK_DIFFERENCE_MS
    assert made.ingest("run 2") is not None
    made.now = now


def _folders(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink has two folders to merge, and the job leaves a file."""
    compaction = SimpleNamespace(
        planned=lambda *_: [Replaceable(["ingest/1-2"], 2, 2, 100)],
        at_work=lambda *_: None,
        made=lambda *_: [Replacement(["ingest/1-2"], 40, "merged")],
    )
    monkeypatch.setattr(compact_command, "sink_to_compact", lambda *_: SimpleNamespace(name="files", type="parquet"))
    monkeypatch.setattr(compact_command, "kind_of", lambda _: SimpleNamespace(make_compaction=lambda: compaction))
    monkeypatch.setattr(compact_command, "submit", lambda *_, **__: (made.folder / "merged").touch())


def _damaged(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit misses a row, and the one after the repair does not."""
    missing = made.opened.ledger.store_selection(offsets((0, 15, 16)))
    reports = iter(
        AuditReport(
            stream="orders", run=run, at=1, code_version="1", coverage=(), ledger_problems=(), places=(), findings=found
        )
        for run, found in (("first", missing), ("again", None))
    )
    monkeypatch.setattr(audit_command, "audited", lambda *_, **__: next(reports))


def _at_work(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm engine is at work on two runs. It leaves a file when it is told to end."""

    def ask(path: Path, what: str, **_: bool) -> dict[str, Any]:
        if what == "stop":
            (made.folder / "ended").touch()
        return {"at_work": [{"pid": 1, "command": ["process"]}] * 2}

    monkeypatch.setattr(engine_command, "sockets", lambda: [made.folder / "spark_default-1"])
    monkeypatch.setattr(engine_command, "ask", ask)
    monkeypatch.setattr(engine_command, "_wait", lambda _: None)


AT_A_TERMINAL: list[tuple[str, str, Ready]] = [
    *((text, question, _as_it_is) for text, question in ACTS),
    ("ledger restore orders backup", "Write this into the empty ledger of orders?", _emptied),
    ("ledger import orders --from csv:offsets.csv --group g", "Begin orders there?", _emptied),
    (
        "ledger clock orders --accept --reason test",
        "Let runs of orders count on from its last generation?",
        _far_ahead,
    ),
    ("compact orders", "Merge 2 folders into 1, and remove them once nobody reads them?", _folders),
    ("audit orders --repair execute", "Replay 1 offset to repair what was found?", _damaged),
    ("engine stop --now", "End 1 engine and 2 runs at work?", _at_work),
]


# A Python with threads warns of every fork. The copy does nothing but the command.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.covers("N61")
@pytest.mark.parametrize(
    ("keys", "code", "said"),
    [
        pytest.param("y\n", 0, "", id="yes"),
        pytest.param("n\n", 2, "Nothing was changed.", id="no"),
        pytest.param(CTRL_C, 130, "interrupted by SIGINT", id="Ctrl-C"),
    ],
)
@pytest.mark.parametrize(
    ("text", "question", "ready"),
    AT_A_TERMINAL,
    ids=[text.partition(" orders")[0] for text, _, _ in AT_A_TERMINAL],
)
def test_a_person_at_a_terminal_answers(
    made: StreamInMemory,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    question: str,
    ready: Ready,
    keys: str,
    code: int,
    said: str,
) -> None:
    """The program itself, at a real terminal. Ctrl-C at the question changes as little as a no."""
    ready(made, monkeypatch)
    before = state(made)
    monkeypatch.setattr(sys, "argv", ["tidemark", *shlex.split(words_of(made, text))])

    def command() -> None:
        try:
            main()
        finally:
            print("CHANGED" if state(made) != before else "AS BEFORE")

    ended, shown = typed(command, words_of(made, question)[:40], keys)
    assert ended == code, shown
    assert said in shown
    assert ("CHANGED" if code == 0 else "AS BEFORE") in shown


@pytest.mark.covers("N61")
@pytest.mark.parametrize("text", [text for text, _ in ACTS], ids=[text.partition(" orders")[0] for text, _ in ACTS])
def test_yes_acts_without_a_terminal_and_asks_nothing(made: StreamInMemory, text: str) -> None:
    before = state(made)
    done = called(words_of(made, text), "--yes")
    assert (done.exit_code, done.exception) == (0, None)
    assert "[y/N]" not in done.output
    assert state(made) != before


@pytest.mark.covers("N61")
@pytest.mark.parametrize(
    "text", ["ledger restore orders backup", "ledger import orders --from csv:offsets.csv --group g"]
)
def test_what_fills_an_empty_ledger_asks_too(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    _emptied(made, monkeypatch)
    assert called(text, "--dry-run").exit_code == 0
    assert made.store.values == {}
    monkeypatch.setattr(confirmation, "at_terminal", lambda: True)
    assert called(text, answer="n\n").exit_code == 2
    assert made.store.values == {}
    assert called(text, answer="y\n").exit_code == 0
    assert [one.offset for one in made.opened.ledger.head("ingest").head.positions] == [50]


@pytest.mark.covers("N61")
def test_what_was_shown_is_skipped_although_the_end_has_moved(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has agreed to ten offsets, and more came while the question stood."""
    monkeypatch.setattr(confirmation, "at_terminal", lambda: True)

    def agree(*_: Any, **__: Any) -> bool:
        made.ends((0, 90))
        return True

    monkeypatch.setattr("typer.confirm", agree)
    done = called("ledger skip orders --to latest --reason test")
    assert done.exit_code == 0
    head = made.opened.ledger.head("ingest")
    assert head is not None
    assert [one.offset for one in head.head.positions] == [60]


@pytest.mark.covers("N61")
def test_only_the_window_that_was_shown_is_given_up(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the question stood, the window was committed, and the next run has pinned another."""
    assert ingest.plan_ingest(made.opened, "run 2") is not None
    monkeypatch.setattr(confirmation, "at_terminal", lambda: True)

    def agree(*_: Any, **__: Any) -> bool:
        made.process("ingest", "run 2")
        made.ends((0, 70))
        assert ingest.plan_ingest(made.opened, "run 3") is not None
        return True

    monkeypatch.setattr("typer.confirm", agree)
    refused = called("ledger abandon orders ingest --reason test")
    assert isinstance(refused.exception, Conflict)
    assert "no longer pending" in str(refused.exception)
    head = made.opened.ledger.head("ingest")
    assert head is not None
    assert head.head.pending is not None
    assert head.head.pending.window.run == "run 3"


@pytest.mark.covers("N61")
def test_a_run_that_goes_on_is_asked_for_too(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces or removes as much as when it began."""
    monkeypatch.setattr(confirmation, "at_terminal", lambda: True)
    assert called("replay orders --records orders/0@15 --reason test --run r", "--yes").exit_code == 0
    before = state(made)
    refused = called("replay orders --run r", answer="n\n")
    assert (refused.exit_code, "Go on with the replay that run r has begun?" in refused.stderr) == (2, True)
    assert state(made) == before
    assert called("replay orders --run r", answer="y\n").exit_code == 0
