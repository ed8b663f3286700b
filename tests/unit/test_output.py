"""What other people write, as the command line prints it: text, never codes of a terminal or markup."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def _in_a_table(text: Any) -> None:
    output.data(None, as_json=False, rows=[[text]], columns=["text"])
