"""An audit while other runs commit: its verdict is about the ledger as it is at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tidemark.audit.report import AuditReport
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.windows import lanes
from tidemark.sinks.hbase.table import stream_table
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.steps import Steps

pytestmark = pytest.mark.usefixtures("spark")


def erase(live: LiveStream, wanted: RangeSet) -> None:
    opened = live.opened
    lane = erasing.open_erasure(opened, "erasure", erasing.choose(opened, wanted), "request 4711", Requesters("ann"))
    erasing.erase(opened, lane, "erasure")
    assert lanes.is_done(opened, lane)


def audit_and(live: LiveStream, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> AuditReport:
    """An audit that has read the messages, and has the sinks before it, when something else commits."""
    begin, acted = Steps.begin, []

    def beginning(steps: Steps, step: str, *given: Any) -> None:
        if step.startswith("comparing") and not acted:
            acted.append(step)
            act()
        begin(steps, step, *given)

    monkeypatch.setattr(Steps, "begin", beginning)
    report = audit(live.opened, "audit")
    monkeypatch.setattr(Steps, "begin", begin)
    assert acted
    return report


@pytest.fixture
def live(make: Make) -> LiveStream:
    live = make(CDN)
    sums = {"type": "hbase_aggregates", "table": f"{live.name}_sums", "folder": f"{live.name}_sums"}
    tables = [{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}]
    live.rewrite(
        sinks=[*tables, {**sums, "key": ["host", "method"], "values": {"rows": "count", "all": {"sum": "size"}}}]
    )
    live.produce(120)
    live.ingest()
    return live


@pytest.mark.full
@pytest.mark.covers("N27")
def test_an_erasure_meanwhile_is_no_difference(live: LiveStream, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(place[:3] for place in live.expected().rows if place[0] == live.topics[0] and place[1] == 0)
    wanted = live.ranges(0, 0, (rows[3][2], rows[3][2] + 1))
    report = audit_and(live, monkeypatch, lambda: erase(live, wanted))
    assert report.clean, report.sentence()
    assert (report.findings, report.erased) == (None, 1)
    assert [one.offsets for one in report.tombstones] == [1]
    assert report.changed >= 1
    assert f"; {report.changed} offsets were read again or erased meanwhile" in report.sentence()
    after = audit(live.opened, "after")
    assert (after.clean, after.erased, after.changed) == (True, 1, 0), after.sentence()


@pytest.mark.full
@pytest.mark.covers("N27")
def test_a_difference_elsewhere_is_still_found(live: LiveStream, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(place[:3] for place in live.expected().rows if place[0] == live.topics[0] and place[1] == 0)
    lost, wanted = rows[0], live.ranges(0, 0, (rows[-1][2], rows[-1][2] + 1))
    gone = live.ranges(0, 0, (lost[2], lost[2] + 1))

    def both() -> None:
        # A sweep removes the row from the table, as nobody should.
        stream_table(live.opened, "hbase_default", live.name).sweep(gone, 1 << 61)
        erase(live, wanted)

    report = audit_and(live, monkeypatch, both)
    places = {one.name: one for one in report.places}
    assert (places["hbase"].missing, places["hbase"].missing_at) == (1, (f"{lost[0]}/0@{lost[2]}",))
    assert report.differences == 1, report.sentence()
    assert report.findings is not None
    assert live.opened.ledger.selection(report.findings) == gone


@pytest.mark.full
def test_an_ingest_meanwhile_is_no_difference(live: LiveStream, monkeypatch: pytest.MonkeyPatch) -> None:
    def ingest() -> None:
        live.produce(60)
        live.ingest()

    report = audit_and(live, monkeypatch, ingest)
    assert report.clean, report.sentence()
    assert report.changed == 0
