"""Which of Spark's settings are the user's, and which are not."""

from __future__ import annotations

import json
from pathlib import Path

from services.site import Site
from tests.submitted import Submitted

SETTINGS_JOB = Path(__file__).parent.parent / "settings_job.py"
ORIGINS = "spark.python.sql.dataFrameDebugging.enabled"
SHUFFLED = "spark.sql.shuffle.partitions"
ZONE = "spark.sql.session.timeZone"
EXECUTORS = "spark.executor.extraJavaOptions"


def test_what_is_given_wins_unless_results_depend_on_it(site: Site, tmp_path: Path) -> None:
    given = {ORIGINS: "true", SHUFFLED: "7", EXECUTORS: "-Dmine=1", ZONE: "Asia/Tokyo"}
    found = settings(site, tmp_path, given)
    assert (found[ORIGINS], found[SHUFFLED], found[ZONE]) == ("true", "7", "UTC")
    # Ours are added to them.
    assert found[EXECUTORS].startswith("-Dmine=1 -Dorg.apache.avro.limits.")

    found = settings(site, tmp_path, {})
    assert (found[ORIGINS], found[SHUFFLED], found[ZONE]) == ("false", "4", "UTC")


def settings(site: Site, folder: Path, given: dict[str, str]) -> dict[str, str]:
    said = Submitted(site, folder / "job.log", SETTINGS_JOB, ORIGINS, SHUFFLED, ZONE, EXECUTORS, conf=given).succeeds()
    (line,) = (line for line in said.splitlines() if line.startswith("{"))
    found: dict[str, str] = json.loads(line)
    return found
