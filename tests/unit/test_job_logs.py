"""What is in a job's log besides its own lines."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidemark.submit.ivy_lines import saying_without_ivy, without_ivy

IVY = """:: loading settings :: url = jar:file:/x/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /ivy/.ivy2.5.2/cache
The jars for the packages stored in: /ivy/.ivy2.5.2/jars
org.apache.spark#spark-sql-kafka-0-10_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-7c;1.0
\tconfs: [default]
\tfound org.apache.spark#spark-sql-kafka-0-10_2.13;4.2.0 in central
downloading https://repo1.maven.org/maven2/org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar ...
\t[SUCCESSFUL ] org.apache.kafka#kafka-clients;3.9.2!kafka-clients.jar (812ms)
:: resolution report :: resolve 4000ms :: artifacts dl 900ms
\t:: modules in use:
\torg.apache.kafka#kafka-clients;3.9.2 from central in [default]
\t:: evicted modules:
\torg.apache.kafka#kafka-clients;3.9.0 by [org.apache.kafka#kafka-clients;3.9.2] in [default]
\t---------------------------------------------------------------------
\t|                  |            modules            ||   artifacts   |
\t|      default     |   9   |   0   |   0   |   1   ||   8   |   0   |
:: retrieving :: org.apache.spark#spark-submit-parent-7c
\t0 artifacts copied, 8 already retrieved (0kB/9ms)""".splitlines()
OTHERS = [
    "2026-11-29 01:00:00,000 INFO tidemark.runs.processing: orders/ingest window 1: read",
    "\t\tmodule not found: org.apache.spark#spark-avro_2.13;4.2.9",
    "\t\t::          UNRESOLVED DEPENDENCIES         ::",
    "\t:: org.apache.spark#spark-avro_2.13;4.2.9: not found",
    "tidemark: WrongUse: no such topic",
    "",
]


@pytest.mark.covers("N71")
def test_what_ivy_says_is_left_out_while_all_is_well() -> None:
    assert [*without_ivy([*IVY, *OTHERS])] == OTHERS
    said: list[str] = []
    for line in (*OTHERS, *IVY):
        saying_without_ivy(said.append)(line)
    assert said == OTHERS


@pytest.mark.slow
def test_libraries_are_quiet_in_a_jobs_log() -> None:
    """Two lines of pyiceberg for each table, and py4j's tracebacks where the JVM was killed, hid the job's own lines."""
    words = "import logging; from tidemark.spark.jobs import entry\ndef job(_):\n"
    for name, level in (("pyiceberg.io", "info"), ("py4j.clientserver", "error"), ("tidemark.runs", "info")):
        words += f"    logging.getLogger('{name}').{level}('said by {name}')\n"
    ended = subprocess.run(
        [sys.executable, "-c", f"{words}    return 0\nentry.run(job)"], capture_output=True, text=True, check=True
    )
    (said,) = [line for line in ended.stderr.splitlines() if "said by" in line]
    assert said.endswith("tidemark.runs: said by tidemark.runs")
