"""Topics that are compacted: gaps are explained, and what compaction removes later is not taken for a difference."""

from __future__ import annotations

import time

import pytest
from kafka import KafkaProducer

from tests.support.compacted_topics import COMPACTED, wait_until_left
from tests.support.cuts import crash, cut_after
from tests.support.damage import delete_rows, rows_at
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tests.support.transactions import transaction
from tidemark.audit.levels import Level
from tidemark.commit.protocol import Step
from tidemark.ledger.records import LaneKind
from tidemark.spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def live(make: Make) -> LiveStream:
    """A stream of one topic with one partition, which is compacted."""
    made = make(CDN)
    topic = f"{made.name}-compacted"
    made.kafka.create(topic, 1, **COMPACTED)
    made.topics = (topic,)
    made.rewrite()
    return made


def send(live: LiveStream, *keys: str) -> None:
    lines = [value for _, value in CDN.generate(len(keys), 0)]
    live.kafka.send([(live.topics[0], 0, key.encode(), line) for key, line in zip(keys, lines, strict=True)])


@pytest.mark.covers("A17", "F10", "N3")
def test_offsets_without_a_message_are_explained(live: LiveStream) -> None:
    topic = live.topics[0]
    send(live, *"01234", *"8888")
    time.sleep(0.5)
    send(live, "9")
    wait_until_left(live, [0, 1, 2, 3, 4, 8, 9], 10)
    (record,) = live.ingest()
    assert (sum(tally.read.number for tally in record.tallies), live.positions()) == (7, {(topic, 0): 10})
    report = audit(live.opened, "audit")
    assert (report.clean, report.expected) == (True, 7), report.sentence()
    assert sum(place.missing for place in report.places) == 0
    (gap,) = report.gaps
    assert (gap.offsets, gap.messages, gap.ranges, gap.unexplained) == (10, 7, (f"{topic}/0@5-8",), 0)


@pytest.mark.covers("E7")
def test_what_is_compacted_after_it_was_read_is_not_taken_for_a_difference(live: LiveStream) -> None:
    topic = live.topics[0]
    send(live, *"aabbcd")
    live.ingest()
    rows = len(live.independent.hbase().rows)
    time.sleep(0.5)
    send(live, "e")
    wait_until_left(live, [1, 3, 4, 5, 6], 7)
    report = audit(live.opened, "audit")
    assert (report.clean, report.expected) == (True, 4), report.sentence()
    (gap,) = report.gaps
    assert (gap.offsets, gap.messages, gap.compacted, gap.unexplained) == (6, 4, 2, 0)
    hbase = next(place for place in report.places if place.name == "hbase")
    assert (hbase.found, hbase.extra, hbase.found + hbase.compacted) == (hbase.expected, 0, rows)
    # So a block of rows is not for a replay, which would take the rows of the messages that are gone.
    delete_rows(live, live.name, 0, 0, *rows_at(live, 0, 0, 1))
    report = audit(live.opened, "sinks", level=Level.SINKS)
    assert (report.clean, report.findings, report.gone) == (False, None, 6), report.sentence()
    # A replay finds fewer messages than the ingest did, and then nothing else counts there.
    (again,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 6)))
    assert sum(tally.read.number for tally in again.tallies) == 4
    assert set(live.independent.hbase().by_place()) == {(topic, 0, offset, 0) for offset in (1, 3, 4, 5)} - {
        (*place, 0) for place in live.expected({(topic, 0): 6}).dead
    }
    assert audit(live.opened, "audit 2").clean


@pytest.mark.full
@pytest.mark.covers("E8")
def test_messages_that_are_compacted_before_a_retry(live: LiveStream) -> None:
    send(live, *"aabbcd")
    run = live.new_run()
    crash(live, run, on_step=cut_after(Step.SINK_STORED))
    time.sleep(0.5)
    send(live, "e")
    wait_until_left(live, [1, 3, 4, 5, 6], 7)
    (record,) = live.ingest(run)
    assert (record.window.ranges[0].until, sum(tally.read.number for tally in record.tallies)) == (6, 4)
    # The rows of the first attempt at offsets that are gone were swept.
    hbase = live.independent.hbase()
    assert {place[2] for place, _ in hbase.rows} <= {1, 3, 4, 5}
    assert hbase.debris == 0
    assert audit(live.opened, "audit").clean


@pytest.mark.full
@pytest.mark.covers("N3")
def test_transactions_are_explained_and_a_message_that_vanishes_is_not(make: Make) -> None:
    live = make(CDN)
    topic = live.topics[0]
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers, transactional_id=live.name)
    producer.init_transactions()
    transaction(live, producer, 10, end="commit")
    transaction(live, producer, 7, end="abort")
    producer.close()
    live.kafka.wait_for_stable_end(topic, 0, 19)
    live.ingest()
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    (gap,) = report.gaps
    assert (gap.partition, gap.offsets, gap.messages, gap.aborted, gap.markers) == (f"{topic}/0", 19, 10, 7, 2)
    assert gap.ranges == (f"{topic}/0@10-19",)
    # The topic is compacted for a while, as by a mistake, and two messages are gone: nothing explains that afterwards.
    live = make(CDN)
    topic = live.topics[0]
    live.kafka.send(
        [(topic, 0, key, value) for key, (_, value) in zip((b"a", b"a", b"a", b"b"), CDN.generate(4, 0), strict=True)]
    )
    live.ingest()
    set_topic(live, COMPACTED)
    time.sleep(0.5)
    live.kafka.send([(topic, 0, b"c", b"x")])
    wait_until_left(live, [2, 3, 4], 5)
    set_topic(live, {"cleanup.policy": "delete"})
    report = audit(live.opened, "audit")
    assert not report.clean
    (gap,) = report.gaps
    assert (gap.unexplained, gap.ranges) == (2, (f"{topic}/0@0-2",))
    assert "2 messages were counted when they were read and are gone" in report.sentence()


def set_topic(live: LiveStream, settings: dict[str, str]) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    live.kafka.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, live.topics[0], settings)])
    time.sleep(0.5)
