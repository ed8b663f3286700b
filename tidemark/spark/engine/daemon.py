"""Spark's daemon of Python workers on this machine, with what workers need loaded before it forks them.

Spark ends a worker that was idle for a minute. Its own daemon loads nothing, so each new worker takes a second of processor
time, and an engine would be warm for a minute. With `spark.python.daemon.module` Spark starts this one instead.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from importlib import import_module

# Libraries that start threads when they are loaded: a fork copies no thread.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import pyarrow.compute  # noqa: E402, F401
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import tidemark.spark.runtime.workers  # noqa: E402
import tidemark.spark.schemes.function  # noqa: E402, F401
from tidemark.sinks.kinds import worker_modules  # noqa: E402

for _name in worker_modules():
    # A worker that needs a module of another package, and cannot load it, says so itself.
    with suppress(Exception):
        import_module(_name)

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
