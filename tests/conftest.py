"""What all tests share: options, the table of promises that they cover, and the servers."""

from __future__ import annotations

import importlib
import os
import random
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.support.quick import MUTANTS, QUICK
from tests.support.turns import Turns

pytest_plugins = ["tests.support.canary", "tests.support.covering", "tests.support.second_look"]

# The fixtures of tests on servers, which import Spark and Kafka's client.
_WITH_SERVERS = ("servers", "stores", "live_streams", "secure")
pytest.register_assert_rewrite(*(f"tests.support.{name}" for name in _WITH_SERVERS))
_UNIT = Path(__file__).parent / "unit"


# Machines are shared: how long an example takes says nothing. What CI sets by itself is left out.
hypothesis.settings.register_profile(
    "shared",
    hypothesis.settings.get_profile("default"),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
# The same examples each time: what fails then is of the change, and not of the day. `./run test full` tries more of them.
hypothesis.settings.register_profile(
    QUICK, hypothesis.settings.get_profile("shared"), derandomize=True, database=None, max_examples=40
)
# For `./run mutate`: the same examples each time, and the first that fails is enough.
hypothesis.settings.register_profile(
    MUTANTS,
    hypothesis.settings.get_profile("shared"),
    derandomize=True,
    database=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the long tests too (marked `full`)")
    parser.addoption(
        "--ledger",
        type=yaml.safe_load,
        help="a ledger to test, as in a stream file: '{type: sqlite}'; servers run already",
    )


def _plugins(arguments: Iterable[str]) -> tuple[str, ...]:
    """The fixtures for these files of tests. Those of `tests/unit` need no servers, so they import only what they test."""
    paths = [Path(one.partition("::")[0]).resolve() for one in arguments]
    return () if all(_UNIT in (path, *path.parents) for path in paths) else _WITH_SERVERS


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, and choose how properties are tried.

    They are tried on the same examples each time; a full run explores, and so does whoever gives a seed.
    --hypothesis-profile and HYPOTHESIS_PROFILE name another profile.
    """
    for name in _plugins(config.args):
        module = f"tests.support.{name}"
        config.pluginmanager.register(importlib.import_module(module), module)
    option = config.option
    if option.full and option.hypothesis_seed is None:
        # One for all processes of the run: they are given the options.
        option.hypothesis_seed = str(secrets.randbits(32))
    usual = QUICK if option.hypothesis_seed is None else "shared"
    profile = option.hypothesis_profile or os.environ.get("HYPOTHESIS_PROFILE") or usual
    hypothesis.settings.load_profile(profile)
    if profile == QUICK:
        # Numbers and texts of the code make good examples, but of all code that was imported so far: that differs.
        providers._get_local_constants = Constants


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.option.hypothesis_seed
    return None if seed is None else f"examples of properties: drawn with --hypothesis-seed={seed}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Turns | None:
    return Turns(config, log) if config.getvalue("dist") == "loadfile" else None


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
    if "kazoo" in sys.modules:
        import kazoo.protocol.connection
        import kazoo.retry

        kazoo.protocol.connection.random = kazoo.retry.random = random.Random()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run in which every test was skipped or left out shows nothing: it fails."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    shown_nothing = reporter is not None and not reporter.stats.get("passed") and not session.config.option.collectonly
    if exitstatus == pytest.ExitCode.OK and shown_nothing:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
