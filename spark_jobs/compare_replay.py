"""spark-submit starts this: say what a replay of a stored selection will change, and commit nothing."""

from tidemark_spark.jobs import compare as compare_job
from tidemark_spark.jobs import entry

if __name__ == "__main__":
    entry.run(compare_job.main)
