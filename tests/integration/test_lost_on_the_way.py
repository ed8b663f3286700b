"""A message that gets lost between Kafka and the sinks: nothing is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.support.live_streams import Make
from tests.support.oracle import Example, Outcome
from tests.support.rows import BATCHES, KEPT, SINKS, TRANSFORMED
from tidemark.errors import VerificationFailed
from tidemark.spark.columns import OFFSET, PARTITION
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows import outcomes, pipeline

CALLED = Example(
    "calls",
    {
        "source": {"topics": []},
        "scheme": {
            "type": "function",
            "function": "tests.support.own_functions:work",
            "fields": {"number": "integer", "word": "string"},
        },
        "sinks": SINKS,
        "dead_letters": {"type": "hbase", "table": "-"},
    },
    ("calls",),
    3,
    lambda count, first: ((None, b"rows %d" % (number % 3)) for number in range(first, first + count)),
    lambda value: Outcome(None, None),
)


# No query of single rows, so that its rows are put beside their messages again.
IN_TWO = replace(
    TRANSFORMED,
    stream={
        **TRANSFORMED.stream,
        "transform": {**TRANSFORMED.stream["transform"], "sql": f"{KEPT} AND id < 30 UNION ALL {KEPT} AND id >= 30"},
    },
)
SELECTED = replace(
    CALLED,
    name="selected",
    stream={**CALLED.stream, "scheme": {"type": "string"}, "sinks": [{"type": "parquet", "folder": "-"}]},
    topics=("selected",),
)


# On the parameters: the steps of the full run show no more of the promise.
SHOWS = pytest.mark.covers("G1", "E45")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("stream", "module", "step"),
    [
        pytest.param(BATCHES, outcomes, "in_pieces", id="explode", marks=SHOWS),
        pytest.param(CALLED, outcomes, "called", id="function", marks=pytest.mark.full),
        pytest.param(IN_TWO, pipeline, "transformed", id="transform", marks=pytest.mark.full),
        pytest.param(SELECTED, outcomes, "with_outcomes", id="one pass", marks=SHOWS),
    ],
)
def test_a_step_that_loses_a_message(
    make: Make, stream: Example, module: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make(stream)
    live.produce(60)
    honest: Callable[..., DataFrame] = getattr(module, step)

    def loses_one(*given: Any, **named: Any) -> DataFrame:
        return honest(*given, **named).where((F.col(PARTITION) != 1) | (F.col(OFFSET) != 7))

    monkeypatch.setattr(module, step, loses_one)
    run = live.new_run()
    with pytest.raises(VerificationFailed, match=rf"{live.topics[0]}/1: read: 20, given an outcome: 19\. Nothing was"):
        live.ingest(run)
    # Neither the partition that was read short, nor the others.
    assert set(live.positions().values()) == {0}
    assert live.head().last is None

    monkeypatch.setattr(module, step, honest)
    (record,) = live.ingest(run)
    assert [tally.read.number for tally in record.tallies] == [20, 20, 20]
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()
