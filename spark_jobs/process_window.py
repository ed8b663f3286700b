"""spark-submit starts this: process a pinned window of a stream, and those after it up to the end that the run saw."""

from tidemark_spark.jobs import entry
from tidemark_spark.jobs import window as window_job

if __name__ == "__main__":
    entry.run(window_job.main)
