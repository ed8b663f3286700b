"""What docs/adding-a-sink.md says is so: its code is run as it stands there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.covering import REPOSITORY
from tests.oracle import ORDERS, Place
from tests.playground import Make
from tidemark.ledger.records import LaneKind
from tidemark.protocol import Step
from tidemark.results.sweeping import SinkSweeper
from tidemark_spark import window_job

GUIDE = REPOSITORY / "docs" / "adding-a-sink.md"
IMPORTS = """
from __future__ import annotations
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from pyspark.sql import DataFrame
from tidemark.ledger.book import Book
from tidemark.ledger.records import SinkReceipt
from tidemark.ranges import TopicPartition
from tidemark.results import parquet_files
from tidemark.streams.schemes import Fields
from tidemark.tallies import Acknowledgements
from tidemark_spark.columns import COORDINATE, INDEX
from tidemark_spark.sinks.acknowledging import held_by
from tidemark_spark.sinks.contract import Mission
"""

pytestmark = pytest.mark.usefixtures("spark")


class Cut(BaseException):
    """A crash."""


def test_the_sink_of_the_guide_stores_each_row_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, reader = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(GUIDE.read_text().splitlines()) <= 60
    guide: dict[str, Any] = {"__name__": "guide"}
    exec(IMPORTS + sink + reader, guide)

    play = make(ORDERS)
    base = f"file://{play.site.folder('lake')}/{play.name}-lines"
    monkeypatch.setattr(window_job, "make_sinks", lambda opened: [guide["JsonLines"](base, play.fields)])

    # Its line among the sweeps, as the guide says: there is nothing to remove.
    others = SinkSweeper._sweep_one
    monkeypatch.setattr(
        SinkSweeper, "_sweep_one", lambda self, sink, *rest: sink.type == "json_lines" or others(self, sink, *rest)
    )

    def cut(step: Step) -> None:
        if step == Step.VERIFIED:
            raise Cut

    def counting() -> dict[Place, tuple[Any, Any]]:
        rows = list(guide["rows_that_count"](play.opened.book, "json_lines"))
        found = {(row["_topic"], row["_partition"], row["_offset"], row["_index"]): row for row in rows}
        assert len(found) == len(rows)
        return {place: (row.get("id"), row.get("customer")) for place, row in found.items()}

    def wanted() -> dict[Place, tuple[Any, Any]]:
        rows = play.expected().rows.items()
        return {place: (int(row["id"]) if row else None, row.get("customer")) for place, row in rows}

    play.produce(300)
    with pytest.raises(Cut):
        play.ingest("mine", on_step=cut)
    assert counting() == {}
    play.ingest("mine")
    assert counting() == wanted()
    # After a replay of a part, of each coordinate the newer row counts and no other.
    with pytest.raises(Cut):
        play.select(LaneKind.REPLAY, play.ranges(0, 0, (5, 15)), "again", on_step=cut)
    assert counting() == wanted()
    play.select(LaneKind.REPLAY, play.ranges(0, 0, (20, 30)))
    assert counting() == wanted()
