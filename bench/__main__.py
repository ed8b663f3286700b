"""`./run bench`: the benchmarks, on the servers of this site. Prints JSON; the ratio is ours to bare, so less is better."""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid

from kafka import KafkaAdminClient

from bench import window
from bench.pairs import in_pairs
from demo.cdn_lines import produce
from services import control, environment, jars
from services.site import Site
from tidemark_spark.session import open_session

PARTITIONS = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="in the window (200000)")
    parser.add_argument("--pairs", type=int, default=5, help="how many times each side is timed (5)")
    options = parser.parse_args()
    site = Site.from_environment()
    jars.fetch(site.jars)
    control.up(site, control.DATA_SERVERS, report=_say)
    os.environ.update({**environment.connections(site), **environment.spark(site)})
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --driver-memory 2g pyspark-shell"
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=site.address("kafka"))
    admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    spark = open_session("bench")
    try:
        _say(f"producing {options.messages} messages")
        produce(site.address("kafka"), topic, options.messages)
        _say(f"a window to Parquet: {options.pairs} pairs")
        pairs = in_pairs(options.pairs, window.tidemark(site, topic), window.spark_alone(spark, site, topic))
    finally:
        spark.stop()
        admin.delete_topics([topic])
        admin.close()
        window.clean_up(site)
    print(json.dumps({"window to Parquet": {"messages": options.messages, **pairs.summary()}}, indent=1))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
