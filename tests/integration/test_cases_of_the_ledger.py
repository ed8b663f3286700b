"""Cases of other systems about positions, on real Kafka and real ledgers; the work on the data does nothing."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import tidemark
from tests.support.oracle import CDN, LEDGERS
from tests.support.playground import Make, Playground
from tests.support.protocol_world import NoWork, Sweeps, hold
from tidemark.commit import protocol
from tidemark.errors import EXIT_LEDGER_UNREADABLE
from tidemark.ledger.records import INGEST, Record
from tidemark.runs.windows import ingest, lanes


def commit(play: Playground) -> Record:
    """Plan the next window of the ingest and commit it."""
    opened, run = play.opened, play.new_run()
    pending = ingest.plan_ingest(opened, run)
    assert pending is not None
    me = lanes.this_run(opened, run)
    return protocol.process(opened.book, Sweeps(), NoWork(), hold, INGEST, pending.window.seq, me)


def ranges(record: Record) -> dict[int, tuple[int, int]]:
    return {one.partition: (one.start, one.until) for one in record.window.ranges}


@pytest.mark.covers("A04")
def test_a_position_that_kafka_no_longer_has_and_the_policy_earliest(make: Make, ledger: str) -> None:
    play = make(CDN, source={"on_out_of_range": "earliest"}, ledger=LEDGERS[ledger])
    place = (play.topics[0], 0)
    play.kafka.send([(*place, None, b"x")] * 5)
    commit(play)
    assert play.positions()[place] == 5
    play.kafka.send([(*place, None, b"x")] * 5)
    play.kafka.delete_records(*place, 9)
    record = commit(play)
    assert ranges(record)[0] == (9, 10)
    assert [(gap.kind.value, gap.start, gap.until) for gap in record.window.gaps] == [("lost", 5, 9)]
    assert play.positions()[place] == 10


@pytest.mark.covers("A26")
def test_a_start_behind_the_end_is_named(make: Make) -> None:
    play = make(CDN)
    topic = play.topics[0]
    play.kafka.send([(topic, 0, None, b"x")])
    play.rewrite(source={"start": {"offsets": {f"{topic}/0": 3}, "others": "earliest"}})
    _, said = tidemark("plan", str(play.file), code=2)
    assert f"{topic}/0" in said
    assert "3" in said.split(f"{topic}/0", 1)[1]
    assert "1" in said.split(f"{topic}/0", 1)[1]
    assert list(play.opened.book.store.scan(())) == []


@pytest.mark.covers("E29", "E32")
def test_an_empty_partition_and_offset_0_are_positions_like_others(make: Make, ledger: str) -> None:
    play = make(CDN, ledger=LEDGERS[ledger])
    topic = play.topics[0]
    play.kafka.send([(topic, 2, None, b"x")] * 4)
    assert ranges(commit(play)) == {0: (0, 0), 1: (0, 0), 2: (0, 4), 3: (0, 0)}
    play.kafka.send([(topic, 1, None, b"x")])
    # The others are in the next plan too, and read nothing.
    assert ranges(commit(play)) == {0: (0, 0), 1: (0, 1), 2: (4, 4), 3: (0, 0)}
    stored = json.loads(play.opened.book.store.read(("head", INGEST)) or b"")
    assert stored["positions"] == [[topic, 1, 0, 0], [topic, 1, 1, 1], [topic, 1, 2, 4], [topic, 1, 3, 0]]


@pytest.mark.covers("A37")
def test_garbage_in_the_ledger_stops_the_stream_and_is_left(make: Make, ledger: str) -> None:
    play = make(CDN, ledger=LEDGERS[ledger])
    play.produce(8)
    commit(play)
    store = play.opened.book.store
    before = store.read(("head", INGEST))
    assert store.swap(("head", INGEST), before, b"garbage")
    play.produce(8)
    for command in (["plan"], ["status"], ["run"]):
        _, said = tidemark(*command, str(play.file), code=EXIT_LEDGER_UNREADABLE)
        assert "garbage" in said
    assert store.read(("head", INGEST)) == b"garbage"
    # Put right by hand, the stream goes on where it was.
    assert store.swap(("head", INGEST), b"garbage", before or b"")
    assert ranges(commit(play)) == dict.fromkeys(range(4), (2, 4))
