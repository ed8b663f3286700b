"""The Spark session of a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidemark_spark.shipping import ship_code

# What the results depend on: these are the same wherever the job runs.
_SETTINGS = {
    # Times are written and digested as text: they must not depend on where a worker stands.
    "spark.sql.session.timeZone": "UTC",
    # A number that does not fit is an error (and by try_cast an invalid message), never a wrong number.
    "spark.sql.ansi.enabled": "true",
    # Java never compiles a method that is larger; Spark then makes smaller ones, of less generated code each.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Rows are kept for as long as a window takes: what compressing them saves is less than it costs.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Where they do not fit into memory, Java remembers each piece of some megabytes that it has written to the disk, in case
    # it comes again, until it is told to forget: after each one, not after a hundred.
    "spark.serializer.objectStreamReset": "1",
    # How many rows a page of a Parquet file has at least, before Parquet looks how large it has become.
    "spark.hadoop.parquet.page.size.row.check.min": "10",
    # And how many are read from one at a time, whatever their size.
    "spark.sql.parquet.columnarReaderBatchSize": "16",
    # Between the JVM and Python: a few megabytes of rows of some hundred bytes, a few rows of a megabyte.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
}

# What Avro's decoder takes for a length: the first bytes of a message that is no record can say anything, and memory for it
# is taken before it is read. Fields that are longer are invalid.
_AVRO_LIMITS = {
    "org.apache.avro.limits.string.maxLength": 64 * 1024 * 1024,
    "org.apache.avro.limits.bytes.maxLength": 64 * 1024 * 1024,
    "org.apache.avro.limits.collectionItems.maxLength": 16 * 1024 * 1024,
}
_EXECUTORS = "spark.executor.extraJavaOptions"
# Whether PySpark remembers where in Python each column of an expression was made, for which it asks Java some ten times: that
# is most of the time in which a small window is planned.
_ORIGINS = "spark.python.sql.dataFrameDebugging.enabled"


def open_session(name: str) -> SparkSession:
    """The session that spark-submit configured, with the settings that Tidemark's results depend on."""
    builder = SparkSession.builder.appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    if SparkSession.getActiveSession() is None:
        # Connects to the Java of spark-submit, which knows what the user has set.
        SparkContext._ensure_initialized()
        given = SparkConf()
        builder = builder.config(_ORIGINS, given.get(_ORIGINS, "false"))
        options = [given.get(_EXECUTORS, ""), *(f"-D{name}={limit}" for name, limit in _AVRO_LIMITS.items())]
        builder = builder.config(_EXECUTORS, " ".join(options).strip())
        java: Any = SparkContext._jvm
        for limited, limit in _AVRO_LIMITS.items():
            # Of a local master, tasks run in the driver's Java.
            java.java.lang.System.setProperty(limited, str(limit))
    spark = builder.getOrCreate()
    ship_code(spark.sparkContext)
    if spark.sparkContext.getConf().get("spark.sql.shuffle.partitions") is None:
        # What is shuffled here are tallies and comparisons: Spark's default of 200 tasks would cost more than the work.
        spark.conf.set("spark.sql.shuffle.partitions", max(4, 2 * spark.sparkContext.defaultParallelism))
    return spark


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """The session with another value of a setting, for what is planned or written meanwhile."""
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)
