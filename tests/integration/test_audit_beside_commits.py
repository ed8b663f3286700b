"""An audit while other runs commit: its verdict is about the ledger as it is at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.oracle import CDN
from tests.support.playground import Make, Playground
from tidemark.audit.report import AuditReport
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing
from tidemark.runs.requests.approval import People
from tidemark.runs.windows import lanes
from tidemark_spark.jobs.audit import audit
from tidemark_spark.jobs.steps import Steps
from tidemark_spark.jobs.window import process_windows

pytestmark = pytest.mark.usefixtures("spark")


def erase(play: Playground, wanted: RangeSet) -> None:
    opened = play.opened
    lane = erasing.open_erasure(opened, "erasure", erasing.choose(opened, wanted), "request 4711", People("ann"))
    pending = erasing.erase_without_spark(opened, lane, "erasure")
    if pending is not None:
        process_windows(opened, lane, pending.window.seq, "erasure")
    assert lanes.is_done(opened, lane)


def audit_and(play: Playground, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> AuditReport:
    """An audit that has read the messages, and has the sinks before it, when something else commits."""
    begin, acted = Steps.begin, []

    def beginning(steps: Steps, step: str, *given: Any) -> None:
        if step.startswith("comparing") and not acted:
            acted.append(step)
            act()
        begin(steps, step, *given)

    monkeypatch.setattr(Steps, "begin", beginning)
    report = audit(play.opened, "audit")
    monkeypatch.setattr(Steps, "begin", begin)
    assert acted
    return report


@pytest.fixture
def play(make: Make) -> Playground:
    play = make(CDN)
    sums = {"type": "hbase_aggregates", "table": f"{play.name}_sums", "block_offsets": 10}
    tables = [{"type": "hbase", "table": play.name}, {"type": "parquet", "folder": play.name}]
    play.rewrite(
        sinks=[*tables, {**sums, "key": ["host", "method"], "values": {"rows": "count", "all": {"sum": "size"}}}]
    )
    play.produce(120)
    play.ingest()
    return play


@pytest.mark.covers("N27")
def test_an_erasure_meanwhile_is_no_difference(play: Playground, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(place[:3] for place in play.expected().rows if place[0] == play.topics[0] and place[1] == 0)
    wanted = play.ranges(0, 0, (rows[3][2], rows[3][2] + 1))
    report = audit_and(play, monkeypatch, lambda: erase(play, wanted))
    assert report.clean, report.sentence()
    assert (report.findings, report.erased) == (None, 1)
    assert [one.offsets for one in report.tombstones] == [1]
    assert report.changed >= 1
    assert f"; {report.changed} offsets were read again or erased meanwhile" in report.sentence()
    after = audit(play.opened, "after")
    assert (after.clean, after.erased, after.changed) == (True, 1, 0), after.sentence()


@pytest.mark.full
@pytest.mark.covers("N27")
def test_a_difference_elsewhere_is_still_found(play: Playground, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(place[:3] for place in play.expected().rows if place[0] == play.topics[0] and place[1] == 0)
    lost, wanted = rows[0], play.ranges(0, 0, (rows[-1][2], rows[-1][2] + 1))
    gone = play.ranges(0, 0, (lost[2], lost[2] + 1))

    def both() -> None:
        # A sweep removes the row from the table, as nobody should.
        play.opened.result_table("hbase_default", play.name).sweep(gone, 1 << 61)
        erase(play, wanted)

    report = audit_and(play, monkeypatch, both)
    places = {one.name: one for one in report.places}
    assert (places["hbase"].missing, places["hbase"].missing_at) == (1, (f"{lost[0]}/0@{lost[2]}",))
    assert report.differences == 1, report.sentence()
    assert report.findings is not None
    assert play.opened.book.selection(report.findings) == gone


@pytest.mark.full
def test_an_ingest_meanwhile_is_not_unproven(play: Playground, monkeypatch: pytest.MonkeyPatch) -> None:
    def ingest() -> None:
        play.produce(60)
        play.ingest()

    report = audit_and(play, monkeypatch, ingest)
    assert report.clean, report.sentence()
    assert [one.unproven for one in report.places] == [0] * len(report.places)
    assert "contributions" not in report.sentence()
    assert report.changed == 0
