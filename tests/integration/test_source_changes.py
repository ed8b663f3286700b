"""Topics that are deleted, recreated or cut, and topics that come: what a stream does about it, by its policies."""

from __future__ import annotations

import secrets

import pytest

from services import control
from services.site import Site
from tests.support.live_streams import Kafka, LiveStream, Make
from tests.support.oracle import CDN, LEDGERS
from tests.support.truncated_logs import cut_log, send_one_by_one
from tidemark.errors import LogTruncated, TopicGone, TopicUnknown, WrongUse
from tidemark.ledger.incarnations import newest
from tidemark.ledger.records import Record, TopicIncarnation
from tidemark.runs.windows import ingest
from tidemark.spark.jobs.audit import audit
from tidemark.views.metrics import gauges
from tidemark.views.overview import overview


def read(record: Record) -> dict[tuple[str, int, int], tuple[int, int]]:
    """{(topic, incarnation, partition): (from, until)} of a window, without what was empty."""
    return {
        (one.topic, one.incarnation, one.partition): (one.start, one.until)
        for one in record.window.ranges
        if one.start < one.until
    }


def known(live: LiveStream, topic: str) -> TopicIncarnation:
    found = live.opened.ledger.register()
    assert found is not None
    return newest(found[1].topics, topic)


@pytest.mark.covers("E20", "E41")
@pytest.mark.usefixtures("spark")
def test_a_recreated_topic_that_a_policy_accepts_is_another_incarnation(live: LiveStream) -> None:
    topic = live.topics[0]
    partitions = live.example.partitions
    live.produce(40)
    live.ingest()
    before = live.positions()
    live.kafka.recreate(topic, partitions)
    lines = [value for _, value in live.example.generate(6, 900)]
    live.kafka.send([(topic, 0, None, value) for value in lines])
    live.rewrite(source={"by_topic": {topic: {"on_recreated": "accept"}}})
    (record,) = live.ingest()
    # From the log start, although the position was further on; the old one stays in the ledger.
    assert read(record)[topic, 2, 0] == (0, 6)
    offsets = {
        (at.incarnation, at.partition): offset for at, offset in live.head().offsets().items() if at.topic == topic
    }
    assert (offsets[1, 0], offsets[2, 0]) == (before[topic, 0], 6)
    event = known(live, topic).begun
    assert event is not None
    assert (event.change, event.policy, event.run) == ("recreated", "on_recreated: accept", record.window.run)
    # Offset 3 of the one and offset 3 of the other are two coordinates: both are there, and count.
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert report.expected == 6 + sum(
        until - start
        for (name, _, _), (start, until) in read(live.opened.ledger.committed()[0].record).items()
        if name != topic
    )
    assert live.ingest() == []


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_deleted_topic_that_a_policy_leaves_stops_nobody(make: Make) -> None:
    live = make(CDN)
    gone, stays = f"{live.name}-gone", live.topics[0]
    live.kafka.create(gone, 1)
    live.rewrite(source={"topics": [gone, stays]})
    lines = [value for _, value in live.example.generate(20, 0)]
    live.kafka.send([(topic, 0, None, value) for value in lines for topic in (gone, stays)])
    live.ingest()
    live.kafka.delete(gone)
    live.kafka.send([(stays, 0, None, value) for value in lines])
    with pytest.raises(TopicGone, match=f"topic {gone} no longer exists.*on_deleted: leave"):
        live.ingest()
    live.rewrite(source={"topics": [gone, stays], "on_deleted": "leave"})
    (record,) = live.ingest()
    assert read(record) == {(stays, 1, 0): (20, 40)}
    left = known(live, gone).left
    assert left is not None
    assert (left.change, left.policy) == ("deleted", "on_deleted: leave")
    # What was read of it stays where it is: the position, and the rows.
    assert {at.topic: offset for at, offset in live.head().offsets().items() if at.partition == 0} == {
        gone: 20,
        stays: 40,
    }
    report = audit(live.opened, "audit")
    assert (report.clean, report.by_tallies, report.unproven) == (True, 20, 0), report.sentence()
    # It may come back, as another topic.
    live.kafka.create(gone, 1)
    live.kafka.send([(gone, 0, None, lines[0])])
    live.rewrite(source={"topics": [gone, stays], "on_recreated": "accept"})
    (record,) = live.ingest()
    assert read(record) == {(gone, 2, 0): (0, 1)}


@pytest.mark.covers("S6", "E27")
@pytest.mark.usefixtures("spark")
def test_topics_by_a_pattern(make: Make) -> None:
    live = make(CDN, ledger=LEDGERS["zookeeper"])
    name = live.name
    live.rewrite(source={"topics": None, "pattern": f"{name}\\.in\\..*", "exclude": [".*-test"]})
    with pytest.raises(TopicUnknown, match=r"no topic matches source\.pattern"):
        live.ingest()
    line = next(live.example.generate(1, 0))[1]
    # Kafka itself refuses names that differ by `.` and `_` alone.
    names = ("in.a", "in.A", "in.a-b", "in.b")
    for topic in (*names, "in.a-test", "out.in.a"):
        live.kafka.create(f"{name}.{topic}", 1)
        live.kafka.send([(f"{name}.{topic}", 0, None, line)])
    (record,) = live.ingest()
    assert read(record) == {(f"{name}.{topic}", 1, 0): (0, 1) for topic in names}
    for places in (live.independent.hbase(), live.independent.parquet(live.fields)):
        assert sorted(place for place, _ in places.rows) == sorted((f"{name}.{topic}", 0, 0, 0) for topic in names)
    lags = [one for one in gauges(overview(live.opened)) if one.name == "lag" and one.topic]
    assert sorted((one.topic, one.value) for one in lags) == sorted((f"{name}.{topic}", 0) for topic in names)
    # A topic that comes later is found by the next plan, and read from its start.
    live.kafka.send([(f"{name}.in.a", 0, None, line)])
    pending = ingest.plan_ingest(live.opened, run := live.new_run())
    live.kafka.create(f"{name}.in.c", 2)
    live.kafka.send([(f"{name}.in.c", 1, None, line)])
    (pinned, following) = [*live.ingest(run), *live.ingest()]
    assert pending is not None
    assert pinned.window == pending.window
    assert read(following) == {(f"{name}.in.c", 1, 1): (0, 1)}
    # One that was read is missed when it is gone.
    live.kafka.delete(f"{name}.in.b")
    with pytest.raises(TopicGone, match=r"in\.b no longer exists"):
        live.ingest()


@pytest.mark.covers("S13", "A24")
@pytest.mark.usefixtures("spark")
def test_chosen_partitions(make: Make) -> None:
    live = make(CDN)
    topic = live.topics[0]
    live.produce(40)
    live.rewrite(source={"topics": None, "partitions": {topic: [1, 3, 9]}})
    with pytest.raises(WrongUse, match=rf"source\.partitions: {topic}/9 does not exist; there are 0 to 3") as caught:
        live.ingest()
    assert caught.value.exit_code == 2
    live.rewrite(source={"topics": None, "partitions": {topic: [1, 3]}})
    (record,) = live.ingest()
    assert read(record) == {(topic, 1, 1): (0, 10), (topic, 1, 3): (0, 10)}
    # Another choice: those that come begin at their start, the one that is left keeps its position.
    live.produce(4)
    live.rewrite(source={"topics": None, "partitions": {topic: [0, 1]}})
    (record,) = live.ingest()
    assert read(record) == {(topic, 1, 0): (0, 11), (topic, 1, 1): (10, 11)}
    assert live.positions()[topic, 3] == 10


# A log that is cut: what is left after a disk is restored from an older copy, or after an unclean election.


@pytest.mark.covers("N7", "A49", "E21", "F8")
@pytest.mark.usefixtures("spark")
def test_a_log_that_was_cut_stops_the_stream_even_when_it_has_grown_again(
    make: Make, other_kafka: tuple[Site, Kafka]
) -> None:
    other, kafka = other_kafka
    topic = f"logs-{secrets.token_hex(3)}"
    kafka.create(topic, 2)
    lines = [value for _, value in CDN.generate(60, 0) if value is not None]
    for partition in (0, 1):
        send_one_by_one(kafka, topic, partition, lines[:10])
    live = make(CDN, source={"topics": [topic], "kafka": "kafka_other"})
    live.ingest()
    before = live.opened.ledger.store.read(("head", "ingest"))

    control.down(other, ("kafka",), report=lambda line: None)
    cut_log(other, topic, 0, until=6)
    control.up(other, ("kafka",), report=lambda line: None)
    with pytest.raises(LogTruncated, match=f"{topic}/0 ends at 6, below 10") as caught:
        live.ingest()
    assert caught.value.exit_code == 4
    # The log grows over the position again: every offset looks valid, and the messages are others.
    send_one_by_one(kafka, topic, 0, lines[20:32])
    with pytest.raises(LogTruncated, match=rf"{topic}/0@6-10 is not what was read: the log was cut at 6"):
        live.ingest()
    with pytest.raises(LogTruncated):
        ingest.preview(live.opened)
    assert live.opened.ledger.store.read(("head", "ingest")) == before

    live.rewrite(source={"topics": [topic], "kafka": "kafka_other", "on_truncated": "accept"})
    window, _ = ingest.preview(live.opened)
    assert window is not None
    assert live.opened.ledger.store.read(("head", "ingest")) == before
    (record,) = live.ingest()
    assert record.window.ranges == window.ranges
    assert read(record) == {(topic, 2, 0): (6, 18)}
    event = known(live, topic).begun
    assert event is not None
    assert (event.change, event.policy) == ("truncated", "on_truncated: accept")
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert live.ingest() == []
