"""CI's run fails for a file of tests that takes much longer than before, and for no machine that is slow, fast or busy."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

from tests.support.covering import REPOSITORY

KEPT = {"a": 300.0, "b": 200.0, "c": 100.0, "d": 50.0, "short": 12.0}


@pytest.fixture
def summary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("summary", REPOSITORY / ".ci" / "summary.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    monkeypatch.setattr(found, "KEPT", tmp_path / "durations.txt")
    return found


@pytest.mark.parametrize("pace", [0.3, 1.0, 3.0])
def test_a_file_that_has_grown_is_named_on_any_machine(summary: ModuleType, pace: float) -> None:
    found = {name: took * pace for name, took in KEPT.items()}
    assert summary.longer(KEPT, found) == []
    found["b"] = KEPT["b"] * max(pace, 1.0) * 2.0
    (said,) = summary.longer(KEPT, found)
    assert said.startswith(f"b took {found['b']:.0f} s, and 200 s before")


def test_what_chance_does_is_no_growth(summary: ModuleType) -> None:
    # One more than a third, one with the start of the servers, one that is short, one that is new.
    found = {**KEPT, "a": 410.0, "d": 90.0, "short": 50.0, "new": 500.0}
    assert summary.longer(KEPT, found) == []
    # What waits takes as long on a machine on which all else takes a third.
    waiting = {**{name: took / 3 for name, took in KEPT.items()}, "c": 100.0}
    assert summary.longer(KEPT, waiting) == []


def test_the_table_is_kept_and_read_again(summary: ModuleType, tmp_path: Path) -> None:
    cases = "".join(
        f'<testcase classname="{name}" name="{half}" time="{took / 2}"/>'
        for name, took in KEPT.items()
        for half in "xy"
    )
    junit, features = tmp_path / "junit.xml", tmp_path / "features.json"

    def run(cases: str) -> int:
        suite = '<testsuite tests="10" failures="0" errors="0" skipped="0">'
        junit.write_text(f"<testsuites>{suite}{cases}</testsuite></testsuites>")
        rows = summary.SHOWN_BEFORE.read_text().split()
        features.write_text("[" + ",".join(f'{{"id": "{row}", "covered": true}}' for row in rows) + "]")
        return int(summary.main(junit, features))

    assert run(cases) == 0
    assert summary.keep(junit) == 0
    assert summary.durations(ET.parse(junit)) == KEPT
    assert run(cases) == 0
    assert run(cases + '<testcase classname="c" name="z" time="150"/>') == 1
