"""spark-submit starts this: compact a sink: rewrite what many windows have written into less."""

from tidemark_spark.jobs import compact as compact_job
from tidemark_spark.jobs import entry

if __name__ == "__main__":
    entry.run(compact_job.main)
