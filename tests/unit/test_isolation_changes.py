"""A change of the isolation level while a transaction is open: what it holds back was not cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.audit.source import source_reports
from tidemark.errors import Conflict, LogTruncated
from tidemark.ledger.records import LaneKind
from tidemark.runs.live import kafka_now
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.windows import ingest, lanes
from tidemark.runs.windows.changes_since_pin import changes_since_pin
from tidemark.streams.loading import load

ISOLATED = TEXT.replace("source:\n", "source:\n  isolation: ISOLATION\n")


def isolated(made: StreamInMemory, isolation: str, text: str = ISOLATED) -> None:
    made.opened.file.path.write_text(text.replace("ISOLATION", isolation))
    made.opened = replace(made.opened, file=load(made.opened.file.path))


@pytest.mark.parametrize("policy", ["accept", "fail"])
def test_what_an_open_transaction_holds_back_is_no_cut(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last stable offset lies below what uncommitted readers have read, and the log is as long as before."""
    monkeypatch.setattr(kafka_now, "_STALE_PAUSE_SECONDS", 0.0)
    text = ISOLATED.replace("source:\n", f"source:\n  on_truncated: {policy}\n")
    made = StreamInMemory(tmp_path, text=text.replace("ISOLATION", "read_uncommitted"))
    made.ends((0, 20))
    made.ingest("run 1")
    made.kafka.stable = 12
    isolated(made, "read_committed", text)
    assert made.ingest("run 2") is None
    # An audit sees no cut either.
    register = made.opened.ledger.register()
    assert register is not None
    logs = made.kafka.topics(["orders"], "read_committed")
    (report,) = source_reports({at(0): 20}, offsets((0, 0, 20)), logs, register[1].topics)
    assert report.problem is None
    made.kafka.stable = None
    made.ends((0, 25))
    made.ingest("run 3")
    covered = [str(one) for window in made.opened.ledger.committed() for one in window.covers]
    assert covered == ["orders/0@0-20", "orders/0@20-25"]
    register = made.opened.ledger.register()
    assert register is not None
    assert [one.incarnation for one in register[1].topics["orders"]] == [1]
    # Below the end of the log itself, it was cut.
    made.kafka.stable = 12
    made.ends((0, 15))
    if policy == "fail":
        with pytest.raises(LogTruncated, match="orders/0 ends at 15, below 25"):
            made.ingest("run 4")
        return
    made.ingest("run 4")
    register = made.opened.ledger.register()
    assert register is not None
    assert [one.starts for one in register[1].topics["orders"]] == [(), ((0, 15),)]


@pytest.mark.covers("E3")
def test_a_window_is_committed_beside_what_a_transaction_holds_back(tmp_path: Path) -> None:
    """A partition of which it reads nothing has its position above the last stable offset, and was not cut."""
    made = StreamInMemory(tmp_path, text=ISOLATED.replace("ISOLATION", "read_uncommitted"))
    made.ends((0, 20), (0, 5))
    made.ingest("run 1")
    isolated(made, "read_committed")
    made.kafka.stable = 12
    made.ends((0, 20), (0, 9))
    pending = ingest.plan_ingest(made.opened, "run 2")
    assert pending is not None
    assert changes_since_pin(made.opened.log, pending.window) == []


def test_a_lane_waits_for_the_transaction_that_holds_its_offsets_back(tmp_path: Path) -> None:
    """They were claimed when they could be read, and nothing says that they were cut."""
    made = StreamInMemory(tmp_path, text=ISOLATED.replace("ISOLATION", "read_uncommitted"))
    made.ends((0, 20))
    made.ingest("run 1")
    lane = claim_lane(made.opened, LaneKind.REPLAY, "again", offsets((0, 5, 18)), "a test", Requesters("ann"))
    made.kafka.stable = 12
    isolated(made, "read_committed")
    with pytest.raises(Conflict, match=r"orders/0@12-18 cannot be read now: a transaction that has not ended"):
        lanes.plan_lane(made.opened, lane, "again")
    made.kafka.stable = None
    assert lanes.plan_lane(made.opened, lane, "again") is not None
    assert made.opened.ledger.covers(made.process(lane, "again").window) == offsets((0, 5, 18))
