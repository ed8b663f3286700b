"""Which failed tests are run once more. One run of pytest has a test for each case."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from tests.support.covering import REPOSITORY
from tests.support.second_look import FAILED_FIRST, PROTOCOL

ON_SERVERS = "tests/integration/test_it.py"
WITHOUT = "tests/unit/test_that.py"
SHARES = "tests/unit/test_a_thread.py"
SIMULATION = "tests/unit/test_simulation.py"
IMPORTS = "import threading\n"
TEST = """
def test_{name}(runs=[]):
    from tests.support.waiting import TooLate, until
    runs.append(1)
    if len(runs) == 1:
        {fails}
"""
UNTIL = "until(lambda: False, 'nothing came', seconds=0)"
PROCESS = "import subprocess; subprocess.run(['/bin/sleep', '9'], timeout=0.01)"
BROWSER = "from playwright.sync_api import TimeoutError; raise TimeoutError('30000 ms exceeded')"
AGAIN = ["RERUN", "PASSED"]


class Case(NamedTuple):
    file: str
    fails: str
    ends: list[str]


CASES = {
    "once_on_servers": Case(ON_SERVERS, "assert 'stored' == 'lost'", AGAIN),
    "twice_on_servers": Case(ON_SERVERS, "runs.clear(); assert 1 == 2", ["RERUN", "FAILED"]),
    "of_the_protocol": Case(PROTOCOL[0], "assert 1 == 2", ["FAILED"]),
    "without_servers": Case(WITHOUT, "assert 1 == 2", ["FAILED"]),
    "of_a_thread": Case(SHARES, "assert 1 == 2", AGAIN),
    "of_the_simulation": Case(SIMULATION, "assert 1 == 2", ["FAILED"]),
    "until_of_the_protocol": Case(PROTOCOL[-1], UNTIL, AGAIN),
    "a_process_of_the_protocol": Case(PROTOCOL[-1], PROCESS, AGAIN),
    "the_browser_of_the_protocol": Case(PROTOCOL[-1], BROWSER, AGAIN),
    "until_without_servers": Case(WITHOUT, UNTIL, AGAIN),
    "a_process_without_servers": Case(WITHOUT, PROCESS, AGAIN),
    "the_browser_without_servers": Case(WITHOUT, BROWSER, AGAIN),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("second-look"), "-v")


def run(folder: Path, *options: str) -> str:
    """What pytest says of the cases."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, case in CASES.items():
        path = folder / case.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(
                (IMPORTS if case.file in (SHARES, SIMULATION) else "") + TEST.format(name=name, fails=case.fails)
            )
    plugins = ("-p", "tests.support.second_look", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, *options, "tests"]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_run_again(said: str, name: str) -> None:
    case = CASES[name]
    assert re.findall(rf"^{case.file}::test_{name} (\w+)", said, re.MULTILINE) == case.ends


def test_a_first_failure_is_printed_whole(said: str) -> None:
    assert "AssertionError: assert 'stored' == 'lost'" in said.partition("failed first")[2]
    assert f"FAILED FIRST {ON_SERVERS}::test_once_on_servers" in said


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_report_has_the_seconds_of_first_failures_apart(tmp_path: Path, processes: str) -> None:
    """So a file is not held to be slow because one of its tests waited for something that came too late."""
    run(tmp_path, "-n", processes, "--junitxml=report.xml")
    lost = [
        (case.get("name", "").removeprefix("test_"), float(of_case.get("value", 0)))
        for case in ET.parse(tmp_path / "report.xml").iter("testcase")
        for of_case in case.iterfind(f"properties/property[@name='{FAILED_FIRST}']")
    ]
    assert sorted(name for name, _ in lost) == sorted(name for name, case in CASES.items() if "RERUN" in case.ends)
    assert all(seconds > 0 for _, seconds in lost)


def test_the_files_of_the_protocol_are_there() -> None:
    assert [file for file in PROTOCOL if not (REPOSITORY / file).is_file()] == []


def test_processes_count_failures_without_waiting_for_each_other(pytestconfig: pytest.Config) -> None:
    if not hasattr(pytestconfig, "workerinput"):
        pytest.skip("one process sends nothing")
    counting = pytestconfig.failures_db.sock  # type: ignore[attr-defined]
    assert counting.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
