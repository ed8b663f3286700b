"""The Spark session of a job."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidemark_spark.shipping import ship_code

# What the results depend on: these are the same wherever the job runs.
_SETTINGS = {
    # Times are written and digested as text: they must not depend on where a worker stands.
    "spark.sql.session.timeZone": "UTC",
    # A number that does not fit is an error (and by try_cast an invalid message), never a wrong number.
    "spark.sql.ansi.enabled": "true",
    # Rows of some hundred bytes: batches of a few megabytes between the JVM and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


def open_session(name: str) -> SparkSession:
    """The session that spark-submit configured, with the settings that Tidemark's results depend on."""
    builder = SparkSession.builder.appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    ship_code(spark.sparkContext)
    if spark.sparkContext.getConf().get("spark.sql.shuffle.partitions") is None:
        # What is shuffled here are tallies and comparisons: Spark's default of 200 tasks would cost more than the work.
        spark.conf.set("spark.sql.shuffle.partitions", max(4, 2 * spark.sparkContext.defaultParallelism))
    return spark
