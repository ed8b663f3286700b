"""A process of the engine becomes the program that was asked for, with all that the asking program has."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tidemark.spark.runtime import engine_run
from tidemark.spark.runtime.engine_run import EngineRun
from tidemark.streams.engine import STAGES

# `prctl`: which signal a process gets when its parent has ended.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
# What PySpark needs of the engine's environment, whatever the asking program has.
_OF_THE_ENGINE = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONHASHSEED", "SPARK_HOME", "SPARK_CONF_DIR")
_BARS_SECONDS = 0.5


@dataclass(frozen=True)
class Process:
    """The state of the asking program: the words of its command, its standard files, folder and umask."""

    command: Sequence[str]
    files: Sequence[int]
    folder: str
    umask: int
    parent: int

    def become(self, run: EngineRun) -> NoReturn:
        """Be this run, and end with its exit code."""
        code = 1
        try:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self.parent:
                os._exit(1)
            os.setsid()
            for number, file in enumerate(self.files):
                os.dup2(file, number)
                os.close(file)
            os.umask(self.umask)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.chdir(self.folder)
            self._work(run)
            code = 0
        except SystemExit as ended:
            code = _code_of(ended)
        except BaseException:
            traceback.print_exc()
        finally:
            # Not as Python ends: what belongs to the engine's process stays as it is.
            with suppress(BaseException):
                atexit._run_exitfuncs()  # noqa: SLF001
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(code)

    def _work(self, run: EngineRun) -> None:
        _forget_logging()
        _take_environment(run.environment)
        _take_path(self.command[0], run.environment)
        engine_run.begin(run)
        if run.conf.get(STAGES) == "true":
            threading.Thread(target=_show_stages, name="stages", daemon=True).start()
        sys.argv = [*self.command]
        runpy.run_path(self.command[0], run_name="__main__")


def _forget_logging() -> None:
    """The engine's own log is none of the program's: each program sets up its own."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.NOTSET)


def environment_of(given: Mapping[str, str]) -> dict[str, str]:
    """A run's environment: that of the asking program, but for what must be the engine's."""
    ours = {name: os.environ[name] for name in _OF_THE_ENGINE if name in os.environ}
    return {**{name: value for name, value in given.items() if name not in _OF_THE_ENGINE}, **ours}


def _take_environment(environment: Mapping[str, str]) -> None:
    for name in [*os.environ]:
        if name not in environment:
            del os.environ[name]
    os.environ.update(environment)
    # It was read when the engine's process began.
    time.tzset()


def _take_path(script: str, environment: Mapping[str, str]) -> None:
    """Python's path as for a program of its own: the script's folder, PYTHONPATH, and what was there."""
    own = [word for word in environment.get("PYTHONPATH", "").split(os.pathsep) if word]
    sys.path[:1] = [str(Path(script).parent), *own]
    # Folders are listed again: what the engine has seen of them may be old.
    sys.path_importer_cache.clear()


def _code_of(ended: SystemExit) -> int:
    """As Python itself ends for it."""
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code & 0xFF
    print(ended.code, file=sys.stderr)
    return 1


def _show_stages() -> None:
    """Print bars of the stages that this run's jobs are at, as Spark's own ConsoleProgressBar does for all jobs."""
    shown = False
    while True:
        time.sleep(_BARS_SECONDS)
        engine = engine_run.attached()
        stages = engine.stages() if engine is not None else []
        bars = "".join(f"[Stage {number}:>  ({done} + {at_work}) / {tasks}]" for number, done, at_work, tasks in stages)
        if bars or shown:
            print(f"{bars or ' ' * 80}\r", end="", file=sys.stderr, flush=True)
        shown = bool(bars)
