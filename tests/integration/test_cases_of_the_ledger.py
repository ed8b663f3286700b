"""Cases of other systems about positions, on real Kafka and real ledgers; the work on the data does nothing."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS
from tests.support.protocol_world import NoWork, Sweeps, hold
from tidemark.commit import protocol
from tidemark.errors import EXIT_LEDGER_UNREADABLE
from tidemark.ledger.records import INGEST, Record
from tidemark.runs.windows import ingest, lanes


def commit(live: LiveStream) -> Record:
    """Plan the next window of the ingest and commit it."""
    opened, run = live.opened, live.new_run()
    pending = ingest.plan_ingest(opened, run)
    assert pending is not None
    me = lanes.this_run(opened, run)
    return protocol.process(opened.ledger, Sweeps(), NoWork(), hold, INGEST, pending.window.seq, me)


def ranges(record: Record) -> dict[int, tuple[int, int]]:
    return {one.partition: (one.start, one.until) for one in record.window.ranges}


@pytest.mark.covers("A04")
def test_a_position_that_kafka_no_longer_has_and_the_policy_earliest(make: Make, ledger: str) -> None:
    live = make(CDN, source={"on_out_of_range": "earliest"}, ledger=LEDGERS[ledger])
    place = (live.topics[0], 0)
    live.kafka.send([(*place, None, b"x")] * 5)
    commit(live)
    assert live.positions()[place] == 5
    live.kafka.send([(*place, None, b"x")] * 5)
    live.kafka.delete_records(*place, 9)
    record = commit(live)
    assert ranges(record)[0] == (9, 10)
    assert [(gap.kind.value, gap.start, gap.until) for gap in record.window.gaps] == [("lost", 5, 9)]
    assert live.positions()[place] == 10


@pytest.mark.covers("A26")
def test_a_start_behind_the_end_is_named(make: Make) -> None:
    live = make(CDN)
    topic = live.topics[0]
    live.kafka.send([(topic, 0, None, b"x")])
    live.rewrite(source={"start": {"offsets": {f"{topic}/0": 3}, "others": "earliest"}})
    _, said = tidemark("plan", str(live.file), code=2)
    assert f"{topic}/0" in said
    assert "3" in said.split(f"{topic}/0", 1)[1]
    assert "1" in said.split(f"{topic}/0", 1)[1]
    assert list(live.opened.ledger.store.scan(())) == []


@pytest.mark.covers("E29", "E32")
def test_an_empty_partition_and_offset_0_are_positions_like_others(make: Make, ledger: str) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    topic = live.topics[0]
    live.kafka.send([(topic, 2, None, b"x")] * 4)
    assert ranges(commit(live)) == {0: (0, 0), 1: (0, 0), 2: (0, 4), 3: (0, 0)}
    live.kafka.send([(topic, 1, None, b"x")])
    # The others are in the next plan too, and read nothing.
    assert ranges(commit(live)) == {0: (0, 0), 1: (0, 1), 2: (4, 4), 3: (0, 0)}
    stored = json.loads(live.opened.ledger.store.read(("head", INGEST)) or b"")
    assert stored["positions"] == [[topic, 1, 0, 0], [topic, 1, 1, 1], [topic, 1, 2, 4], [topic, 1, 3, 0]]


@pytest.mark.covers("A37")
def test_garbage_in_the_ledger_stops_the_stream_and_is_left(make: Make, ledger: str) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    live.produce(8)
    commit(live)
    store = live.opened.ledger.store
    before = store.read(("head", INGEST))
    assert store.swap(("head", INGEST), before, b"garbage")
    live.produce(8)
    for command in (["plan"], ["status"], ["run"]):
        _, said = tidemark(*command, str(live.file), code=EXIT_LEDGER_UNREADABLE)
        assert "garbage" in said
    assert store.read(("head", INGEST)) == b"garbage"
    # Put right by hand, the stream goes on where it was.
    assert store.swap(("head", INGEST), b"garbage", before or b"")
    assert ranges(commit(live)) == dict.fromkeys(range(4), (2, 4))
