"""What other people write, as the command line prints it: text, never codes of a terminal or markup."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.terminal import typed
from tidemark.cli import output
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.views.browsing.exports import exported
from tidemark.views.browsing.items import Item

CLEAR_SCREEN, RED, TITLE, MIRROR = "\x1b[2J", "\x1b[31m", "\x1b]0;mine\x07", "\u202e"
HOSTILE = st.one_of(
    st.text(),
    st.lists(st.sampled_from([CLEAR_SCREEN, RED, TITLE, MIRROR, "\r", "\n", "\x9b31m", "[bold]", "a"])).map("".join),
)
FAST = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return "".join(capsys.readouterr())


@pytest.mark.covers("Q14")
@FAST
@given(text=HOSTILE)
def test_a_file_of_payloads_is_no_code_on_a_terminal_and_whole_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    item = Item(Coordinate(TopicPartition("t", 0), 1), key=text.encode("utf-8", "replace"))
    for form in ("csv", "jsonl"):
        whole = exported([item], form)  # type: ignore[arg-type]
        output.contents(whole)
        assert printed(capsys) == whole
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        output.contents(whole)
        monkeypatch.undo()
        said = printed(capsys)
        assert all(one.isprintable() or one == "\n" for one in said)
        assert said.count("\n") == whole.count("\n")


@pytest.mark.covers("Q14")
@FAST
@given(text=HOSTILE)
def test_nothing_that_is_printed_is_a_code(capsys: pytest.CaptureFixture[str], text: str) -> None:
    for show in (output.line, output.error, _in_a_table):
        show(text)
        said = printed(capsys)
        assert all(one.isprintable() or one == "\n" for one in said)
    output.data({"text": text}, as_json=True)
    said = printed(capsys)
    assert said.isascii()
    assert json.loads(said) == {"text": text}


@pytest.mark.covers("Q14")
def test_what_looks_like_markup_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    written = f"[red]{RED}[link=https://evil.example]{MIRROR}\r\n:skull:"
    for show in (output.line, _in_a_table):
        show(written)
        assert "[red]\\x1b[31m[link=https://evil.example]\\u202e\\r\\n:skull:" in printed(capsys)


AT, RUN = "cdn-logs-normalised-for-europe/12@1234567-1234569", "scheduled__2026-11-28T10:00:00+00:00"
WHY = "because of a bug in the third field, which nobody had seen"


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None], width: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    _, said = typed(work, "nothing", "")
    return re.sub(r"\x1b\[\d*m", "", said).splitlines()


@pytest.mark.covers("N115")
@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_what_people_copy_is_whole_in_a_table_and_sentences_wrap_at_words(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    columns = ["window", "ranges", "run", "dead letters", "reason"]
    rows: list[list[object]] = [["ingest/12", AT, RUN, 12, WHY], ["ingest/13", "t/0@1-2", None, 3, ""]]
    lines = at_a_terminal(monkeypatch, lambda: output.data(rows, as_json=False, rows=rows, columns=columns), width)
    assert all(sum(whole in line for line in lines) == 1 for whole in ("ingest/12", AT, RUN))
    assert "…" not in "".join(lines)
    assert [one for one in " ".join(lines).split() if one in WHY.split()] == WHY.split()
    # Numbers stand under one another to their last digit.
    ends = [re.search(rf" {one}  ", line) for one in (12, 3) for line in lines]
    assert len({found.end() for found in ends if found}) == 1
    # It is as wide as the terminal where that is wide enough.
    assert max(len(line.rstrip()) for line in lines) <= max(width, 2 * 5 + len("ingest/12" + AT + RUN + "letters") + 20)


@pytest.mark.covers("N115")
def test_an_error_wraps_at_words_and_divides_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"tidemark: WrongUse: {AT} was never in the topic; what else there is, is listed by tidemark windows"
    lines = at_a_terminal(monkeypatch, lambda: output.error(said), 40)
    assert " ".join(lines) == said
    assert all(len(line) <= 40 or line == AT for line in lines)


@pytest.mark.covers("N115")
def test_a_pipe_has_no_width(capsys: pytest.CaptureFixture[str]) -> None:
    output.error(WHY * 20)
    output.data(None, as_json=False, rows=[[WHY * 20, 1]], columns=["why", "dead letters"])
    out, err = capsys.readouterr()
    assert err == f"{WHY * 20}\n"
    assert [line.split("  ")[0].rstrip() for line in out.splitlines()] == ["why", WHY * 20]
    assert out.splitlines()[0].endswith("dead letters")


def _in_a_table(text: Any) -> None:
    output.data(None, as_json=False, rows=[[text]], columns=["text"])
