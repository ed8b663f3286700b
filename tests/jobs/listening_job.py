"""A job that has sent a secret to its tasks, prints the ports on which its JVM listens, and waits until it is killed."""

from __future__ import annotations

import json
import os
import time

import psutil

from tidemark.spark.jobs import entry
from tidemark.spark.runtime.session import open_session


def main(_: list[str]) -> int:
    if os.environ.get("AS_SPARK_DOES"):
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.getOrCreate()
    else:
        spark = open_session("listening")
    sent = spark.sparkContext.broadcast("canary")
    assert spark.sparkContext.parallelize([0, 1], 2).map(lambda _: sent.value).collect() == ["canary", "canary"]
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    found = psutil.Process(jvm).net_connections("tcp")
    ports = [list(one.laddr) for one in found if one.status == psutil.CONN_LISTEN]
    print("LISTENS", json.dumps(ports), flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    entry.run(main)
