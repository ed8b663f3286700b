"""Into which sinks a repair of an audit's findings is replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.runs.auditing import repair_of

SINKS = TEXT.replace(
    "dead_letters:",
    "  - {type: hbase, name: second, table: more}\n  - {type: hbase, name: third, table: most}\ndead_letters:",
)


@pytest.mark.covers("N10", "N14")
@pytest.mark.parametrize(
    ("differ", "sinks"),
    [
        (("hbase",), ("hbase",)),
        (("second", "hbase"), ("hbase", "second")),
        (("hbase", "second", "third"), None),
        # A dead letter belongs to the message: only a replay into all sinks stores or removes it.
        (("hbase", "dead letters"), None),
        # Of an audit before the sink got another name.
        (("hbase", "gone"), None),
    ],
)
def test_only_the_sinks_that_differ_are_written(
    tmp_path: Path, differ: tuple[str, ...], sinks: tuple[str, ...] | None
) -> None:
    made = StreamInMemory(tmp_path, text=SINKS)
    made.ends((0, 20))
    made.ingest()
    found = made.opened.ledger.store_selection(offsets((0, 3, 4)))
    places = tuple(
        PlaceReport(
            name=name, expected=20, found=20, missing=int(name in differ), different=0, extra=0, twice=0, debris=0
        )
        for name in ("hbase", "second", "third", "dead letters", "gone")
    )
    report = AuditReport(
        stream="orders",
        run="run",
        at=1,
        code_version="1",
        coverage=(),
        ledger_problems=(),
        places=places,
        findings=found,
    )
    planned = repair_of(made.opened, report)
    assert planned is not None
    assert (planned.replay.sinks, planned.replay.all) == (sinks, offsets((0, 3, 4)))
    said = planned.described()["sinks"]
    assert said == (None if sinks is None else list(sinks))
    assert ("alone" in planned.sentence()) == (sinks is not None)
