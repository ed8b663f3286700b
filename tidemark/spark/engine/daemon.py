"""Spark's daemon of Python workers on this machine, with what workers need loaded before it forks them.

Spark ends a worker that was idle for a minute. Its own daemon loads nothing, so each new worker takes a second of processor
time, and an engine would be warm for a minute. With `spark.python.daemon.module` Spark starts this one instead.
"""

from __future__ import annotations

import gc
import os

# Libraries that start threads when they are loaded: a fork copies no thread.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import pyarrow.compute  # noqa: E402, F401
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import tidemark.spark.runtime.workers  # noqa: E402
import tidemark.spark.schemes.function  # noqa: E402, F401
from tidemark.spark.sinks.hbase import writer as _hbase  # noqa: E402, F401
from tidemark.spark.sinks.hbase.aggregates import writer as _aggregates  # noqa: E402, F401
from tidemark.spark.sinks.hbase.latest import writer as _latest  # noqa: E402, F401
from tidemark.spark.sinks.kafka import writer as _kafka  # noqa: E402, F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
