"""spark-submit starts this: compare what should be in a stream's results with what is there; 1 means differences."""

from tidemark_spark import audit_job, entry

if __name__ == "__main__":
    entry.run(audit_job.main)
