"""spark-submit starts this: the job that processes windows, which kills one of its executors behind a step. For tests.

The step stands in KILL_BEHIND; without it, the executor is killed before the results.
"""

import os
from functools import partial
from typing import Any

import psutil
from pyspark.sql import SparkSession

from tests.support.waiting import until
from tidemark.commit.protocol import Step
from tidemark.planning import splitting
from tidemark.spark.jobs import entry
from tidemark.spark.jobs import window as window_job

# Each executor has some of the rows.
splitting._SHORT = splitting.RECORDS_PER_TASK = 50
KILL_BEHIND = Step(os.environ.get("KILL_BEHIND", Step.DEAD_LETTERS_STORED.value))


def listen(done: Step) -> None:
    if done == KILL_BEHIND:
        spark = SparkSession.getActiveSession()
        assert spark is not None
        executors = [
            process
            for process in psutil.process_iter(["cmdline"])
            if spark.sparkContext.applicationId in (words := process.info["cmdline"] or ())
            and any(word.endswith("CoarseGrainedExecutorBackend") for word in words)
        ]
        chosen = min(executors, key=lambda one: one.pid)
        chosen.kill()
        # Spark hears of it a moment later, and what comes next may be done by then.
        jvm: Any = spark.sparkContext._jvm
        manager = jvm.org.apache.spark.SparkEnv.get().blockManager().master()
        until(
            lambda: manager.getMemoryStatus().size() <= len(executors), "Spark does not see that its executor is gone"
        )


entry.run(partial(window_job.main, on_step=listen))
