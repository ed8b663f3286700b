"""spark-submit starts this: the job that processes windows, in tasks of ten messages. For tests."""

from tidemark.planning import splitting
from tidemark_spark import entry, window_job

splitting._RECORDS_PER_TASK = 10

entry.run(window_job.main)
