"""What real topics do: transactions, deletion, truncation, recreation, new partitions, brokers that are away."""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from pyspark.sql import DataFrame

from services import control
from services.site import Site
from tests.support import damage
from tests.support.damage import delete_rows, rows_at
from tests.support.live_streams import RAW, Kafka, LiveStream, Make
from tests.support.oracle import CDN, Example, Outcome
from tests.support.transactions import transaction
from tests.support.waiting import until
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.commit import protocol
from tidemark.commit.protocol import Step
from tidemark.errors import (
    OffsetsOutOfRange,
    SourceChanged,
    TopicGone,
    TopicRecreated,
    TopicUnknown,
    Unreachable,
    WrongUse,
)
from tidemark.ledger.records import LaneKind
from tidemark.runs.windows import ingest
from tidemark.spark.jobs import window_work as work
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows.reading import read_offsets
from tidemark.spark.runtime.failures import translate

# Read in some thousands of fetches. Ten thousand rows at a time go to Python, and some more are fetched ahead.
MESSAGES = 50_000
# In ms, the last time that Spark can hold: it counts microseconds.
LARGEST = (2**63 - 1) // 1000
LINES = Example(
    "lines",
    {
        "source": {"fetch": {"max.partition.fetch.bytes": 10_000}},
        "scheme": {"type": "string"},
        "sinks": [{"type": "parquet", "folder": "-"}],
        "dead_letters": {"type": "hbase", "table": "-"},
    },
    ("lines",),
    1,
    lambda count, first: iter(()),
    lambda value: Outcome(None, None),
)


@pytest.fixture
def producer(make: Make) -> Iterator[tuple[LiveStream, KafkaProducer]]:
    """A stream of its own, and a producer that writes to its topic in transactions."""
    live = make(CDN)
    made = KafkaProducer(bootstrap_servers=live.kafka.servers, transactional_id=live.name)
    made.init_transactions()
    yield live, made
    made.close()


@pytest.mark.covers("F11", "E1", "E2", "E3", "E5", "E6")
@pytest.mark.usefixtures("spark")
def test_transactions(producer: tuple[LiveStream, KafkaProducer]) -> None:
    live, transactional = producer
    transaction(live, transactional, 10, end="commit")
    transaction(live, transactional, 7, end="abort")
    time.sleep(0.01)
    began = time.time_ns() // 1_000_000
    transaction(live, transactional, 5, end="open")
    live.kafka.wait_for_stable_end(live.topics[0], 0, 19)
    # The planner asks at the level that it is told: at the other one, the open transaction is part of the log.
    ends = live.opened.log.topics(live.topics, "read_uncommitted")[live.topics[0]].partitions
    assert ends[0].end == 24
    # So are times: the open transaction's first message is found at one level and not at the other.
    logs = live.opened.log.topics(live.topics, "read_uncommitted")
    times = [live.opened.log.first_at_or_after(logs, began, level) for level in ("read_uncommitted", "read_committed")]
    assert [found[live.topics[0], 0] for found in times] == [19, None]
    (record,) = live.ingest()
    # 10 records and their marker, 7 that were aborted and theirs; the open transaction holds the end back.
    window = next(one for one in record.window.ranges if one.partition == 0)
    assert (window.start, window.until) == (0, 19)
    (tally,) = (one for one in record.tallies if one.partition == 0)
    assert (tally.read.number, tally.first, tally.last) == (10, 0, 9)
    # A window that holds nothing but aborted records and markers commits, with nothing in it.
    transactional.abort_transaction()
    live.kafka.wait_for_stable_end(live.topics[0], 0, 25)
    (empty,) = live.ingest()
    assert sum(one.read.number for one in empty.tallies) == 0
    assert live.positions()[live.topics[0], 0] == 25
    live.assert_exactly_what_was_read()
    report = audit(live.opened, "audit")
    assert (report.clean, report.expected) == (True, 10), report.sentence()


@pytest.mark.covers("E14", "E2")
@pytest.mark.usefixtures("spark")
def test_many_fetches_that_give_nothing_are_not_the_end_of_a_range(make: Make) -> None:
    """An aborted transaction of many fetches between two messages: the consumer is handed nothing for a long while."""
    live = make(CDN, source={"fetch": {"max.partition.fetch.bytes": 1_000}}, **RAW)
    place = (live.topics[0], 0)
    live.kafka.send([(*place, None, b"first")])
    aborted = KafkaProducer(bootstrap_servers=live.kafka.servers, transactional_id=live.name, batch_size=2_000)
    aborted.init_transactions()
    aborted.begin_transaction()
    for _ in range(1_000):
        aborted.send(live.topics[0], b"x" * 500, partition=0)
    aborted.flush()
    aborted.abort_transaction()
    aborted.close()
    live.kafka.send([(*place, None, b"last")])
    live.kafka.wait_for_stable_end(*place, 1_003)
    (record,) = live.ingest()
    (tally,) = (one for one in record.tallies if one.partition == 0)
    assert (tally.read.number, tally.first, tally.last) == (2, 0, 1_002)
    assert live.positions()[place] == 1_003


@pytest.mark.covers("E13", "E16")
@pytest.mark.usefixtures("spark")
def test_windows_begin_and_end_within_a_producers_batch(make: Make) -> None:
    """The broker always gives whole batches: what lies before and after a window is no part of it."""
    live = make(CDN, limits={"max_records": 33}, **RAW)
    topic = live.topics[0]
    live.rewrite(
        source={"start": {"offsets": {f"{topic}/0": 10}, "others": "latest"}}, limits={"max_records": 33}, **RAW
    )
    producer = KafkaProducer(
        bootstrap_servers=live.kafka.servers, linger_ms=60_000, batch_size=100_000, compression_type="gzip"
    )
    for number in range(100):
        producer.send(topic, b"%d" % number, partition=0)
    producer.flush()
    producer.close()
    (log,) = live.site.folder("kafka", "data", f"{topic}-0").glob("*.log")
    # A batch begins with its first offset and the number of bytes that follow.
    first, size = struct.unpack_from(">qi", log.read_bytes())
    assert (first, size + 12) == (0, log.stat().st_size), "the messages are not in one batch"

    records = live.ingest()
    read = [next(tally for tally in record.tallies if tally.partition == 0) for record in records]
    assert [(tally.read.number, tally.first, tally.last) for tally in read] == [
        (33, 10, 42),
        (33, 43, 75),
        (24, 76, 99),
    ]
    rows = live.independent.hbase()
    assert rows.twice() == 0
    assert {place[2]: fields["value"] for place, fields in rows.rows} == {
        offset: str(offset) for offset in range(10, 100)
    }


@pytest.mark.covers("A01")
@pytest.mark.usefixtures("spark")
def test_a_topic_that_does_not_exist_is_not_created(make: Make) -> None:
    live = make(CDN, source={"topics": ["not-there"]})
    with pytest.raises(TopicUnknown, match="topic not-there does not exist") as never_read:
        ingest.plan_ingest(live.opened, "run")
    assert never_read.value.exit_code == 2
    assert "not-there" not in live.kafka.admin.list_topics()
    assert list(live.opened.ledger.store.scan(())) == []
    # Of a topic that has been read, it is a loss.
    live = make(CDN)
    live.produce(10)
    live.ingest()
    before = list(live.opened.ledger.store.scan(()))
    live.kafka.delete(live.topics[0])
    with pytest.raises(TopicGone, match=f"topic {live.topics[0]} no longer exists") as read:
        ingest.plan_ingest(live.opened, "run")
    live.kafka.create(live.topics[0], CDN.partitions)
    with pytest.raises(TopicRecreated):
        ingest.preview(live.opened)
    assert read.value.exit_code == 4
    assert list(live.opened.ledger.store.scan(())) == before


@pytest.mark.full
@pytest.mark.covers("A33", "C4", "E46")
@pytest.mark.usefixtures("spark")
def test_messages_whose_time_is_no_time(make: Make) -> None:
    """Nanoseconds where Kafka takes milliseconds, before and after the year 1970: those are dead letters, and no other."""
    live = make(CDN)
    settings = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    live.kafka.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, live.topics[0], settings)])
    live.produce(20)
    now, times = time.time_ns(), {}
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers, retries=0)
    for (key, value), at in zip(live.example.generate(4, 20), (now, 0, 1 - 2**63, LARGEST), strict=True):
        sent = producer.send(live.topics[0], value, key, partition=2, timestamp_ms=at, headers=[("a", b"b")])
        times[sent.get(timeout=30).offset] = at
    producer.close()
    live.produce(20)
    run = live.new_run()
    (record,) = live.ingest(run)
    assert sum(tally.read.number for tally in record.tallies) == 44
    assert len(live.independent.hbase().rows) + len(live.independent.hbase(f"{live.name}_dead").rows) == 44
    found = {}
    for place, fields in live.independent.hbase(f"{live.name}_dead").rows:
        if fields["reason"] == "timestamp out of range":
            found[place[2]] = fields["detail"]
            assert (place[1], fields["outcome"], "timestamp" in fields) == (2, "invalid", False)
            assert fields["headers"] == '[{"key":"a","value":"Yg=="}]'
    assert found == {at: f"{ms} ms since 1970" for at, ms in times.items() if ms in (now, 1 - 2**63)}
    report = audit(live.opened, "audit")
    # No tallies have times that Spark cannot hold, neither those of the window nor those that the audit counts.
    assert (report.clean, report.unchanged) == (True, 44), report.sentence()
    # Where rows differ, all of them are made again.
    (gone,) = rows_at(live, 0, 1, 1)
    delete_rows(live, live.name, 0, 1, gone)
    damaged = audit(live.opened, "again")
    assert damage.place(damaged, "hbase").missing_at == (f"{live.topics[0]}/1@{gone}",)


@pytest.mark.full
@pytest.mark.covers("E22")
@pytest.mark.usefixtures("spark")
def test_a_stream_that_starts_at_a_time(make: Make) -> None:
    """For each partition by itself: the first message at or after the time, in the order of the log."""
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    live = make(CDN)
    lines = [value for _, value in live.example.generate(12, 0)]
    minutes = {0: [-2, -1, 0, 1], 1: [-1, 5, -3, 6], 2: [-9, -8, -7, -6]}
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    for partition, times in minutes.items():
        for number, minute in enumerate(times):
            at = int((noon + timedelta(minutes=minute)).timestamp() * 1000)
            producer.send(live.topics[0], lines[number], partition=partition, timestamp_ms=at)
    producer.close()
    live.rewrite(source={"topics": list(live.topics), "start": noon.isoformat()})
    with pytest.raises(
        WrongUse, match=f"no message at or after .*12:00:00.* in {live.topics[0]}/2, {live.topics[0]}/3"
    ):
        live.ingest()
    assert live.opened.ledger.head("ingest") is None
    live.rewrite(source={"topics": list(live.topics), "start": {"time": noon.isoformat(), "if_none": "end"}})
    (record,) = live.ingest()
    # Partition 1: a late message behind the first one that fits is read too; a log is not split cleanly by time.
    read = {one.partition: (one.start, one.until) for one in record.window.ranges}
    assert read == {0: (2, 4), 1: (1, 4), 2: (4, 4), 3: (0, 0)}


@pytest.mark.full
@pytest.mark.covers("S4", "S5")
@pytest.mark.usefixtures("spark")
def test_what_a_policy_jumps_over_is_in_the_ledger_and_a_backfill_may_fill_what_is_left(make: Make) -> None:
    live = make(CDN)
    live.produce(60)
    live.ingest()
    before = live.positions()
    live.produce(60)
    topic = live.topics[0]
    ends = live.opened.log.topics([topic], "read_committed")[topic].partitions
    start = before[topic, 0] + 3
    live.kafka.delete_records(topic, 0, start)
    with pytest.raises(OffsetsOutOfRange, match=rf"{topic}/0@{before[topic, 0]}-{start} is no longer in Kafka"):
        live.ingest()
    assert live.positions() == before
    changes = {"source": {"topics": list(live.topics), "on_out_of_range": "earliest"}, "limits": {"max_behind": 5}}
    live.rewrite(**changes)
    (record,) = live.ingest()
    named = {(gap.kind.value, gap.topic, gap.partition, gap.start, gap.until) for gap in record.window.gaps}
    assert ("lost", topic, 0, before[topic, 0], start) in named
    assert ("skipped", topic, 1, before[topic, 1], ends[1].end - 5) in named
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    at = {one.partition: one for one in report.coverage}
    assert at[f"{topic}/0"].lost == (f"{topic}/0@{before[topic, 0]}-{start}",)
    assert at[f"{topic}/1"].skipped == (f"{topic}/1@{before[topic, 1]}-{ends[1].end - 5}",)
    assert not any(one.holes for one in report.coverage)
    # What was skipped is still in Kafka: a backfill reads it, and then it is no longer skipped.
    live.select(LaneKind.BACKFILL, live.ranges(0, 1, (before[topic, 1], ends[1].end - 5)))
    report = audit(live.opened, "audit 2")
    assert report.clean, report.sentence()
    assert {one.partition: one for one in report.coverage}[f"{topic}/1"].skipped == ()


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_stream_that_starts_at_offsets(make: Make) -> None:
    live = make(CDN)
    live.produce(40)
    start = {"offsets": {f"{live.topics[0]}/1": 4, f"{live.topics[0]}/3": 0}, "others": "latest"}
    live.rewrite(source={"topics": list(live.topics), "start": start})
    (record,) = live.ingest()
    assert {one.partition: (one.start, one.until) for one in record.window.ranges} == {
        0: (10, 10),
        1: (4, 10),
        2: (10, 10),
        3: (0, 10),
    }


@pytest.mark.covers("A02")
def test_a_broker_that_is_away(make: Make) -> None:
    live = make(CDN)
    live.produce(20)
    opened = replace(live.opened, log=KafkaLog(KafkaEndpoint("127.0.0.1:1"), timeout_ms=2_000))
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"Kafka at 127\.0\.0\.1:1 did not answer") as caught:
        ingest.plan_ingest(opened, "run")
    assert time.monotonic() - began < 10
    assert caught.value.exit_code == 5
    assert list(opened.ledger.store.scan(())) == []


@pytest.mark.covers("F7")
@pytest.mark.usefixtures("spark")
def test_a_broker_that_restarts_while_a_window_is_read(
    make: Make, other_kafka: tuple[Site, Kafka], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, kafka = other_kafka
    live = many_fetches(make, kafka, "kafka_other")
    run = live.new_run()
    window = live.pin(run)

    def restart(go_on: Callable[[], None]) -> None:
        control.down(other, ("kafka",), report=lambda line: None)
        go_on()
        control.up(other, ("kafka",), report=lambda line: None)

    with while_reading(monkeypatch, tmp_path, restart):
        (record,) = live.ingest(run)
    assert record.window == window
    assert [tally.read.number for tally in record.tallies] == [MESSAGES]
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


@pytest.mark.full
@pytest.mark.covers("F9")
@pytest.mark.usefixtures("spark")
def test_what_retention_deletes_while_a_window_is_read(
    make: Make, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = many_fetches(make, kafka)
    topic, left = live.topics[0], MESSAGES - 5
    # Spark's own error may be around it, as the job gets it.
    with (
        while_reading(monkeypatch, tmp_path, lambda go_on: kafka.delete_records(topic, 0, left)),
        pytest.raises(Exception) as caught,  # noqa: PT011
    ):
        live.ingest()
    problem = translate(caught.value)
    assert isinstance(problem, OffsetsOutOfRange), problem
    assert f"{topic}/0@0-{left}" in str(problem)
    assert (live.head().seq, live.positions()) == (0, {(topic, 0): 0})
    # The policy goes on where the log begins, in a new window, which names what is lost.
    live.rewrite(source={"topics": [topic], "on_out_of_range": "earliest"})
    protocol.abandon(live.opened.ledger, "ingest", "its offsets are gone", take_over=True)
    (record,) = live.ingest()
    assert [(gap.kind.value, gap.start, gap.until) for gap in record.window.gaps] == [("lost", 0, left)]
    assert [tally.read.number for tally in record.tallies] == [5]


def many_fetches(make: Make, kafka: Kafka, connection: str | None = None) -> LiveStream:
    """A stream with one partition, of which a fetch gives some ten messages."""
    topic = f"logs-{secrets.token_hex(3)}"
    kafka.create(topic, 1)
    kafka.send([(topic, 0, None, bytes(1_000))] * MESSAGES)
    live = make(LINES, source={**LINES.stream["source"], "topics": [topic], "kafka": connection})
    live.topics = (topic,)
    return live


@contextmanager
def while_reading(
    monkeypatch: pytest.MonkeyPatch, folder: Path, act: Callable[[Callable[[], None]], None]
) -> Iterator[None]:
    """Acts when the first messages have been read. The others are not until it has acted, or has called what it is given.

    Not by what Spark says of its stages: a short read may be over before, and whoever reads else is taken for it.
    """
    begun, going_on = folder / "begun", folder / "going on"

    def read_slowly(*what: Any, **how: Any) -> DataFrame:
        messages = read_offsets(*what, **how)

        def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                begun.touch()
                while not going_on.exists():
                    time.sleep(0.05)
                yield batch

        return messages.mapInArrow(wait, messages.schema)

    def wait_and_act() -> None:
        try:
            until(begun.exists, "nothing was read")
            act(going_on.touch)
        finally:
            going_on.touch()

    monkeypatch.setattr(work, "read_offsets", read_slowly)
    with ThreadPoolExecutor(1) as beside:
        acted = beside.submit(wait_and_act)
        yield
        acted.result()
    monkeypatch.setattr(work, "read_offsets", read_offsets)


@pytest.mark.covers("F12", "E20", "E26", "A29")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("again", [4, 3, 0], ids=["recreated", "with fewer partitions", "deleted"])
def test_a_topic_that_is_recreated_or_deleted_while_a_window_is_processed(make: Make, again: int) -> None:
    """`again`: with how many partitions."""
    live = make(CDN)
    live.produce(40)

    def change(step: Step) -> None:
        if step == Step.READ and again:
            live.kafka.recreate(live.topics[0], again)
            live.kafka.send([(live.topics[0], p, None, b"other") for p in range(again) for _ in range(50)])
        elif step == Step.READ:
            live.kafka.delete(live.topics[0])

    with pytest.raises(SourceChanged, match=f"topic {live.topics[0]} {'was recreated' if again else 'is gone'}"):
        live.ingest(on_step=change)
    assert live.head().seq == 0


@pytest.mark.full
@pytest.mark.covers("E20")
@pytest.mark.usefixtures("spark")
def test_a_recreated_topic_stops_the_stream_although_its_offsets_look_valid(make: Make) -> None:
    live = make(CDN)
    live.produce(40)
    live.ingest()
    before = live.opened.ledger.store.read(("head", "ingest"))
    live.kafka.recreate(live.topics[0], 4)
    with pytest.raises(SourceChanged):
        live.ingest()
    live.produce(400)
    with pytest.raises(TopicRecreated, match="it was deleted and created again"):
        live.ingest()
    live.kafka.delete(live.topics[0])
    with pytest.raises(TopicGone, match="no longer exists"):
        live.ingest()
    assert live.opened.ledger.store.read(("head", "ingest")) == before


@pytest.mark.full
@pytest.mark.covers("E19")
@pytest.mark.usefixtures("spark")
def test_records_that_are_deleted_before_they_are_read(make: Make) -> None:
    live = make(CDN)
    live.produce(80)
    live.ingest()
    live.produce(80)
    # Before the plan: the plan stops, and says which.
    live.kafka.delete_records(live.topics[0], 1, 25)
    with pytest.raises(OffsetsOutOfRange, match=rf"{live.topics[0]}/1@20-25 is no longer in Kafka"):
        live.ingest()
    assert live.head().seq == 1
    assert live.head().pending is None


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_records_that_are_deleted_between_plan_and_read(make: Make) -> None:
    live = make(CDN)
    live.produce(80)
    run = live.new_run()
    assert ingest.plan_ingest(live.opened, run) is not None
    live.kafka.delete_records(live.topics[0], 1, 5)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (Spark's own, as the job gets it)
        live.ingest(run)
    assert isinstance(translate(caught.value), OffsetsOutOfRange)
    assert live.head().seq == 0


@pytest.mark.full
@pytest.mark.covers("O2", "E26")
@pytest.mark.usefixtures("spark")
def test_new_partitions_are_read_from_their_start_at_the_next_window(make: Make) -> None:
    live = make(CDN)
    live.produce(40)
    run = live.new_run()
    pending = ingest.plan_ingest(live.opened, run)
    assert pending is not None
    live.kafka.add_partitions(live.topics[0], 6)
    live.kafka.send([(live.topics[0], p, None, value) for p in (4, 5) for _, value in live.example.generate(10, 500)])
    (record,) = live.ingest(run)
    # The pinned window is as it was.
    assert record.window == pending.window
    (following,) = live.ingest()
    read = {tally.partition: tally.read.number for tally in following.tallies}
    assert read == {4: 10, 5: 10}
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("E9", "P2")
@pytest.mark.usefixtures("spark")
def test_unusual_messages(make: Make) -> None:
    """Null and empty keys and values, a tombstone, a megabyte, and every way of being invalid."""
    live = make(CDN)
    good = b'1.2.3.4 - - [21/Nov/2026:07:10:00 +0000] "GET http://h/a HTTP/1.1" 200 5 0.1'
    long_path = good.replace(b"/a ", b"/" + b"x" * 900_000 + b" ")
    values = [
        good,
        None,
        b"",
        b"\xff\xfe",
        b"\x00",
        b"\x01\x02",
        good + b"\n",
        good.replace(b"HTTP", b"GOPHER"),
        long_path,
        good.replace(b" 200 ", b" 0 "),
    ]
    keys = [b"k", b"k", b"", None, None, b"", b"k", b"k", None, None]
    topic = live.topics[0]
    live.kafka.send([(topic, 0, key, value) for key, value in zip(keys, values, strict=True)])
    (record,) = live.ingest()
    assert sum(tally.read.number for tally in record.tallies) == len(values)
    live.assert_exactly_what_was_read()
    rows = live.independent.hbase().by_place()
    assert rows[topic, 0, 1, 0] == {}
    assert len(rows[topic, 0, 8, 0]["path"]) == 900_001
    dead = {place[2]: fields for place, fields in live.independent.hbase(f"{live.name}_dead").rows}
    assert set(dead) == {2, 3, 4, 5, 6, 7, 9}
    assert (dead[7]["reason"], dead[9]["reason"]) == ("matches no pattern", "code is 0")
    # The raw bytes are kept, an empty key is not a null key.
    assert dead[3]["value"].encode(errors="surrogateescape") == b"\xff\xfe"
    assert dead[2]["key"] == ""
    assert "key" not in dead[3]
    # None of them is fetched again.
    assert live.ingest() == []
