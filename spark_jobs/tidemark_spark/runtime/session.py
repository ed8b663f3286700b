"""The Spark session of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidemark.clients.connections import keep_quiet
from tidemark.streams.engine import SENSITIVE
from tidemark_spark.runtime.calls import look_up_once
from tidemark_spark.runtime.shipping import ship_code

# Settings that the results depend on. They are the same wherever the job runs.
_SETTINGS = {
    # Times are written and digested as text: they must not depend on where a worker stands.
    "spark.sql.session.timeZone": "UTC",
    # A number that does not fit is an error (and by try_cast an invalid message), never a wrong number.
    "spark.sql.ansi.enabled": "true",
    # Java never compiles a larger method. With this limit, Spark generates less code for each method.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Rows are kept as long as a window takes: compressing them costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Java serialization caches every object it has written. Reset the cache after each one; otherwise spilling large
    # records exhausts the heap.
    "spark.serializer.objectStreamReset": "1",
    # How many rows a page of a Parquet file has at least, before Parquet looks how large it has become.
    "spark.hadoop.parquet.page.size.row.check.min": "10",
    # How many rows are read from a page at a time, whatever their size.
    "spark.sql.parquet.columnarReaderBatchSize": "16",
    # Between the JVM and Python: a few megabytes of rows of some hundred bytes, a few rows of a megabyte.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
}

# The longest lengths that Avro's decoder accepts. In a message that is no record, the first bytes may give any length, and
# the decoder allocates memory for it before it reads. Longer fields are invalid.
_AVRO_LIMITS = {
    "org.apache.avro.limits.string.maxLength": 64 * 1024 * 1024,
    "org.apache.avro.limits.bytes.maxLength": 64 * 1024 * 1024,
    "org.apache.avro.limits.collectionItems.maxLength": 16 * 1024 * 1024,
}
_EXECUTORS = "spark.executor.extraJavaOptions"
# By default kafka-clients 3.9 asks any address.
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
# Whether PySpark notes where in Python each column of an expression was made. It asks Java some ten times for that, which
# is most of the time of planning a small window.
_ORIGINS = "spark.python.sql.dataFrameDebugging.enabled"


# The names of settings and options that Spark shows as *** on its pages, in its event log and in plans. The patterns are
# Spark's own, which hold if the user gives none.
_REDACTED = {
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key",
    "spark.sql.redaction.options.regex": "(?i)url",
}


def open_session(name: str, files: Mapping[str, str] | None = None, token_urls: Sequence[str] = ()) -> SparkSession:
    """The session that spark-submit configured, with the settings that Tidemark's results depend on.

    `files` are Hadoop's settings for file systems, which may be secrets. They are set on the running application, because
    people can see the command line that starts it. Spark sends them to the executors with the work on files. `token_urls`
    are the only addresses that Kafka's Java clients may get OAUTHBEARER tokens from.
    """
    # py4j logs all calls of Java, with their arguments.
    keep_quiet("py4j")
    files = files or {}
    builder = SparkSession.builder.appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    if SparkSession.getActiveSession() is None:
        # Connects to the Java of spark-submit, which knows what the user has set.
        SparkContext._ensure_initialized()
        given = SparkConf()
        for redacted, default in _REDACTED.items():
            builder = builder.config(redacted, _redaction(given.get(redacted, default), files))
        builder = builder.config(_ORIGINS, given.get(_ORIGINS, "false"))
        options = [given.get(_EXECUTORS, ""), *(f"-D{name}={limit}" for name, limit in _AVRO_LIMITS.items())]
        options.append(f"-D{_ALLOWED_URLS}={','.join(token_urls)}")
        builder = builder.config(_EXECUTORS, " ".join(options).strip())
        java: Any = SparkContext._jvm
        for limited, limit in _AVRO_LIMITS.items():
            # With a local master, tasks run in the driver's Java.
            java.java.lang.System.setProperty(limited, str(limit))
    spark = builder.getOrCreate()
    jvm: Any = SparkContext._jvm
    jvm.java.lang.System.setProperty(_ALLOWED_URLS, ",".join(token_urls))
    look_up_once(spark.sparkContext)
    ship_code(spark.sparkContext)
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    for setting, value in files.items():
        hadoop.set(setting, value)
    if spark.sparkContext.getConf().get("spark.sql.shuffle.partitions") is None:
        # Only tallies and comparisons are shuffled: Spark's default of 200 tasks would cost more than the work.
        spark.conf.set("spark.sql.shuffle.partitions", max(4, 2 * spark.sparkContext.defaultParallelism))
    return spark


def _redaction(given: str, files: Mapping[str, str]) -> str:
    """A pattern of names: the user's or Spark's own pattern, ours, and each setting of `files` by its name."""
    # Within brackets, the flag (?i) at the beginning of a pattern holds up to the closing one.
    return "|".join(f"(?:{one})" for one in (given, SENSITIVE, *(rf"\Q{name}\E" for name in files)))


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of the session for plans and writes inside the block."""
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)
