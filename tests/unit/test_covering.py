"""What counts as a promise that the tests have shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.covering import REPOSITORY, promises

FIRST, SECOND = list(promises())[:2]


def run(folder: Path, tests: str, *options: str) -> tuple[int, str, set[str]]:
    """Run tests with the table of promises only; gives the exit code, what was printed, and the covered rows."""
    (folder / "test_it.py").write_text(f"import pytest\n{tests}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = covers\n")
    table = folder / "table.json"
    plugin = folder / "small_table.py"
    plugin.write_text(
        f"from pathlib import Path\nfrom tests.support import covering\ncovering.TABLE = Path({str(table)!r})\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.covering", "-p", "small_table", "-q", *options]
    # Without other plugins it begins in half the time.
    environment = {"PYTHONPATH": f"{REPOSITORY}:{folder}", "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)
    covered = {row["id"] for row in json.loads(table.read_text()) if row["covered"]} if table.exists() else set()
    return done.returncode, done.stdout + done.stderr, covered


@pytest.mark.slow
def test_a_row_counts_when_a_whole_test_has_passed_and_none_has_failed(tmp_path: Path) -> None:
    tests = f"""
@pytest.mark.covers("{FIRST}", "{SECOND}")
def test_shows(): pass

@pytest.mark.covers("{SECOND}")
def test_fails(): assert False
"""
    code, _, covered = run(tmp_path, tests)
    assert (code, covered) == (1, {FIRST})


@pytest.mark.slow
def test_a_row_does_not_count_while_parameters_that_claim_it_are_left_out(tmp_path: Path) -> None:
    tests = f"""
@pytest.mark.covers("{FIRST}")
@pytest.mark.parametrize("way", ["short", pytest.param("long", marks=pytest.mark.covers("{SECOND}"))])
def test_both(way): pass
"""
    assert run(tmp_path, tests)[2] == {FIRST, SECOND}
    assert run(tmp_path, tests, "-k", "short")[2] == set()
    # What only the parameter claims that has run is shown by it.
    assert run(tmp_path, tests, "-k", "long")[2] == {SECOND}


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "-n", "2")], ids=["one process", "two processes"])
def test_an_unknown_row_ends_the_run_and_is_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    tests = """
def test_nothing(): pass

@pytest.mark.covers("X99")
def test_claims(): pass
"""
    code, said, _ = run(tmp_path, tests, *options)
    assert code == 1
    assert "covers() names X99, which docs/features.md does not have" in said
    assert "1 error" in said
    assert "1 passed" not in said
    assert "INTERNALERROR" not in said


@pytest.mark.slow
def test_a_row_that_lost_its_whole_test_is_named_before_any_run() -> None:
    file = "tests/integration/test_lost_on_the_way.py"
    command = [sys.executable, "-m", "tests.support.covering", file]
    done = subprocess.run(
        [*command, "-k", "explode or pass"], capture_output=True, text=True, cwd=REPOSITORY, timeout=120
    )
    assert done.returncode == 1
    lost = done.stdout.partition(":")[0].split()
    assert FIRST in lost
    assert "E45" not in lost
    done = subprocess.run([*command, "-k", "explode"], capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert "E45" in done.stdout.partition(":")[0].split()
