"""What all tests share: options, the table of promises that they cover, and the servers."""

from __future__ import annotations

import random

import hypothesis
import kazoo.protocol.connection
import kazoo.retry
import pytest

pytest_plugins = ["tests.covering", "tests.servers", "tests.stores", "tests.playground"]


# Machines are shared: how long an example takes says nothing.
hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the long tests too (marked `full`)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    long = [item for item in items if item.get_closest_marker("full")]
    if long:
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


@pytest.fixture(scope="session", autouse=True)
def _own_chance_for_kazoo() -> None:
    """Its threads draw random numbers at any time, which hypothesis takes for a test that is not repeatable."""
    kazoo.protocol.connection.random = kazoo.retry.random = random.Random()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run in which every test was skipped or left out shows nothing: it fails."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    shown_nothing = reporter is not None and not reporter.stats.get("passed") and not session.config.option.collectonly
    if exitstatus == pytest.ExitCode.OK and shown_nothing:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
