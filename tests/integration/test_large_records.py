"""Records of a megabyte, more of them than the memory of a job holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live_streams import RAW, LiveStream, Make
from tests.support.oracle import CDN
from tests.support.submitted import WINDOW_JOB, Submitted

_NUMBER, _BYTES = 1_000, 1_000_000


@pytest.mark.full
def test_more_than_the_memory_holds(make: Make, tmp_path: Path) -> None:
    live = make(CDN, **RAW)
    live.produce_incompressible(_NUMBER, _BYTES)

    run = live.new_run()
    _succeeds(live, tmp_path / "window.log", WINDOW_JOB, *live.job_arguments(run, live.pin(run).seq))
    committed = live.head().last
    assert committed is not None
    assert sum(one.rows.number for one in committed.tallies) == _NUMBER
    assert sum(one.bytes for one in committed.tallies) == _NUMBER * _BYTES

    said = _succeeds(
        live, tmp_path / "audit.log", WINDOW_JOB, "audit", "--stream-file", str(live.file), "--run", "audit"
    )
    # Of both sinks together.
    assert f"expected {_NUMBER}, stored {_NUMBER}, dead letters 0, missing 0, different 0" in said


def _succeeds(live: LiveStream, log: Path, script: Path, *arguments: str) -> str:
    """Run a job with Spark's default memory; gives what it said."""
    return Submitted(live.site, log, script, *arguments, conf={"spark.driver.memory": "1g"}).succeeds()
