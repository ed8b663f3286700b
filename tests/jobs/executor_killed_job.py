"""spark-submit starts this: the job that processes windows, which kills one of its executors behind a step. For tests.

The step stands in KILL_BEHIND; without it, the executor is killed before the results.
"""

import os
import signal
from functools import partial

import psutil
from pyspark.sql import SparkSession

from tidemark.commit.protocol import Step
from tidemark_spark.jobs import entry
from tidemark_spark.jobs import window as window_job

KILL_BEHIND = Step(os.environ.get("KILL_BEHIND", Step.DEAD_LETTERS_STORED.value))


def listen(done: Step) -> None:
    if done == KILL_BEHIND:
        spark = SparkSession.getActiveSession()
        assert spark is not None
        executors = [
            process
            for process in psutil.process_iter(["cmdline"])
            if {"org.apache.spark.executor.CoarseGrainedExecutorBackend", spark.sparkContext.applicationId}
            <= set(process.info["cmdline"] or ())
        ]
        os.kill(min(executors, key=lambda one: one.pid).pid, signal.SIGKILL)


entry.run(partial(window_job.main, on_step=listen))
