"""The Spark session of a job."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from tempfile import gettempdir
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidemark.clients.connections import keep_quiet
from tidemark.clients.kafka.clients import token_urls
from tidemark.clients.secrets import SENSITIVE
from tidemark.errors import WrongUse
from tidemark.runs.live.one_machine import check_one_machine
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import AvroScheme
from tidemark.spark.runtime.connectors import check_connectors
from tidemark.spark.runtime.engine_run import EngineRun, attach, current
from tidemark.spark.runtime.guarding import guarded
from tidemark.spark.runtime.java_calls import look_up_once
from tidemark.spark.runtime.masking import masked_log
from tidemark.spark.runtime.shipping import PY_FILES, own_modules, ship_code
from tidemark.streams.engine import STAGES

# How many rows of a Parquet file are read at a time.
PARQUET_ROWS = "spark.sql.parquet.columnarReaderBatchSize"
# Settings that the results depend on. They are the same wherever the job runs.
_SETTINGS = {
    # Times are written and digested as text: they must not depend on where a worker stands.
    "spark.sql.session.timeZone": "UTC",
    # A number that does not fit is an error (and by try_cast an invalid message), never a wrong number.
    "spark.sql.ansi.enabled": "true",
    # A text that is no time is an invalid message, whatever older versions of Spark have read in it.
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Readers take Parquet's older form of times (INT96) for nanoseconds, which cannot hold the year 2300.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Java never compiles a larger method. With this limit, Spark generates less code for each method.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Rows are kept as long as a window takes: compressing them costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Java serialization caches every object it has written. Reset the cache after each one; otherwise spilling large
    # records exhausts the heap.
    "spark.serializer.objectStreamReset": "1",
    # How many rows a page of a Parquet file has at least, before Parquet looks how large it has become.
    "spark.hadoop.parquet.page.size.row.check.min": "10",
    # Few, since rows may have any size: see `readers.parquet.rows_at_a_time`.
    PARQUET_ROWS: "16",
    # Spark keeps consumers, and messages that they have fetched, for later reads by the same name. Each read has its own name.
    "spark.kafka.consumer.cache.timeout": "30s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "10s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    # An error in a task ends the task, and never its JVM: not for a message on which an expression needs too much stack, and
    # not for memory either. Otherwise one message would end a warm engine, with the runs of other streams in it.
    "spark.executor.killOnFatalError.depth": "0",
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
# How many tasks shuffle, and how many list folders, where these are more than Spark's driver lists by itself.
_SHUFFLED, _LISTED = "spark.sql.shuffle.partitions", "spark.sql.sources.parallelPartitionDiscovery.parallelism"
# The least memory that a join with a table in memory takes, however few rows this has, and each task that groups rows. By
# default it is up to 64 MB. A task can have 8,192 such pages.
_PAGE, _PAGE_SIZE = "spark.buffer.pageSize", "4m"
# Where Spark's own tables would be. By default Spark makes this folder in the current one, of whoever types a command.
_WAREHOUSE = "spark.sql.warehouse.dir"
_HADOOP = "spark.hadoop."
# What a run in an engine has by other ways.
_OF_A_RUN = (PY_FILES, STAGES, "spark.submit.deployMode", "spark.app.name", "spark.pyspark.driver.python")


# The names of settings and options that Spark shows as *** on its pages, in its event log and in plans. The patterns are
# Spark's own, which hold if the user gives none.
_REDACTED_OPTIONS = "spark.sql.redaction.options.regex"
_REDACTED = {"spark.redaction.regex": "(?i)secret|password|token|access[.]?key", _REDACTED_OPTIONS: "(?i)url"}


def stream_session(name: str, opened: OpenStream) -> SparkSession:
    """The session of a job that works on a stream; see `open_session`. Raises WrongUse where Spark does not fit."""
    spark = open_session(
        name,
        opened.file_system_settings(),
        token_urls(opened.log.endpoint),
        places=opened.file_systems(),
        own_code=opened.stream.has_own_code,
    )
    # What the Spark at work is, whatever its connection says.
    check_one_machine(opened.stream, opened.connections, str(spark.sparkContext.master))
    stream = opened.stream
    avro = isinstance(stream.scheme, AvroScheme) or any(sink.needs_avro for sink in stream.sinks)
    check_connectors(spark, avro=avro)
    return spark


def open_session(
    name: str,
    files: Mapping[str, str] | None = None,
    token_urls: Sequence[str] = (),
    *,
    places: Collection[str] = (),
    own_code: bool = True,
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session that spark-submit configured, with the settings that Tidemark's results depend on.

    `files` are Hadoop's settings for file systems, which may be secrets. They are set on the running application, because
    people can see the command line that starts it. Spark sends them to the executors with the work on files. `token_urls`
    are the only addresses that Kafka's Java clients may get OAUTHBEARER tokens from. `more` are settings of a new application.
    Nobody else reaches its ports, see `guarding`.

    In a run of a warm engine, the session is one of this run. `places` are the file systems that it writes to. With
    `own_code`, Python workers may import modules of the user's, and end with the run. Raises WrongUse for what the engine
    cannot give this run.
    """
    # py4j logs all calls of Java, with their arguments.
    keep_quiet("py4j")
    for at_length in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # PySpark logs each error of an expression as JSON, with its text and both stacks.
        PySparkLogger.getLogger(at_length).setLevel(logging.CRITICAL)
    if current() is not None:
        return _in_engine(name, files or {}, token_urls, places, own_code=own_code)
    spark = _in_application(name, files or {}, token_urls, more or {})
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    for setting, value in (files or {}).items():
        hadoop.set(setting, value)
    return spark


def _in_application(
    name: str, files: Mapping[str, str], token_urls: Sequence[str], more: Mapping[str, str]
) -> SparkSession:
    """The session of an application that spark-submit has started."""
    builder = SparkSession.builder.appName(name)
    for key, value in {**more, **_SETTINGS}.items():
        builder = builder.config(key, value)
    if SparkSession.getActiveSession() is None:
        # Connects to the Java of spark-submit, which knows what the user has set.
        SparkContext._ensure_initialized()
        given = SparkConf()
        for name, value in guarded(given).items():
            builder = builder.config(name, value)
        for redacted, default in _REDACTED.items():
            builder = builder.config(redacted, _redaction(given.get(redacted, default), files))
        for name, default in ((_ORIGINS, "false"), (_PAGE, _PAGE_SIZE)):
            builder = builder.config(name, given.get(name, default))
        if given.get("spark.master", "").startswith("local") and not given.contains(_WAREHOUSE):
            builder = builder.config(_WAREHOUSE, f"{gettempdir()}/spark-warehouse-{os.getuid()}")
        options = [given.get(_EXECUTORS, ""), *(f"-D{name}={limit}" for name, limit in _AVRO_LIMITS.items())]
        if _ALLOWED_URLS not in options[0]:
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
    masked_log(spark.sparkContext).run()
    _take_few_tasks(spark)
    return spark


def _take_few_tasks(spark: SparkSession) -> None:
    """Only tallies and comparisons are shuffled, and a folder is listed in a moment: Spark's defaults, of 200 tasks and of
    one for each folder, would cost more than the work.
    """
    for name in (_SHUFFLED, _LISTED):
        if spark.sparkContext.getConf().get(name) is None:
            spark.conf.set(name, max(4, 2 * spark.sparkContext.defaultParallelism))


def _in_engine(
    name: str, files: Mapping[str, str], token_urls: Sequence[str], places: Collection[str], *, own_code: bool
) -> SparkSession:
    """The session of this run in a warm engine."""
    engine, new = attach({})
    spark = engine.spark
    if not new:
        return spark
    look_up_once(spark.sparkContext)
    ship_code(spark.sparkContext)
    _take_few_tasks(spark)
    _give_settings(spark, engine.run)
    _allow(spark, token_urls)
    given = str(spark.conf.get(_REDACTED_OPTIONS))
    spark.conf.set(_REDACTED_OPTIONS, _redaction(given, files))
    digest = sha256(repr(sorted(files.items())).encode()).hexdigest()
    for place in sorted(places):
        other = engine.refuse_other_files(place, digest, name)
        if other is not None:
            raise WrongUse(
                f"the warm engine has opened {place} with other settings, for {other}. In one engine, a file system has the "
                "same settings for all streams. Name another Spark connection, or, if the settings have changed for all, "
                "end this engine with `tidemark engine stop`"
            )
    for setting, value in files.items():
        spark.conf.set(setting, value)
    if own_code:
        engine.own_workers(own_modules(engine.run, spark.sparkContext))
    return spark


def _give_settings(spark: SparkSession, run: EngineRun) -> None:
    """Give the session what the stream file's `engine.conf` sets. Raises WrongUse for what only a new application can have."""
    has = spark.sparkContext.getConf()
    refused = []
    for key, value in run.conf.items():
        if key in _SETTINGS or key in _OF_A_RUN or has.get(key) == value:
            continue
        if key.startswith(_HADOOP):
            spark.conf.set(key.removeprefix(_HADOOP), value)
        elif spark.conf.isModifiable(key):
            spark.conf.set(key, value)
        else:
            refused.append(f"{key} is {value} in the stream file and {has.get(key) or 'not set'} in the engine")
    if refused:
        raise WrongUse(
            f"engine.conf: {'; '.join(refused)}. A warm engine has such settings for all its streams, from `engine` among the "
            "extras of the Spark connection: set them there, or name another Spark connection"
        )


def _allow(spark: SparkSession, token_urls: Sequence[str]) -> None:
    """Let the JVM get tokens from these addresses too. Raises WrongUse where its executors do not."""
    if not token_urls:
        return
    jvm: Any = SparkContext._jvm
    system = jvm.java.lang.System
    allowed = [word for word in str(system.getProperty(_ALLOWED_URLS) or "").split(",") if word]
    system.setProperty(_ALLOWED_URLS, ",".join(dict.fromkeys([*allowed, *token_urls])))
    options = str(spark.sparkContext.getConf().get(_EXECUTORS, ""))
    if not spark.sparkContext.master.startswith("local") and (  # type: ignore[union-attr]
        lacking := [url for url in token_urls if url not in options]
    ):
        raise WrongUse(
            f"the executors of the warm engine get no tokens from {', '.join(lacking)}. Set in `engine` among the extras of "
            f"the Spark connection, under conf, {_EXECUTORS}: -D{_ALLOWED_URLS}={','.join(lacking)}"
        )


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
