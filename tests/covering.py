"""Which promises the tests show: `@pytest.mark.covers("O1", "A19")` names rows of docs/features.md.

An unknown id fails the run. At the end the number of covered rows is printed; after a run of all tests, the rows without
a test are listed. The whole table is written as JSON to `.local/features.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

REPOSITORY = Path(__file__).parent.parent
FEATURES = REPOSITORY / "docs" / "features.md"
TABLE = REPOSITORY / ".local" / "features.json"

_PROPERTY = "covers"
_ROW = re.compile(r"^\|\s*([A-Z]{1,3}\d{1,3})\s*\|\s*(.+?)\s*\|")


def promises() -> dict[str, str]:
    """Every row of docs/features.md: its id and what it promises."""
    rows = [match.groups() for line in FEATURES.read_text().splitlines() if (match := _ROW.match(line))]
    return dict(rows)


class Covering:
    """Collects which tests name which rows, and how they ended."""

    def __init__(self) -> None:
        self.rows = promises()
        self.tests: dict[str, set[str]] = {row: set() for row in self.rows}
        self.passed: set[str] = set()
        self.not_passed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        unknown = []
        for item in items:
            rows = list(rows_of(item))
            unknown += [f"{item.nodeid}: {row}" for row in rows if row not in self.rows]
            # It travels with the report: of a run in several processes, the one that sums up has collected nothing.
            item.user_properties.append((_PROPERTY, rows))
        if unknown:
            raise pytest.UsageError("covers() names rows that docs/features.md does not have:\n" + "\n".join(unknown))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, rows in report.user_properties:
            if name == _PROPERTY:
                for row in rows:  # type: ignore[attr-defined]
                    self.tests[row].add(report.nodeid)
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        elif report.failed or report.skipped:
            self.not_passed.add(report.nodeid)

    def covered(self) -> set[str]:
        """Rows with at least one test that passed and none that did not."""
        return {row for row, tests in self.tests.items() if tests & self.passed and not tests & self.not_passed}

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter, config: pytest.Config) -> None:
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


def rows_of(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers("covers"):
        yield from mark.args


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Covering(), "tidemark-covering")
