"""A word that tests put into messages on which expressions throw: no log of a test run may have it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

CANARY = "canary-in-a-message-7c1f"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test fails that has written the word into its logs, or on its standard output or error, as Spark's JVM does."""
    report = yield
    told = [name for name, text in report.sections if CANARY in text]
    if told and report.passed:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: what a message says is in its {', '.join(told)}"
    return report


def logs_that_tell(folder: Path) -> Iterator[Path]:
    """The log files below a folder that have the word."""
    for path in sorted(folder.rglob("*.log")):
        if path.is_file() and CANARY.encode() in path.read_bytes():
            yield path
