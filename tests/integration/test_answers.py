"""A replay in which not everything can be read: the rest is read, and each offset gets its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import KafkaProducer

from services import environment
from services.site import Site
from tests.support.command_line import asked, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tests.support.transactions import transaction

GOOD = b'1.2.3.4 - - [21/Nov/2026:07:10:00 +0000] "GET http://h/a HTTP/1.1" 200 5 0.1'
EXPIRED = "expired: Kafka no longer holds them"
STORED = "found and stored"

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def live(make: Make, site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveStream]:
    """Read: 25 messages of partition 0 with an aborted transaction before the last five, and 5 of partition 1, one garbage.

    After that the log of partition 0 was cut to begin at 10, and six messages have come that are not read yet.
    """
    for name, value in {**environment.spark(site), **environment.connections(site)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    made = make(CDN)
    topic = made.topics[0]
    made.kafka.send((topic, 0, None, GOOD) for _ in range(20))
    with closing(KafkaProducer(bootstrap_servers=made.kafka.servers, transactional_id=made.name)) as producer:
        producer.init_transactions()
        transaction(made, producer, 4, end="abort")
    made.kafka.send((topic, 0, None, GOOD) for _ in range(5))
    made.kafka.send((topic, 1, None, b"garbage" if offset == 3 else GOOD) for offset in range(5))
    made.kafka.wait_for_stable_end(topic, 0, 30)
    made.ingest()
    made.kafka.send((topic, 0, None, GOOD) for _ in range(6))
    made.kafka.delete_records(topic, 0, 10)
    return made


@pytest.mark.full
@pytest.mark.covers("N4")
def test_what_can_be_replayed_is_and_the_rest_is_answered(live: LiveStream) -> None:
    file, topic = str(live.file), live.topics[0]
    ranges = (f"{topic}/0@5-60", f"{topic}/1@0-5", f"{topic}/9@0-3", f"{live.name}-elsewhere/0@1-2")
    command = ("replay", file, *(word for one in ranges for word in ("--ranges", one)), "--reason", "a test")
    position, before = live.positions(), live.independent.generations()
    rows, files = live.independent.hbase().by_place(), live.independent.parquet(live.fields).by_place()
    everything = dict(live.opened.ledger.store.scan(()))

    left_out = {
        EXPIRED: (f"{topic}/0", 5, 10),
        "at or above the ingest position": (f"{topic}/0", 30, 36),
        "not in the topic yet: at or above its end": (f"{topic}/0", 36, 60),
        "never in the topic: it has no such partition": (f"{topic}/9", 0, 3),
        "the stream reads no such topic or partition": (f"{live.name}-elsewhere/0", 1, 2),
    }
    shown = asked(*command, "--dry-run")
    found = {
        why: (one["partition"], int(one["from"]), int(one["until"]))
        for why, part in shown["left_out"].items()
        for one in part["ranges"]
    }
    assert (shown["offsets"], found) == (25, left_out)
    out, _ = tidemark(*command, "--dry-run")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert f"{topic}/0 5 10 5 {EXPIRED}" in lines
    assert f"{topic}/0 10 30 20 to be read" in lines

    _, said = tidemark(*command, "--yes", "--strict", code=2)
    assert "tidemark: WrongUse: strict: 39 offsets cannot be read by a replay. " in said
    assert f"{EXPIRED}: {topic}/0@5-10; " in said
    _, said = tidemark("replay", "--yes", file, "--records", f"{topic}/0@5", "--reason", "a test", code=2)
    assert f"there is nothing to replay: {EXPIRED}: {topic}/0@5-6" in said
    assert dict(live.opened.ledger.store.scan(())) == everything

    done = json.loads(tidemark(*command, "--yes", "--json")[0])
    (window,) = done["windows"]
    assert (window["read"], window["stored"], window["dead_letters"]) == (20, 19, 1)
    answers = [
        (one["partition"], int(one["from"]), int(one["until"]), one["offsets"], one["answer"])
        for one in done["answers"]
    ]
    assert set(answers) == {
        (f"{topic}/0", 10, 20, 10, STORED),
        (f"{topic}/0", 20, 24, 4, "not there: of an aborted transaction"),
        (f"{topic}/0", 24, 25, 1, "not there: a transaction's mark"),
        (f"{topic}/0", 25, 30, 5, STORED),
        (f"{topic}/1", 0, 3, 3, STORED),
        (f"{topic}/1", 3, 4, 1, "found, a dead letter again: redrive 1 of 3"),
        (f"{topic}/1", 4, 5, 1, STORED),
        *((at, start, until, until - start, why) for why, (at, start, until) in left_out.items()),
    }
    assert sum(one[3] for one in answers) == 55 + 5 + 3 + 1

    # Exactly what was answered so was read again, each message is there once, and the ingest is where it was.
    after = live.independent.generations()
    again = {place for place, generation in after.items() if generation != before.get(place)}
    assert again == {(topic, 0, n) for n in range(10, 30)} | {(topic, 1, n) for n in range(5)}
    hbase, parquet = live.independent.hbase(), live.independent.parquet(live.fields)
    assert (hbase.twice(), parquet.twice(), hbase.debris) == (0, 0, 0)
    assert (hbase.by_place(), parquet.by_place()) == (rows, files)
    assert live.positions() == position
