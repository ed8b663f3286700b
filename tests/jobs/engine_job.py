"""A warm engine or spark-submit starts this: a job that does what its first word says. For tests.

say CODE [ERROR]     log a line, and end with that code: by an exit, or with that error of Tidemark's
see NAME ...         print what the session knows: settings, temporary views, kept rows of all sessions
keep ROWS            keep rows in Spark's memory, and then kill this process
compile              take each of our Java classes, and print how many of them the engine did not have
work FILE            make the file in a Spark task, which works until the file is gone
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import tidemark.spark
from tidemark import errors
from tidemark.spark.jobs import entry
from tidemark.spark.runtime import compiling
from tidemark.spark.runtime.session import open_session
from tidemark.spark.runtime.workers import in_workers


def main(words: list[str]) -> int:
    what, *rest = words
    if what == "say":
        return say(int(rest[0]), *rest[1:2])
    files: dict[str, str] = json.loads(os.environ.get("FILES", "{}"))
    places = [one for one in os.environ.get("PLACES", "").split() if one]
    spark = open_session("job", files, places=places, own_code=bool(os.environ.get("OWN_CODE")))
    if what == "see":
        print(json.dumps(see(spark, rest)))
    elif what == "keep":
        keep(spark, int(rest[0]))
    elif what == "compile":
        print(f"compiled anew: {compile_all(spark)}", flush=True)
    else:
        work(spark, rest[0])
    return errors.EXIT_DONE


def say(code: int, error: str = "") -> int:
    print("this is standard output", flush=True)
    logging.getLogger("job").info("code %s", code)
    if error:
        kind: type[Exception] = getattr(errors, error, RuntimeError)
        raise kind("what went wrong")
    return code


def compile_all(spark: SparkSession) -> int:
    anew = []
    make = compiling._compile

    def noted(*given: Any) -> Any:
        anew.append(given)
        return make(*given)

    compiling._compile = noted
    sources = sorted(Path(str(tidemark.spark.__file__)).parent.rglob("*.java"))
    for source in sources:
        compiling.compiled(spark.sparkContext, source)
    assert sources
    return len(anew)


def see(spark: SparkSession, names: list[str]) -> dict[str, Any]:
    before = [one.name for one in spark.catalog.listTables()]
    spark.range(1).createOrReplaceTempView("mine")
    hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
    shared: Any = spark.sparkContext._jsc.hadoopConfiguration()
    context: Any = spark.sparkContext._jsc.sc()
    runtime: Any = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    spark.sparkContext._jvm.java.lang.System.gc()
    return {
        "views": before,
        "settings": {name: spark.conf.get(name, None) for name in names},
        "hadoop": {name: hadoop.get(name) for name in names},
        "hadoop of all": {name: shared.get(name) for name in names},
        "system": [
            line for line in str(spark.sparkContext._jvm.java.lang.System.getProperties()).split() if "canary" in line
        ],
        "kept": context.getPersistentRDDs().size(),
        "stored": sum(one.memSize() for one in context.getRDDStorageInfo()),
        "heap": runtime.totalMemory() - runtime.freeMemory(),
        "environment": sorted(os.environ),
        "application": spark.sparkContext.applicationId,
        "worker": worker(spark),
        "pool": spark.sparkContext.getLocalProperty("spark.scheduler.pool"),
    }


def worker(spark: SparkSession) -> dict[str, Any]:
    """The process of a Python worker, the daemon that has forked it, and the names in its environment."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"id": json.dumps([os.getpid(), os.getppid(), sorted(os.environ)])}])

    (row,) = in_workers(spark.range(1), task, spark.range(1).selectExpr("cast(id as string)").schema).collect()
    pid, daemon, names = json.loads(row[0])
    return {"pid": pid, "daemon": daemon, "environment": names}


def keep(spark: SparkSession, rows: int) -> None:
    frame = spark.range(rows).selectExpr("id", "repeat(cast(id as string), 20) as text").persist()
    spark.sparkContext.parallelize(range(1000), 2).persist().count()
    print("kept", frame.count(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def work(spark: SparkSession, file: str) -> None:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(file).write_text(str(os.getpid()))
        while Path(file).exists():
            time.sleep(0.1)
        yield from batches

    one = spark.range(0, 1, 1, 1)
    print("worked", in_workers(one, task, one.schema).count(), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    entry.run(main)
