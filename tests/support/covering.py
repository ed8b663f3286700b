"""Which promises the tests show: `@pytest.mark.covers("O1", "A19")` names rows of docs/features.md.

A row is covered when one test that claims it has run with all its parameters and passed, and none was skipped or failed.
An unknown id fails the run before any test. At the end the number of covered rows is printed. After a run of all tests,
the rows without a test are listed. The whole table is written as JSON to `.local/features.json`.

    python -m tests.support.covering [ARGUMENT ...]

runs no test. It fails when a row of `.ci/promises.txt` has no test left that the run of these arguments would show whole.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

REPOSITORY = Path(__file__).parent.parent.parent
FEATURES = REPOSITORY / "docs" / "features.md"
PROMISED = REPOSITORY / ".ci" / "promises.txt"
TABLE = REPOSITORY / ".local" / "features.json"

# The keys in a test's report: its rows, and the rows claimed by parameters that were left out of the run.
_COVERS = "covers"
_IN_PART = "in part"
_UNKNOWN = pytest.StashKey[list[str]]()
_ROW = re.compile(r"^\|\s*([A-Z]{1,3}\d{1,3})\s*\|\s*(.+?)\s*\|")


def promises() -> dict[str, str]:
    """Every row of docs/features.md: its id and its promise."""
    rows = [(match[1], match[2]) for line in FEATURES.read_text().splitlines() if (match := _ROW.match(line))]
    return dict(rows)


class CoveredRows:
    """Collects which tests name which rows, and how they ended."""

    def __init__(self) -> None:
        self.rows = promises()
        self.tests: dict[str, set[str]] = {row: set() for row in self.rows}
        self.passed: set[str] = set()
        self.not_passed: set[str] = set()
        self.in_part: set[tuple[str, str]] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Before a run of no tests ends: which rows each test would show, and which in part."""
        for item in session.items if session.config.option.collectonly else []:
            self._note(item.nodeid, item.user_properties)
            self.passed.add(item.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Notes on each item its claims, after all other plugins have left out tests of this run."""
        before = list(items)
        yield
        kept = set(items)
        left_out = {(function_of(item), row) for item in before if item not in kept for row in rows_of(item)}
        for item in items:
            rows = list(rows_of(item))
            item.stash[_UNKNOWN] = [row for row in rows if row not in self.rows]
            # The rows travel with the report: in a run with several processes, the one that sums up collects no tests.
            item.user_properties.append((_COVERS, [row for row in rows if row in self.rows]))
            item.user_properties.append((_IN_PART, [row for row in rows if (function_of(item), row) in left_out]))
        if any(item.stash[_UNKNOWN] for item in items):
            # Several processes must collect the same tests, so these fail when they are set up.
            items[:] = [item for item in items if item.stash[_UNKNOWN]]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if unknown := item.stash[_UNKNOWN]:
            pytest.fail(f"covers() names {', '.join(unknown)}, which docs/features.md does not have", pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report.nodeid, report.user_properties)
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        elif report.failed or report.skipped:
            self.not_passed.add(report.nodeid)

    def _note(self, test: str, properties: list[tuple[str, object]]) -> None:
        says = dict(properties)
        for row in says.get(_COVERS, []):  # type: ignore[attr-defined]
            self.tests[row].add(test)
        self.in_part |= {(test, row) for row in says.get(_IN_PART, [])}  # type: ignore[attr-defined]

    def covered(self) -> set[str]:
        """Rows that a whole test has shown, and that no test has failed to show."""
        return {
            row
            for row, tests in self.tests.items()
            if not tests & self.not_passed and any((test, row) not in self.in_part for test in tests & self.passed)
        }

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter, config: pytest.Config) -> None:
        if config.option.collectonly:
            return
        covered = self.covered()
        table = [
            {"id": row, "promise": text, "covered": row in covered, "tests": sorted(self.tests[row] & self.passed)}
            for row, text in self.rows.items()
        ]
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text(json.dumps(table, indent=1))
        terminalreporter.section("promises")
        terminalreporter.line(f"{len(covered)} of {len(self.rows)} rows of docs/features.md covered; {TABLE}")
        if config.args_source == pytest.Config.ArgsSource.TESTPATHS:
            missing = [row for row in self.rows if row not in covered]
            terminalreporter.line(f"not covered: {', '.join(missing) or 'none'}")


def function_of(item: pytest.Item) -> str:
    """A test's id without its parameters."""
    return item.nodeid.partition("[")[0]


def rows_of(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers("covers"):
        yield from mark.args


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CoveredRows(), "tidemark-covering")


def main(*arguments: str) -> int:
    covering = CoveredRows()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = pytest.main(["--collect-only", "-qq", *arguments], plugins=[covering])
    if code:
        print(said.getvalue())
        return code
    lost = set(PROMISED.read_text().split()) - covering.covered()
    if lost:
        print(f"{' '.join(sorted(lost))}: no test is left that this run would show whole, with all its parameters")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
