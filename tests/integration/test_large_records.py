"""Records of a megabyte, more of them than the memory of a job holds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import CDN
from tests.playground import Make, Playground
from tests.submitted import AUDIT_JOB, WINDOW_JOB, Submitted
from tidemark import runs

_NUMBER, _BYTES = 1_000, 1_000_000
_RAW: dict[str, Any] = {"scheme": {"type": "raw"}, "checks": []}


@pytest.mark.full
def test_more_than_the_memory_holds(make: Make, tmp_path: Path) -> None:
    play = make(CDN, **_RAW)
    play.kafka.send(_records(play.topics[0]))

    run = play.new_run()
    pending = runs.plan_ingest(play.opened, run)
    assert pending is not None
    _succeeds(play, tmp_path / "window.log", WINDOW_JOB, run, "--lane", "ingest", "--seq", str(pending.window.seq))
    committed = play.head().last
    assert committed is not None
    assert sum(one.rows.number for one in committed.tallies) == _NUMBER
    assert sum(one.bytes for one in committed.tallies) == _NUMBER * _BYTES

    said = _succeeds(play, tmp_path / "audit.log", AUDIT_JOB, "audit")
    # Of both sinks together.
    assert f"expected {_NUMBER}, stored {_NUMBER}, set aside 0, missing 0, different 0" in said


def _succeeds(play: Playground, log: Path, script: Path, run: str, *arguments: str) -> str:
    """Run a job with Spark's default memory; gives what it said."""
    arguments = ("--stream-file", str(play.file), "--run", run, *arguments)
    return Submitted(play.site, log, script, *arguments, conf={"spark.driver.memory": "1g"}).succeeds()


def _records(topic: str) -> Iterator[tuple[str, int, bytes | None, bytes | None]]:
    """Random bytes, which no compression makes small."""
    chance = random.Random(1)
    for number in range(_NUMBER):
        yield topic, number % 4, None, chance.randbytes(_BYTES)
