"""Another Spark that is supported: a part of these tests, in an environment of its own, on the servers of this process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from services.site import REPOSITORY, Site

OTHERS = ("4.1.1",)
# A stream through everything: ingest, dead letters, all sinks, replay and audit. Then what hangs on Spark's own insides.
FILES = (
    *("example_stream", "delta_sink", "latest_sink", "aggregates_sink", "replay_and_backfill", "audit"),
    *("rows", "schemes", "avro", "json_schema", "patterns", "messages_that_break_sql", "retries", "poison"),
    *("ingest", "kafka_edges", "scattered_ranges", "computed_once", "one_pass", "digests", "audit_of_unchanged_data"),
    *("compaction", "running_from_the_command_line"),
)


@pytest.mark.full
@pytest.mark.parametrize("version", OTHERS)
def test_a_stream_runs_on_another_spark(site: Site, version: str) -> None:
    files = [f"tests/integration/test_{name}.py" for name in FILES]
    # The servers of this process, which the other one finds by the same name, and leaves running.
    ours = {"TIDEMARK_SPARK": version, "TIDEMARK_KEEP_SERVERS": "1", "PYTHON": sys.executable}
    # A file, which can be read while the tests run, and after they were ended.
    said = REPOSITORY / ".local" / f"spark-{version}.log"
    with said.open("w") as file:
        done = subprocess.run(
            [REPOSITORY / "run", "test", "integration", "-n", "0", "-v", "-p", "no:cacheprovider", *files],
            env={**os.environ, **ours},
            cwd=REPOSITORY,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=3_600,
        )
    assert done.returncode == 0, f"{said}: {said.read_text()[-20_000:]}"
