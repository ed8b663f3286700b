"""The frame of every entry script: runs a job, reports an error in one line, and ends with its exit code."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable

from tidemark.errors import EXIT_INTERNAL
from tidemark.spark.runtime.failures import translate
from tidemark.spark.runtime.masking import MaskedErrors, formatted
from tidemark.submit.same_code import ASKING, check_same_code


def run(main: Callable[[list[str]], int]) -> None:
    """Run a job's main function as the whole program, and exit."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("kafka", "pyiceberg"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # Where the JVM has gone, the error says so, once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        handler.addFilter(MaskedErrors())
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    try:
        check_same_code(os.environ.get(ASKING))
        code = main(sys.argv[1:])
    except SystemExit:
        raise
    except BaseException as error:
        code = _report(error)
    sys.exit(code)


def _report(error: BaseException) -> int:
    """Say in one line what ended the job, and give the exit code. An internal error comes with its traceback."""
    try:
        known = translate(error)
    except Exception:
        known = None
    if known is None or known.exit_code == EXIT_INTERNAL:
        print(formatted(error), end="", file=sys.stderr, flush=True)
        return EXIT_INTERNAL
    print(f"tidemark: {type(known).__name__}: {known}", file=sys.stderr, flush=True)
    return known.exit_code


def _end_with_parent() -> None:
    """End when spark-submit's JVM is gone: a JVM that is killed with SIGKILL leaves its Python driver running.

    This only saves the machine's resources. An orphan is harmless: its generation keeps it from committing.
    """
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(EXIT_INTERNAL)
