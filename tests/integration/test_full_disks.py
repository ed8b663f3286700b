"""A disk without room: the run fails and says which one it is, the ledger stays as it was, and with room it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.disks import Disk, small_disks  # noqa: F401
from tests.support.live_streams import RAW, LiveStream, Make
from tests.support.oracle import CDN
from tests.support.submitted import WINDOW_JOB, Submitted
from tidemark.errors import EXIT_FAILED

_BYTES = 500_000


@pytest.mark.full
@pytest.mark.covers("F18")
@pytest.mark.usefixtures("spark")
def test_the_disk_of_a_sink(make: Make, tmp_path: Path, disk: Disk) -> None:
    live = make(CDN, **RAW)
    lake = disk("16m")
    variables = {"AIRFLOW_CONN_LAKE_DEFAULT": json.dumps({"conn_type": "fs", "extra": {"path": str(lake)}})}
    # Twice of what there is room for.
    fails_and_goes_on(live, 60, tmp_path, f"The disk of file:{lake}/", None, **variables)


@pytest.mark.full
@pytest.mark.covers("F18")
@pytest.mark.usefixtures("spark")
def test_the_disk_of_sparks_scratch_files(make: Make, tmp_path: Path, disk: Disk) -> None:
    # Room for the jars that Spark copies, and not for the rows that it has to keep there for want of memory.
    conf = {"spark.local.dir": str(disk("64m")), "spark.memory.fraction": "0.05"}
    live = make(CDN, **RAW)
    # Of several sinks none writes files, so Spark keeps the rows.
    tables = {"hbase": live.name, "other": f"{live.name}_other"}
    live.rewrite(**RAW, sinks=[{"type": "hbase", "name": name, "table": table} for name, table in tables.items()])
    fails_and_goes_on(live, 200, tmp_path, "most likely that of Spark's scratch files", conf)


def fails_and_goes_on(
    live: LiveStream, number: int, folder: Path, said: str, conf: dict[str, str] | None = None, **variables: str
) -> None:
    live.produce_incompressible(number, _BYTES)
    run = live.new_run()
    window = live.pin(run)
    arguments = live.job_arguments(run, window.seq)
    job = Submitted(live.site, folder / "full.log", WINDOW_JOB, *arguments, conf=conf, **variables)
    assert job.wait() == EXIT_FAILED, job.output[-3000:]
    (line,) = (line for line in job.output.splitlines() if line.startswith("tidemark: "))
    assert line.startswith("tidemark: DiskFull: ")
    assert said in line
    assert "No space left on device" in line
    assert live.head().seq == 0
    pending = live.head().pending
    assert pending is not None
    assert pending.window == window

    (committed,) = live.ingest(run)
    assert sum(one.rows.number for one in committed.tallies) == number
    assert len(live.independent.hbase().by_place()) == number
