"""CI's summary names the files of tests that took the longest, and keeps their times for the order of the next runs."""

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


def test_the_table_is_kept_and_read_again(
    summary: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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

    # A slow or busy machine fails no run.
    assert run(cases) == 0
    assert "longest: a 300 s, b 200 s, c 100 s" in capsys.readouterr().out
    assert summary.keep(junit) == 0
    assert summary.durations(ET.parse(junit)) == KEPT
    assert summary.KEPT.read_text().splitlines()[:2] == [" 300.0 a", " 200.0 b"]
