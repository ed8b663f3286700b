"""spark-submit starts this: rewrite the Parquet folders of many windows into few."""

from tidemark_spark import compact_job, entry

if __name__ == "__main__":
    entry.run(compact_job.main)
