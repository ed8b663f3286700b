"""A ledger that moves to another server while a job is at work, and comes back from a backup: nothing is read twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import tidemark
from tests.support.oracle import LEDGERS
from tests.support.playground import Playground
from tidemark.commit.protocol import Step
from tidemark.errors import Fenced
from tidemark.ledger.records import LaneKind
from tidemark_spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")

THERE = {"hbase": "zookeeper", "zookeeper": "hbase"}


@pytest.mark.full
@pytest.mark.covers("N13")
def test_a_ledger_moves_under_a_job_at_work(play: Playground, ledger: str, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    play.produce(120)
    play.ingest()
    play.select(LaneKind.REPLAY, play.ranges(0, 0, (3, 5), (7, 8)))
    play.produce(60)

    def move(step: Step) -> None:
        if step == Step.VERIFIED:
            command = ("ledger", "backup", str(play.file), backup, "--final", "--yes", "--reason", "moved", "--json")
            assert json.loads(tidemark(*command)[0])["lanes"]["ingest"] == 1

    with pytest.raises(Fenced):
        play.ingest(on_step=move)
    _, said = tidemark("run", str(play.file), code=2)
    assert "was retired, and is used no more: moved. Name the ledger that replaces it in the stream file" in said

    play.rewrite(ledger=LEDGERS[THERE[ledger]])
    _, said = tidemark("ledger", "restore", "--yes", str(play.file), backup, "--audit", "source")
    assert "the ledger is whole\naudit, level source: " in said
    assert f"To prove the results: tidemark audit {play.name}" in said
    assert len(play.ingest()) == 1
    play.produce(30)
    play.ingest()
    report = audit(play.opened, play.new_run())
    assert (report.clean, report.expected) == (True, 210)
    assert tidemark("ledger", "verify", str(play.file))[0].startswith(f"{play.name}: 4 windows")


@pytest.mark.full
@pytest.mark.covers("N13")
def test_a_lost_ledger_comes_back_from_an_older_backup(play: Playground, ledger: str, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    play.produce(120)
    play.ingest()
    tidemark("ledger", "backup", str(play.file), backup)
    # Committed, and lost with the ledger.
    play.produce(60)
    play.ingest()
    lost = play.ranges(0, 0, (3, 5))
    play.select(LaneKind.REPLAY, lost)
    place = {"hbase": {"table": f"{play.name}_restored"}, "zookeeper": {"path": f"/{play.name}_restored"}}[ledger]
    play.rewrite(ledger={**LEDGERS[ledger], **place})
    tidemark("ledger", "restore", "--yes", str(play.file), backup)
    _, said = tidemark("ledger", "restore", "--yes", str(play.file), backup, code=2)
    assert f"{play.name} has a ledger here already" in said
    (record,) = play.ingest()
    assert sum(one.read.number for one in record.tallies) == 60
    play.produce(30)
    play.ingest()
    # The rows of the lost windows are debris: no reader takes them. Where the lost replay wrote over rows, they are missing.
    report = audit(play.opened, play.new_run())
    assert report.expected == 210
    assert "different 0, extra 0, twice 0" in report.sentence()
    if report.findings is not None:
        assert play.opened.book.selection(report.findings) == lost
    play.select(LaneKind.REPLAY, lost)
    assert "missing 0, different 0, extra 0, twice 0" in audit(play.opened, play.new_run()).sentence()


@pytest.mark.full
@pytest.mark.covers("N13")
def test_a_ledger_that_lost_its_register_and_heads_is_rebuilt(play: Playground, ledger: str, tmp_path: Path) -> None:
    rebuilt = str(tmp_path / "rebuilt")
    play.produce(120)
    play.ingest()
    play.select(LaneKind.REPLAY, play.ranges(0, 0, (3, 5), (7, 8)))
    play.produce(60)
    play.ingest()
    values = dict(play.opened.book.store.scan(()))

    def place(name: str) -> None:
        places = {"hbase": {"table": f"{play.name}_{name}"}, "zookeeper": {"path": f"/{play.name}_{name}"}}
        play.rewrite(ledger={**LEDGERS[ledger], **places[ledger]})

    # A place that has all but the register and the heads.
    place("damaged")
    store = play.opened.book.store
    store.prepare()
    for key, value in values.items():
        if key[0] not in ("register", "head"):
            store.put(key, value)
    _, said = tidemark("run", str(play.file), code=7)
    assert "it was lost" in said
    _, said = tidemark("ledger", "rebuild", "--yes", str(play.file), rebuilt)
    assert "was missing: the register" in said
    assert "was missing: the head of ingest" in said
    place("rebuilt")
    _, said = tidemark("ledger", "restore", "--yes", str(play.file), rebuilt)
    assert "the ledger is whole" in said
    play.produce(30)
    (record,) = play.ingest()
    assert (record.seq, sum(one.read.number for one in record.tallies)) == (3, 30)
    report = audit(play.opened, play.new_run())
    assert (report.clean, report.expected) == (True, 210)
