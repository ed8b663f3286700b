"""Trying mutants: each in a forked child of one process that has collected the tests, and knows which of them call what.

mutmut itself collects the tests anew for each mutant, and runs all of them twice for each file before the first.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from mutmut.mutation import trampoline
from mutmut.utils.format_utils import mangled_name_from_mutant_name

_PATIENCE = 3
_GRACE_SECONDS = 3
# Of the clock, not of the processor: for those that wait for ever.
_WAITED_SECONDS = 30
# Of the processor: a test that takes longer is no quick one.
_MOST_SECONDS = 2.5
# Instead of a mutant: nothing is changed.
_CONTROL = ""


class Trial:
    """A plugin for pytest that, instead of running the tests once, runs for each mutant those that call its function.

    `found` says how each mutant ended, and `by` which test noticed it.
    """

    def __init__(
        self, batches: Callable[[], dict[str, list[str]]], processes: int, seconds: float, done: Callable[[str], None]
    ) -> None:
        self.batches = batches
        self.processes = processes
        self.seconds = seconds
        self.done = done
        self.found: dict[str, str] = {}
        self.by: dict[str, str] = {}
        self._items: list[pytest.Item] = []
        self._seconds: dict[int, float] = {}
        self._callers: dict[str, list[int]] = defaultdict(list)
        self._noticed: Counter[int] = Counter()
        self._running: dict[int, tuple[str, Path]] = {}

    def run(self, arguments: list[str]) -> None:
        sys.stdout.flush()
        trampoline.wrap_in_trampoline = _trampoline
        pytest.main([*arguments, "-q", "--capture=no", "--rootdir=.", "--tb=native"], plugins=[self])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise SystemExit("the tests cannot be collected")
        self._items = session.items
        self._watch()
        for file, mutants in self.batches().items():
            started = time.monotonic()
            self._check(mutants)
            for mutant in mutants:
                while len(self._running) >= self.processes:
                    self._wait()
                self._start(mutant, self._order(mangled_name_from_mutant_name(mutant)))
            while self._running:
                self._wait()
            print(f"{file}: {len(mutants)} mutants in {time.monotonic() - started:.0f} s", flush=True)
            self.done(file)
            self._noticed.clear()
        return True

    def _watch(self) -> None:
        """Run every test once, to see which functions it calls and how long it takes."""
        called = _chosen.called = set[str]()
        for at, item in enumerate(self._items):
            started = time.process_time()
            called.clear()
            following = self._items[at + 1] if at + 1 < len(self._items) else None
            reports = runtestprotocol(item, log=False, nextitem=following)
            self._seconds[at] = time.process_time() - started
            if any(report.failed for report in reports):
                print(f"left out, since it fails without a change: {item.nodeid}", flush=True)
                continue
            for name in called:
                self._callers[name].append(at)
        _chosen.called = None
        print(f"{len(self._items)} tests took {sum(self._seconds.values()):.0f} s", flush=True)

    def _check(self, mutants: list[str]) -> None:
        """Leave out what fails without a change when the tests of a file come one after the other in their new order."""
        while True:
            functions = sorted({mangled_name_from_mutant_name(one) for one in mutants})
            tests = dict.fromkeys(at for function in functions for at in self._order(function))
            self._start(_CONTROL, list(tests))
            while self._running:
                self._wait()
            if self.found.pop(_CONTROL) != "killed":
                self._noticed.clear()
                return
            (failed,) = self._noticed
            print(f"left out, since it fails after other tests: {self._items[failed].nodeid}", flush=True)
            for callers in self._callers.values():
                callers[:] = [at for at in callers if at != failed]
            self._noticed.clear()

    def _order(self, function: str) -> list[int]:
        """The tests of a function: those that noticed most mutants of its file, then quick ones before slow ones."""
        order = sorted(self._callers[function], key=lambda at: (-self._noticed[at], self._seconds[at]))
        spent, chosen = 0.0, []
        for at in order:
            spent += self._seconds[at]
            if self._seconds[at] > _MOST_SECONDS:
                continue
            if spent > self.seconds:
                break
            chosen.append(at)
        return chosen

    def _start(self, mutant: str, tests: list[int]) -> None:
        if not tests:
            self.found[mutant] = "no tests"
            return
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        child = os.fork()
        if child == 0:
            try:
                self._try(mutant, tests, folder)
            finally:
                os._exit(3)
        self._running[child] = mutant, folder

    def _try(self, mutant: str, tests: list[int], folder: Path) -> None:
        """In a child: run the tests until one fails."""
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        self._items[0].config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        _choose(mutant)
        for at, following in zip(tests, [*tests[1:], None], strict=True):
            limit = int(time.process_time() + self._seconds[at] * _PATIENCE + _GRACE_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            signal.alarm(int(self._seconds[at] * _PATIENCE * 5) + _WAITED_SECONDS)
            after = self._items[following] if following is not None else None
            if any(report.failed for report in runtestprotocol(self._items[at], log=False, nextitem=after)):
                (folder / "noticed").write_text(str(at))
                os._exit(1)
        os._exit(0)

    def _wait(self) -> None:
        child, status = os.wait()
        if child not in self._running:
            # Started by a test that was watched.
            return
        mutant, folder = self._running.pop(child)
        with suppress(ProcessLookupError):
            # What a test has started and not ended.
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status)
        if code == 1:
            noticed = int((folder / "noticed").read_text())
            self._noticed[noticed] += 1
            self.by[mutant] = self._items[noticed].nodeid
        ends = {
            0: "survived",
            1: "killed",
            -signal.SIGXCPU: "timeout",
            -signal.SIGALRM: "timeout",
            -signal.SIGSEGV: "segfault",
        }
        self.found[mutant] = ends.get(code, f"ended with {code}")
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Chosen:
    """Which mutant of which module is called in place of its function; `called` is told of every function, if anything."""

    module: str = ""
    name: str = ""
    called: set[str] | None = None


_chosen = _Chosen()


def _choose(mutant: str) -> None:
    _chosen.module, _, _chosen.name = mutant.rpartition(".")


def _trampoline(mutants: dict[str, Any], is_classmethod: bool = False) -> Callable[[Any], Any]:
    """What mutmut puts before each function of a mutated file, without what it asks the environment at each call."""

    def wrap(function: Any) -> Any:
        module = function.__module__

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if _chosen.called is not None:
                # Mutants come into their dictionary when the module has been read.
                original = mutants["_mutmut_orig"].__name__
                _chosen.called.add(f"{module}.{mangled_name_from_mutant_name(original)}")
            made = mutants.get(_chosen.name) if _chosen.module == module else None
            made = made or mutants["_mutmut_orig"]
            if is_classmethod:
                return getattr(args[0], made.__name__)(*args[1:], **kwargs)
            return made(*args, **kwargs)

        return call

    return wrap
