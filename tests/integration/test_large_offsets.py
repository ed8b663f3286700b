"""A log whose offsets are the last that there are: exact everywhere, also beyond what JavaScript's numbers hold."""

from __future__ import annotations

import json
import secrets
import struct
from pathlib import Path

import pytest

from services import control
from services.site import Site
from tests.support.command_line import asked, tidemark
from tests.support.live_streams import RAW, Kafka, Make
from tests.support.oracle import CDN
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import MAX_OFFSET
from tidemark.spark.jobs.audit import audit
from tidemark.views.overview import overview

MESSAGES = 5
FIRST = MAX_OFFSET - 3 * MESSAGES


def move(site: Site, topic: str) -> None:
    """Let the log of a broker that is down begin at `FIRST`: its one segment is called so, and its one batch begins so."""
    folder = site.folder("kafka", "data", f"{topic}-0")
    (log,) = folder.glob("*.log")
    batch = log.read_bytes()
    assert struct.unpack_from(">qi", batch) == (0, len(batch) - 12), "the messages are not in one batch"
    for file in folder.glob("0*"):
        file.unlink()
    (folder / f"{FIRST:020d}.log").write_bytes(struct.pack(">q", FIRST) + batch[8:])
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        (site.folder("kafka", "data") / name).unlink(missing_ok=True)


@pytest.mark.covers("E51", "A33")
@pytest.mark.usefixtures("spark")
def test_offsets_are_exact_up_to_the_last_one(make: Make, other_kafka: tuple[Site, Kafka], tmp_path: Path) -> None:
    other, kafka = other_kafka
    topic = f"large-{secrets.token_hex(3)}"
    kafka.create(topic, 1)
    kafka.send([(topic, 0, None, b"%d" % number) for number in range(MESSAGES)], linger_ms=60_000)
    control.down(other, ("kafka",), report=lambda line: None)
    move(other, topic)
    control.up(other, ("kafka",), report=lambda line: None)

    live = make(CDN, source={"topics": [topic], "kafka": "kafka_other"}, limits={"max_records": MAX_OFFSET}, **RAW)
    live.topics = (topic,)
    (record,) = live.ingest()
    (window,) = record.window.ranges
    end = FIRST + MESSAGES
    assert (window.start, window.until) == (FIRST, end)
    assert {place[2]: fields["value"] for place, fields in live.independent.hbase().rows} == {
        FIRST + number: str(number) for number in range(MESSAGES)
    }
    # A replay of one record, by its coordinate as people write it.
    (again,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (end - 1, end)))
    assert [tally.read.number for tally in again.tallies] == [1]
    report = audit(live.opened, "an audit")
    assert (report.clean, report.expected) == (True, MESSAGES), report.sentence()
    # What people and other programs are shown: text, because JavaScript would round a number.
    (shown,) = overview(live.opened).partitions
    assert (shown.position, shown.end, shown.lag) == (end, end, 0)
    (status,) = asked("status", str(live.file))["partitions"]
    assert status["position"] == str(end)
    exported = tmp_path / "offsets.csv"
    tidemark("ledger", "export", str(live.file), "--to", f"csv:{exported}", "--group", "g", "--yes")
    assert exported.read_text().endswith(f",{topic},0,{end}\n")
    assert json.loads(live.opened.ledger.store.read(("head", "ingest")) or b"")["positions"] == [[topic, 1, 0, end]]
