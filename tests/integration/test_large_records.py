"""Records of a megabyte, more of them than the memory of a job holds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle import CDN
from tests.playground import Make
from tests.submitted import WINDOW_JOB, Submitted
from tidemark import runs
from tidemark.errors import EXIT_DONE

_NUMBER, _BYTES = 1_000, 1_000_000


@pytest.mark.full
def test_more_than_the_memory_holds(make: Make, tmp_path: Path) -> None:
    play = make(CDN, scheme={"type": "raw"}, checks=[])
    play.kafka.send(_records(play.topics[0]))

    run = play.new_run()
    pending = runs.plan_ingest(play.opened, run)
    assert pending is not None
    arguments = ["--stream-file", str(play.file), "--lane", "ingest", "--seq", str(pending.window.seq), "--run", run]
    # Spark's default, of which a third is for what is kept.
    memory = {"spark.driver.memory": "1g"}
    job = Submitted(play.site, tmp_path / "job.log", WINDOW_JOB, *arguments, conf=memory)
    try:
        assert job.wait(300) == EXIT_DONE, job.output[-3000:]
    finally:
        job.end()

    committed = play.head().last
    assert committed is not None
    assert sum(one.rows.number for one in committed.tallies) == _NUMBER
    assert sum(one.bytes for one in committed.tallies) == _NUMBER * _BYTES


def _records(topic: str) -> Iterator[tuple[str, int, bytes | None, bytes | None]]:
    """Random bytes, which no compression makes small."""
    chance = random.Random(1)
    for number in range(_NUMBER):
        yield topic, number % 4, None, chance.randbytes(_BYTES)
