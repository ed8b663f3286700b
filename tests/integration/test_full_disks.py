"""A disk without room: the run fails and says which one it is, the ledger stays as it was, and with room it goes on."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import CDN
from tests.playground import Make, Playground
from tests.submitted import WINDOW_JOB, Submitted
from tidemark import runs
from tidemark.errors import EXIT_FAILED

pytestmark = pytest.mark.full

_RAW: dict[str, Any] = {"scheme": {"type": "raw"}, "checks": []}
_NUMBER, _BYTES = 200, 500_000

Disk = Callable[[str], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Makes a disk of the given size."""
    mounted: list[Path] = []

    def made(size: str) -> Path:
        folder = tmp_path / f"disk-{size}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here, which takes root: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield made
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.covers("F18")
def test_the_disk_of_a_sink(make: Make, tmp_path: Path, disk: Disk) -> None:
    play = make(CDN, **_RAW)
    lake = disk("16m")
    variables = {"AIRFLOW_CONN_LAKE_DEFAULT": json.dumps({"conn_type": "fs", "extra": {"path": str(lake)}})}
    fails_and_goes_on(play, tmp_path, f"The disk of file:{lake}/", **variables)


@pytest.mark.covers("F18")
def test_the_disk_of_sparks_scratch_files(make: Make, tmp_path: Path, disk: Disk) -> None:
    # Room for the jars that Spark copies, and not for the rows that it has to keep there for want of memory.
    conf = {"spark.local.dir": str(disk("64m")), "spark.memory.fraction": "0.05"}
    fails_and_goes_on(make(CDN, **_RAW), tmp_path, "most likely that of Spark's scratch files", conf)


def fails_and_goes_on(
    play: Playground, folder: Path, said: str, conf: dict[str, str] | None = None, **variables: str
) -> None:
    play.kafka.send(_records(play.topics[0]))
    run = play.new_run()
    pending = runs.plan_ingest(play.opened, run)
    assert pending is not None
    arguments = ["--stream-file", str(play.file), "--lane", "ingest", "--seq", str(pending.window.seq), "--run", run]
    job = Submitted(play.site, folder / "full.log", WINDOW_JOB, *arguments, conf=conf, **variables)
    assert job.wait() == EXIT_FAILED, job.output[-3000:]
    (line,) = (line for line in job.output.splitlines() if line.startswith("tidemark: "))
    assert line.startswith("tidemark: ProcessingFailed: ")
    assert said in line
    assert "No space left on device" in line
    assert play.head().seq == 0
    now = play.head().pending
    assert now is not None
    assert now.window == pending.window

    Submitted(play.site, folder / "room.log", WINDOW_JOB, *arguments).succeeds()
    committed = play.head().last
    assert committed is not None
    assert sum(one.rows.number for one in committed.tallies) == _NUMBER
    assert len(play.independent.hbase().by_place()) == _NUMBER


def _records(topic: str) -> Iterator[tuple[str, int, bytes | None, bytes | None]]:
    """Random bytes, which no compression makes small."""
    chance = random.Random(1)
    for number in range(_NUMBER):
        yield topic, number % 4, None, chance.randbytes(_BYTES)
