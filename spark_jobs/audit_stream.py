"""spark-submit starts this: compare what should be in a stream's results with what is there; 1 means differences."""

from tidemark_spark.jobs import audit as audit_job
from tidemark_spark.jobs import entry

if __name__ == "__main__":
    entry.run(audit_job.main)
