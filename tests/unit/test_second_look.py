"""Which failed tests are run once more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.covering import REPOSITORY
from tests.support.second_look import PROTOCOL

ANY = "tests/integration/test_it.py"
ONCE = """
from tests.support.waiting import TooLate, until
runs = []
def test_it():
    runs.append(1)
    if len(runs) == 1:
        {fails}
"""


def run(folder: Path, file: str, fails: str) -> tuple[int, str]:
    path = folder / file
    path.parent.mkdir(parents=True)
    path.write_text(ONCE.format(fails=fails))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.second_look", "-p", "no:cacheprovider", file]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_what_fails_once_on_servers_passes_and_is_printed_whole(tmp_path: Path) -> None:
    code, said = run(tmp_path, ANY, "assert 'stored' == 'lost'")
    assert code == 0
    assert "1 passed, 1 rerun" in said
    assert "AssertionError: assert 'stored' == 'lost'" in said
    assert f"FAILED FIRST {ANY}::test_it" in said


@pytest.mark.parametrize(
    ("file", "fails"),
    [
        (ANY, "runs.clear(); assert 1 == 2"),
        (PROTOCOL[0], "assert 1 == 2"),
        ("tests/unit/test_it.py", "assert 1 == 2"),
    ],
    ids=["twice", "of the protocol", "without servers"],
)
def test_these_failures_are_final(tmp_path: Path, file: str, fails: str) -> None:
    code, said = run(tmp_path, file, fails)
    assert (code, "1 failed" in said, "passed" in said) == (1, True, False)


@pytest.mark.parametrize(
    "fails",
    [
        "until(lambda: False, 'nothing came', seconds=0)",
        "import subprocess; subprocess.run(['/bin/sleep', '9'], timeout=0.01)",
        "from playwright.sync_api import TimeoutError; raise TimeoutError('30000 ms exceeded')",
    ],
    ids=["until", "a process", "the browser"],
)
@pytest.mark.parametrize("file", [PROTOCOL[-1], "tests/unit/test_it.py"], ids=["of the protocol", "without servers"])
def test_a_deadline_is_waited_for_again_in_every_test(tmp_path: Path, fails: str, file: str) -> None:
    code, said = run(tmp_path, file, fails)
    assert code == 0, said
    assert "1 passed, 1 rerun" in said


def test_the_files_of_the_protocol_are_there() -> None:
    assert [file for file in PROTOCOL if not (REPOSITORY / file).is_file()] == []
