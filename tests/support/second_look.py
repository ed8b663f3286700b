"""A failed test on servers is run once more, and the first failure is printed whole.

Two processes with servers of their own share a machine. So now and then a right answer comes too late, while a fault fails
twice. Tests of the commit protocol are the exception: a fault of the protocol may show once in a thousand times. They are
run again only when a deadline has passed, which says nothing about results. The same holds for unit tests, but for those of
modules that open sockets, or begin threads or processes: these meet what other tests of their process have left there.

The report has the seconds of the first failure as the test's property FAILED_FIRST: `.ci/summary.py` does not count them.
"""

from __future__ import annotations

import socket

import pytest
from _pytest.terminal import TerminalReporter

ON_SERVERS = ("tests/dags/", "tests/integration/", "tests/ui/")
PROTOCOL = tuple(
    f"tests/integration/test_{name}.py"
    for name in (
        *("cases_of_the_ledger", "cuts", "guarantees", "hbase_ledger", "kills", "ledger_model", "races", "zombies"),
        "zookeeper_ledger",
    )
)
# The errors of deadlines: of `waiting.until`, of a process, and of the browser.
LATE = [r"^TooLate\b", r"^TimeoutExpired\b", r"^TimeoutError\b"]
SHARED = ("socket", "subprocess", "threading")
FAILED_FIRST = "failed_first"
_seconds_lost: dict[str, float] = {}


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Send at once what pytest-rerunfailures says of each test to the process that counts.

    It sends two texts in a row. Without this, the second waits for the acknowledgement of the first: 40 ms a test.
    """
    if hasattr(config, "workerinput"):
        config.failures_db.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        alone = item.nodeid.startswith("tests/unit/") and not _shares(item)
        if alone or item.nodeid.startswith(PROTOCOL):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=LATE))
        elif item.nodeid.startswith((*ON_SERVERS, "tests/unit/")):
            item.add_marker(pytest.mark.flaky(reruns=1))


def _shares(item: pytest.Item) -> bool:
    """Whether the module of a unit test works with what all of its process share. The simulation's programs repeat exactly."""
    names = vars(getattr(item, "module", None) or object) if isinstance(item, pytest.Function) else {}
    return "simulation" not in item.nodeid and any(name in names for name in SHARED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Before a test's properties are written. With several processes, the one that ran the test adds it."""
    # pytest-rerunfailures has a word of its own.
    outcome: str = report.outcome
    if outcome == "rerun":
        _seconds_lost[report.nodeid] = _seconds_lost.get(report.nodeid, 0) + report.duration
    elif report.when == "teardown" and report.nodeid in _seconds_lost:
        lost = _seconds_lost.pop(report.nodeid)
        if FAILED_FIRST not in dict(report.user_properties):
            report.user_properties.append((FAILED_FIRST, lost))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    again: list[pytest.TestReport] = terminalreporter.getreports("rerun")
    if not again:
        return
    terminalreporter.section("failed first, and were run again")
    for report in again:
        terminalreporter.write_sep("_", report.nodeid)
        terminalreporter.line(report.longreprtext)
    for report in again:
        terminalreporter.line(f"FAILED FIRST {report.nodeid}")
