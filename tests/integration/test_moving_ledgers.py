"""A ledger that moves to another server while a job is at work, and comes back from a backup: nothing is read twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import tidemark
from tests.support.live_streams import LiveStream
from tests.support.oracle import LEDGERS
from tidemark.commit.protocol import Step
from tidemark.errors import Fenced
from tidemark.ledger.records import LaneKind
from tidemark.spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")

THERE = {"hbase": "zookeeper", "zookeeper": "hbase"}


@pytest.mark.full
@pytest.mark.covers("N13")
def test_a_ledger_moves_under_a_job_at_work(live: LiveStream, ledger: str, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    live.produce(120)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 5), (7, 8)))
    live.produce(60)

    def move(step: Step) -> None:
        if step == Step.VERIFIED:
            command = ("ledger", "backup", str(live.file), backup, "--final", "--yes", "--reason", "moved", "--json")
            assert json.loads(tidemark(*command)[0])["lanes"]["ingest"] == 1

    with pytest.raises(Fenced):
        live.ingest(on_step=move)
    _, said = tidemark("run", str(live.file), code=2)
    assert "was retired, and is used no more: moved. Name the ledger that replaces it in the stream file" in said

    live.rewrite(ledger=LEDGERS[THERE[ledger]])
    _, said = tidemark("ledger", "restore", "--yes", str(live.file), backup, "--audit", "source")
    assert "the ledger is whole\naudit, level source: " in said
    assert f"To prove the results: tidemark audit {live.name}" in said
    assert len(live.ingest()) == 1
    live.produce(30)
    live.ingest()
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.expected) == (True, 210)
    assert tidemark("ledger", "verify", str(live.file))[0].startswith(f"{live.name}: 4 windows")


@pytest.mark.full
@pytest.mark.covers("N13")
def test_a_lost_ledger_comes_back_from_an_older_backup(live: LiveStream, ledger: str, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    live.produce(120)
    live.ingest()
    tidemark("ledger", "backup", str(live.file), backup)
    # Committed, and lost with the ledger.
    live.produce(60)
    live.ingest()
    lost = live.ranges(0, 0, (3, 5))
    live.select(LaneKind.REPLAY, lost)
    place = {"hbase": {"table": f"{live.name}_restored"}, "zookeeper": {"path": f"/{live.name}_restored"}}[ledger]
    live.rewrite(ledger={**LEDGERS[ledger], **place})
    tidemark("ledger", "restore", "--yes", str(live.file), backup)
    _, said = tidemark("ledger", "restore", "--yes", str(live.file), backup, code=2)
    assert f"{live.name} has a ledger here already" in said
    (record,) = live.ingest()
    assert sum(one.read.number for one in record.tallies) == 60
    live.produce(30)
    live.ingest()
    # The rows of the lost windows are debris: no reader takes them. Where the lost replay wrote over rows, they are missing.
    report = audit(live.opened, live.new_run())
    assert report.expected == 210
    assert "different 0, extra 0, twice 0" in report.sentence()
    if report.findings is not None:
        assert live.opened.ledger.selection(report.findings) == lost
    live.select(LaneKind.REPLAY, lost)
    assert "missing 0, different 0, extra 0, twice 0" in audit(live.opened, live.new_run()).sentence()


@pytest.mark.full
@pytest.mark.covers("N13")
def test_a_ledger_that_lost_its_register_and_heads_is_rebuilt(live: LiveStream, ledger: str, tmp_path: Path) -> None:
    rebuilt = str(tmp_path / "rebuilt")
    live.produce(120)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 5), (7, 8)))
    live.produce(60)
    live.ingest()
    values = dict(live.opened.ledger.store.scan(()))

    def place(name: str) -> None:
        places = {"hbase": {"table": f"{live.name}_{name}"}, "zookeeper": {"path": f"/{live.name}_{name}"}}
        live.rewrite(ledger={**LEDGERS[ledger], **places[ledger]})

    # A place that has all but the register and the heads.
    place("damaged")
    store = live.opened.ledger.store
    store.prepare()
    for key, value in values.items():
        if key[0] not in ("register", "head"):
            store.put(key, value)
    _, said = tidemark("run", str(live.file), code=7)
    assert "it was lost" in said
    _, said = tidemark("ledger", "rebuild", "--yes", str(live.file), rebuilt)
    assert "was missing: the register" in said
    assert "was missing: the head of ingest" in said
    place("rebuilt")
    _, said = tidemark("ledger", "restore", "--yes", str(live.file), rebuilt)
    assert "the ledger is whole" in said
    live.produce(30)
    (record,) = live.ingest()
    assert (record.seq, sum(one.read.number for one in record.tallies)) == (3, 30)
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.expected) == (True, 210)
