"""spark-submit starts this: the job that processes windows, which kills or stops itself after a step. For tests.

TEST_STEP and TEST_TIMES say after which step; TEST_SIGNAL is SIGKILL, or SIGSTOP with somebody to wake it up again.
The signal goes to the whole process group: spark-submit's JVM, the Python driver and Spark's workers. With TEST_WAY=kept,
the rows are kept in Spark, and not written while they are made.
"""

import os
import signal
from functools import partial

from tidemark.commit.protocol import Step
from tidemark.spark.jobs import entry, window_work
from tidemark.spark.jobs import window as window_job

left = int(os.environ.get("TEST_TIMES", "1"))
if os.environ.get("TEST_WAY") == "kept":
    setattr(window_work, "takes_one_pass", lambda stream: False)  # noqa: B010


def listen(done: Step) -> None:
    global left
    here = done.value == os.environ["TEST_STEP"]
    left -= here
    if here and left == 0:
        os.killpg(os.getpgid(0), getattr(signal, os.environ["TEST_SIGNAL"]))


entry.run(partial(window_job.main, on_step=listen))
