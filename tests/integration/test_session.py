"""Which of Spark's settings are the user's, and which are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.site import Site
from tests.support.servers import free_ports
from tests.support.submitted import Submitted

SETTINGS_JOB = Path(__file__).parent.parent / "jobs" / "settings_job.py"
ORIGINS = "spark.python.sql.dataFrameDebugging.enabled"
SHUFFLED = "spark.sql.shuffle.partitions"
LISTED = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
PAGE = "spark.buffer.pageSize"
ZONE = "spark.sql.session.timeZone"
EXECUTORS = "spark.executor.extraJavaOptions"


@pytest.mark.full
def test_what_is_given_wins_unless_results_depend_on_it(site: Site, tmp_path: Path) -> None:
    mine = {ORIGINS: "true", SHUFFLED: "7", LISTED: "8", PAGE: "9m"}
    found = settings(site, tmp_path, {**mine, EXECUTORS: "-Dmine=1", ZONE: "Asia/Tokyo"})
    assert found.items() >= {**mine, ZONE: "UTC"}.items()
    # Ours are added to them.
    assert found[EXECUTORS].startswith("-Dmine=1 -Dorg.apache.avro.limits.")

    found = settings(site, tmp_path, {})
    assert found.items() >= {ORIGINS: "false", SHUFFLED: "4", LISTED: "4", PAGE: "4m", ZONE: "UTC"}.items()


@pytest.mark.covers("Q5")
def test_settings_of_file_systems_reach_spark_and_nothing_shows_them(site: Site, tmp_path: Path) -> None:
    files = {"fs.s3a.secret.key": "canary-1", "fs.s3a.access.key": "canary-2", "fs.s3a.endpoint": "canary-3"}
    events = tmp_path / "events"
    events.mkdir()
    given = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(free_ports()),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
        # The user's own pattern is kept beside ours.
        "spark.redaction.regex": "(?i)mine",
        "spark.something.mine": "canary-4",
    }
    found = settings(site, tmp_path, given, FILES=json.dumps(files))
    assert {name: found[name] for name in files} == files
    log = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    for shown in (found["shown"], log):
        assert "fs.s3a.endpoint" in shown
        assert "spark.something.mine" in shown
        assert "canary" not in shown


def settings(site: Site, folder: Path, given: dict[str, str], **variables: str) -> dict[str, str]:
    asked = (ORIGINS, SHUFFLED, LISTED, PAGE, ZONE, EXECUTORS)
    said = Submitted(site, folder / "job.log", SETTINGS_JOB, *asked, conf=given, **variables).succeeds()
    (line,) = (line for line in said.splitlines() if line.startswith("{"))
    found: dict[str, str] = json.loads(line)
    return found
