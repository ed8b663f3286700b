"""Cases from other systems' tests that are about what comes next, on real topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import happybase
import pytest
from kafka import KafkaProducer

from tests.support.command_line import asked
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGER, LEDGERS
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.commit import protocol
from tidemark.errors import InvalidStreamFile, LogTruncated, OffsetsOutOfRange
from tidemark.ledger.ledger import record_key
from tidemark.ledger.records import LaneKind, Pending
from tidemark.runs.requests.forms import BackfillRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import ingest
from tidemark.spark.jobs.audit import audit
from tidemark.spark.runtime.failures import translate


def ranges(pending: Pending | None) -> dict[int, tuple[int, int]]:
    return {one.partition: (one.start, one.until) for one in pending.window.ranges} if pending else {}


@pytest.mark.covers("S2", "A20", "A24")
def test_a_start_counts_until_there_is_a_position(make: Make) -> None:
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    live = make(CDN)
    topic = live.topics[0]
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    for number in range(10):
        at = int(noon.timestamp() * 1000) + (number - 4) * 60_000
        for partition in range(4):
            producer.send(topic, b"x", partition=partition, timestamp_ms=at)
    producer.close()
    starts: dict[str, tuple[Any, dict[int, tuple[int, int]]]] = {
        "earliest": ("earliest", dict.fromkeys(range(4), (0, 10))),
        # Nothing is new at the end: the position is there all the same.
        "latest": ("latest", {}),
        "time": (noon.isoformat(), dict.fromkeys(range(4), (4, 10))),
        "offsets": (
            {"offsets": {f"{topic}/1": 7}, "others": "latest"},
            {0: (10, 10), 1: (7, 10), 2: (10, 10), 3: (10, 10)},
        ),
    }
    for start, expected in starts.values():
        stream = make(CDN, source={"topics": [topic], "start": start})
        assert ranges(ingest.plan_ingest(stream.opened, "run")) == expected
        position = stream.head().positions
        # From now on it is ignored, whatever it says.
        protocol.abandon(stream.opened.ledger, "ingest", "a test", take_over=True)
        for other, _ in starts.values():
            stream.rewrite(source={"topics": [topic], "start": other})
            assert ranges(ingest.plan_ingest(stream.opened, "run")) == expected
            protocol.abandon(stream.opened.ledger, "ingest", "a test", take_over=True)
        assert stream.head().positions == position


@pytest.mark.covers("A40")
@pytest.mark.usefixtures("spark")
def test_a_window_of_one_partition_leaves_the_other_where_it_is(make: Make) -> None:
    live = make(CDN)
    topic = live.topics[0]
    lines = [
        (topic, partition, key, value)
        for partition, count in ((1, 7), (0, 3))
        for key, value in live.example.generate(count, 0)
    ]
    live.kafka.send(lines[:7])
    live.ingest()
    live.kafka.send(lines[7:])
    live.ingest()
    assert live.positions() == {(topic, 0): 3, (topic, 1): 7, (topic, 2): 0, (topic, 3): 0}


@pytest.mark.covers("A28", "S5", "E19")
@pytest.mark.usefixtures("spark")
def test_a_log_start_that_has_moved_up(make: Make) -> None:
    live = make(CDN)
    topic = live.topics[0]
    live.kafka.send([(topic, 0, key, value) for key, value in live.example.generate(10, 0)])
    live.ingest()
    live.kafka.send([(topic, 0, key, value) for key, value in live.example.generate(50, 10)])
    live.kafka.delete_records(topic, 0, 31)
    with pytest.raises(OffsetsOutOfRange, match=rf"{topic}/0@10-31") as caught:
        live.ingest()
    assert caught.value.exit_code == 4
    live.rewrite(source={"on_out_of_range": "earliest"})
    (record,) = live.ingest()
    assert sum(tally.read.number for tally in record.tallies) == 29
    assert live.independent.hbase().twice() == 0
    assert live.positions()[topic, 0] == 60
    (event,) = asked("ledger", "events", str(live.file))
    assert (event["what"], event["why"]) == ("lost", "on_out_of_range: earliest")
    assert f"{topic}/0@10-31" in event["where"]
    assert audit(live.opened, "audit").clean


@pytest.mark.covers("E18", "F9")
@pytest.mark.usefixtures("spark")
def test_what_is_deleted_between_plan_and_read_is_named_exactly(make: Make) -> None:
    live = make(CDN)
    topic = live.topics[0]
    live.produce(80)
    run = live.new_run()
    assert ingest.plan_ingest(live.opened, run) is not None
    live.kafka.delete_records(topic, 1, 5)
    for _ in range(2):
        with pytest.raises(Exception) as caught:  # noqa: PT011 (Spark's own may be around it, as the job gets it)
            live.ingest(run)
        problem = translate(caught.value)
        assert isinstance(problem, OffsetsOutOfRange)
        assert problem.exit_code == 4
        assert f"{topic}/1@0-5" in str(problem)
        assert (live.head().seq, sum(live.positions().values())) == (0, 0)
    # By the stream file alone it does not go on: the window is pinned. Given up, the next one names what is lost.
    live.rewrite(source={"on_out_of_range": "earliest"})
    protocol.abandon(live.opened.ledger, "ingest", "its offsets are gone", take_over=True)
    (record,) = live.ingest()
    assert [(gap.kind.value, gap.partition, gap.start, gap.until) for gap in record.window.gaps] == [("lost", 1, 0, 5)]
    assert audit(live.opened, "audit").clean


@pytest.mark.covers("C5", "E36", "O8")
@pytest.mark.usefixtures("spark")
def test_two_streams_of_one_topic_join_no_group_and_take_nothing_from_each_other(make: Make) -> None:
    first = make(CDN)
    second = make(CDN, source={"topics": list(first.topics)})
    first.produce(60)
    before = {group["group_id"] for group in first.kafka.admin.list_groups()}
    assert [sum(tally.read.number for tally in live.ingest()[0].tallies) for live in (first, second)] == [60, 60]
    assert {group["group_id"] for group in first.kafka.admin.list_groups()} == before
    first.assert_exactly_what_was_read()
    second.rewrite(source={"enable.auto.commit": True})
    with pytest.raises(InvalidStreamFile, match=r"source\.enable\.auto\.commit: unknown key"):
        _ = second.opened


@pytest.mark.covers("F13", "E25")
@pytest.mark.usefixtures("spark")
def test_a_partition_that_was_added_is_noted(make: Make) -> None:
    live = make(CDN)
    topic = live.topics[0]
    live.produce(8)
    live.ingest()
    assert asked("ledger", "events", str(live.file)) == []
    live.kafka.add_partitions(topic, 5)
    live.kafka.send([(topic, 4, None, value) for _, value in live.example.generate(3, 50)])
    (record,) = live.ingest()
    assert {one.partition: (one.start, one.until) for one in record.window.ranges}[4] == (0, 3)
    (event,) = asked("ledger", "events", str(live.file))
    assert (event["what"], event["run"]) == ("partition added", record.attempt.run)
    assert event["where"] == f"{topic}/4 from offset 0, window ingest/2"


class StaleLog(KafkaLog):
    """Answers a few times with an older end, as a broker that has just become leader may (KAFKA-7703)."""

    def __init__(self, endpoint: KafkaEndpoint, stale: int, end: int) -> None:
        super().__init__(endpoint)
        self._stale, self._end = stale, end

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        found = super().topics(names, isolation)
        self._stale -= 1
        if self._stale < 0:
            return found
        return {
            topic: replace(
                log, partitions={n: PartitionLog(one.start, self._end, None) for n, one in log.partitions.items()}
            )
            for topic, log in found.items()
        }


@pytest.mark.covers("E30")
@pytest.mark.usefixtures("spark")
def test_an_older_end_is_asked_for_again_and_then_believed(live: LiveStream) -> None:
    live.produce(120)
    live.ingest()
    live.produce(12)
    before = live.opened.ledger.store.read(("head", "ingest"))
    with pytest.raises(LogTruncated, match="ends at 1, below"):
        ingest.plan_ingest(replace(live.opened, log=StaleLog(live.kafka.endpoint, 100, 1)), "run")
    assert live.opened.ledger.store.read(("head", "ingest")) == before
    pending = ingest.plan_ingest(replace(live.opened, log=StaleLog(live.kafka.endpoint, 2, 1)), "run")
    assert pending is not None
    assert sum(one.until - one.start for one in pending.window.ranges) == 12


@pytest.mark.covers("S15")
@pytest.mark.usefixtures("spark")
def test_a_partition_shows_its_position_its_pending_window_and_its_dead_letters(live: LiveStream) -> None:
    file = str(live.file)
    live.produce(240)
    live.ingest()
    live.produce(24)
    pending = ingest.plan_ingest(live.opened, "run")
    assert pending is not None
    rows = {(one["topic"], one["partition"]): one for one in asked("status", file)["partitions"]}
    for one in pending.window.ranges:
        shown = rows[one.topic, one.partition]
        assert (shown["position"], shown["pending"]) == (
            str(one.start),
            str(one.until) if one.start < one.until else None,
        )
    expected = live.expected().dead
    assert expected
    dead = asked("results", file, "--dead-letters", "--limit", "1000")
    assert {one["coordinate"]: one["fields"]["reason"] for one in dead} == {
        f"{topic}/{partition}@{offset}": reason for (topic, partition, offset), reason in expected.items()
    }


@pytest.mark.full
@pytest.mark.covers("N2")
@pytest.mark.usefixtures("spark")
def test_a_hole_is_proved_and_comes_out_as_a_plan(make: Make) -> None:
    """A record of the history is lost, with what says which offsets were read: they are a hole until they are read again."""
    live = make(CDN, ledger=LEDGERS["hbase"])
    for _ in range(3):
        live.produce(20)
        live.ingest()
    whole = audit(live.opened, "audit")
    assert whole.clean
    assert {
        one.partition: (one.start, one.position, one.covered, one.holes, one.overlaps) for one in whole.coverage
    } == {f"{live.topics[0]}/{partition}": (0, 15, 15, (), ()) for partition in range(4)}
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    connection.table(LEDGER).delete(f"{live.name}/{'/'.join(record_key('ingest', 2))}".encode())
    connection.close()
    broken = audit(live.opened, "audit 2")
    assert not broken.clean
    assert {one.partition: one.holes for one in broken.coverage} == {
        f"{live.topics[0]}/{partition}": (f"{live.topics[0]}/{partition}@5-10",) for partition in range(4)
    }
    found = asked("backfill", str(live.file), "--holes", "--reason", "a record was lost", "--dry-run")
    assert found["offsets"] == 20
    holes = plan_request(live.opened, BackfillRequest(holes=True, reason="a record was lost")).ranges
    live.select(LaneKind.BACKFILL, holes)
    report = audit(live.opened, "audit 3")
    assert not any(one.holes or one.overlaps for one in report.coverage)
    assert (report.differences, report.ledger_problems) == (0, ("lane ingest: window 2 is missing in the history",))
