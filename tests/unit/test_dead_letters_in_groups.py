"""Dead letters in groups: all that count, each once, and named as a replay takes them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.known_streams import OUTCOMES, KnownStream, tables
from tests.support.streams_in_memory import at
from tidemark.runs.redriving import DeadLetters
from tidemark.runs.requests import ReplayRequest, checked
from tidemark.views.dead_letters import dead_letters, selects
from tidemark.views.fates import Fate

__all__ = ["tables"]


@pytest.mark.covers("U8")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(OUTCOMES[:3]), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from(OUTCOMES[:2])), max_size=4),
    st.sampled_from(["", "ingest", "ingest/2", "nowhere/1"]),
    st.sampled_from([None, "bad 0", "good"]),
)
def test_each_dead_letter_that_counts_is_in_one_group(
    contents: list[Fate], again: list[tuple[int, Fate]], window: str, reason: str | None
) -> None:
    """Messages are replayed too, and become another thing: then only the newest window counts."""
    with TemporaryDirectory() as folder:
        world = KnownStream(Path(folder), list(contents))
        world.ends((0, len(contents)))
        while world.ingest() is not None:
            pass
        for number, (offset, outcome) in enumerate(again):
            if offset < len(contents):
                world.log.contents[offset] = outcome
                world.replay(f"again {number}", (offset, offset + 1))
        truth: Counter[tuple[str, str]] = Counter()
        for offset, (lane, seq) in world.read.items():
            name, why = f"{lane}/{seq}", f"bad {offset % 2}"
            asked = window in ("", lane, name) and reason in (None, why)
            if world.log.contents[offset] == Fate.DEAD_LETTER and asked:
                truth[why, name] += 1
        found = dead_letters(world.opened, DeadLetters(reason, window))
        groups = found["groups"]
        assert {(one["reason"], part["window"]): part["number"] for one in groups for part in one["windows"]} == truth
        assert found["counted"] == truth.total() == sum(one["number"] for one in groups)
        assert (found["complete"], found["not_counted"]) == (True, 0)
        assert [one["number"] for one in groups] == sorted((one["number"] for one in groups), reverse=True)
        for one in groups:
            for example in one["examples"]:
                place = int(example.rpartition("@")[2])
                assert (world.log.contents[place], one["reason"]) == (Fate.DEAD_LETTER, f"bad {place % 2}")


@pytest.mark.covers("U8")
def test_the_newest_windows_come_first_when_there_is_no_time_for_all(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.DEAD_LETTER] * 15)
    world.ends((0, 15))
    while world.ingest() is not None:
        pass
    found = dead_letters(world.opened, DeadLetters(), enough=lambda counted: counted >= 7)
    assert (found["complete"], found["counted"]) == (False, 7)
    assert (found["windows"], found["windows_counted"], found["not_counted"]) == (3, 1, 10)
    windows = {part["window"]: part["number"] for one in found["groups"] for part in one["windows"]}
    assert windows.keys() == {"ingest/3", "ingest/2"}


def test_those_that_were_redriven_too_often_are_counted(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.DEAD_LETTER] * 4)
    world.ends((0, 4))
    world.ingest()
    for number in range(world.opened.stream.dead_letters.max_redrives):
        world.replay(f"run {number}", (0, 1), (2, 3))
    found = {
        one["reason"]: (one["number"], one["too_often"]) for one in dead_letters(world.opened, DeadLetters())["groups"]
    }
    assert found == {"bad 0": (2, 2), "bad 1": (2, 0)}
    assert world.opened.book.authority().of(at(0), 0) != world.opened.book.authority().of(at(0), 1)


@pytest.mark.covers("U8")
@pytest.mark.parametrize("reason", ["bad", " spaces around ", "line\nbreak", '"><script>', "x" * 200, "\u202egnp"])
def test_a_replay_takes_what_a_group_names(reason: str) -> None:
    """As Airflow's API gets it: the request has the reason unchanged."""
    assert selects(reason) == reason
    sent = {"dead_letters": reason, "dead_letters_window": "ingest/17", "reason": "a test"}
    assert checked(ReplayRequest, sent, sent).dead_letters == reason


@pytest.mark.parametrize("reason", ["", "   ", "*", "x" * 201, "not utf-8 \ufffd"])
def test_reasons_that_a_request_cannot_name_are_not_offered(reason: str) -> None:
    assert selects(reason) is None
