"""Somebody's own Spark session, with a time zone of its own, reads the same times from every sink."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.live_streams import Make
from tests.support.oracle import Example, Outcome
from tidemark.spark.sinks import results

# In Berlin, the first does not exist and the second exists twice.
TIMES = ["2026-03-29T02:30:00Z", "2026-10-25T00:30:00Z", "1890-01-01T00:00:00.123456Z"]
FORM = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]X"
SEEN = Example(
    "seen",
    {
        "source": {"topics": []},
        "scheme": {"type": "delimited", "fields": {"host": "string", "at": "timestamp"}, "timestamp": FORM},
        "sinks": [
            {"type": "hbase", "table": "-"},
            {"type": "parquet", "folder": "-"},
            {"type": "delta", "folder": "-"},
        ],
        "dead_letters": {"type": "hbase", "table": "-"},
    },
    ("seen",),
    1,
    lambda count, first: ((b"k", f"h{number},{TIMES[number]}".encode()) for number in range(first, first + count)),
    lambda value: Outcome(None, None),
)


@pytest.mark.full
def test_times_in_another_time_zone(make: Make, spark: SparkSession) -> None:
    live = make(SEEN)
    sinks: list[dict[str, Any]] = [
        {"type": "hbase", "table": live.name},
        {"type": "parquet", "folder": live.name},
        {"type": "delta", "folder": f"{live.name}_delta"},
        {"type": "hbase_latest", "table": f"{live.name}_latest", "folder": f"{live.name}_latest", "key": "at"},
        {
            "type": "hbase_aggregates",
            "table": f"{live.name}_sums",
            "folder": f"{live.name}_sums",
            "key": "host",
            "values": {"at": {"max": "at"}},
        },
    ]
    live.rewrite(sinks=sinks)
    live.produce(len(TIMES))
    live.ingest()
    wanted = {
        f"h{number}": round((datetime.fromisoformat(time) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 10**6)
        for number, time in enumerate(TIMES)
    }
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        for sink in [one["type"] for one in sinks]:
            rows = results(spark, live.opened, sink).select("host", F.unix_micros("at").alias("at")).collect()
            assert {row["host"]: row["at"] for row in rows} == wanted, sink
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
