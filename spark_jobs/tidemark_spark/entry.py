"""What every entry script does: runs, reports an error in one line, and ends with the design's exit code."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from pyspark.logger import PySparkLogger

from tidemark.errors import EXIT_INTERNAL
from tidemark_spark.failures import translate


def run(main: Callable[[list[str]], int]) -> None:
    """Run a job's main function as the whole program, and exit."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("py4j", "kafka"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for at_length in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # A query that Spark refuses, with both its stacks as JSON; what is wrong with it is said in the error.
        PySparkLogger.getLogger(at_length).setLevel(logging.CRITICAL)
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    try:
        code = main(sys.argv[1:])
    except SystemExit:
        raise
    except BaseException as error:
        code = _report(error)
    sys.exit(code)


def _report(error: BaseException) -> int:
    """Say in one line what ended the job, and give the exit code; what nobody foresaw comes with its traceback."""
    try:
        known = translate(error)
    except Exception:
        known = None
    if known is None or known.exit_code == EXIT_INTERNAL:
        traceback.print_exception(error)
        return EXIT_INTERNAL
    print(f"tidemark: {type(known).__name__}: {known}", file=sys.stderr, flush=True)
    return known.exit_code


def _end_with_parent() -> None:
    """End when spark-submit's JVM is gone: killed with SIGKILL, it leaves its Python driver running.

    A courtesy to the machine. An orphan that lives on is harmless: its generation keeps it from committing.
    """
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(EXIT_INTERNAL)
