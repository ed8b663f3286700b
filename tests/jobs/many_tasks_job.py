"""spark-submit starts this: the job that processes windows, in tasks of ten messages. For tests."""

from tidemark.planning import splitting
from tidemark.spark.jobs import entry
from tidemark.spark.jobs import window as window_job

splitting._SHORT = splitting.RECORDS_PER_TASK = 10

entry.run(window_job.main)
