"""Bounds in time become offsets, for each partition by itself; a plan and a dry run show which."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from kafka import KafkaProducer

from tests.support.command_line import asked, at_a_terminal, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, ORDERS
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.spark.jobs.audit import audit

# The hour in which the messages were sent, partition by partition: the last one has none at all.
HOURS = ([1, 2, 3, 4], [3, 2, 4], [1, 1], [])


def at(hour: int) -> str:
    return datetime(2026, 11, 20, hour, tzinfo=UTC).isoformat()


@pytest.fixture
def timed(make: Make) -> LiveStream:
    live = make(CDN)
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    lines = iter(CDN.generate(20, 0))
    for partition, hours in enumerate(HOURS):
        for hour in hours:
            key, value = next(lines)
            sent = int(datetime(2026, 11, 20, hour, tzinfo=UTC).timestamp() * 1000)
            producer.send(live.topics[0], value, key, partition=partition, timestamp_ms=sent)
            producer.flush()
    producer.close()
    return live


def shown(live: LiveStream, *arguments: str) -> dict[int, tuple[int, int]]:
    """The ranges that a plan shows, by partition."""
    found = asked("plan", str(live.file), *arguments)
    return {int(one["partition"].rpartition("/")[2]): (int(one["from"]), int(one["until"])) for one in found["ranges"]}


@pytest.mark.covers("A32", "E22", "E23", "E24")
def test_each_partition_is_resolved_by_itself(timed: LiveStream) -> None:
    live, file = timed, str(timed.file)
    # Per partition from the first message at or after it, however the times go on behind.
    assert shown(live, "--since", at(2), "--until-time", at(4), "--if-none", "end") == {0: (1, 3), 1: (0, 2)}
    # An end after the last message takes all, and so does no end; a bound is exclusive.
    everything = {partition: (0, len(hours)) for partition, hours in enumerate(HOURS) if hours}
    for arguments in (["--since", at(1), "--until-time", at(20)], ["--since", at(0)]):
        assert shown(live, *arguments, "--if-none", "end") == everything
    assert shown(live, "--until-time", at(20)) == everything
    assert shown(live, "--until-time", at(1)) == {}
    # A start after the last message is an error that names the partitions, or nothing of them: never offset 0.
    _, said = tidemark("plan", file, "--since", at(2), code=2)
    assert f"no message at or after {at(2)} in {live.topics[0]}/2, {live.topics[0]}/3" in said
    assert shown(live, "--since", at(20), "--if-none", "end") == {}
    # The same by the command that shows offsets.
    found = {one["partition"]: one["at"] for one in asked("offsets", file, "--at", at(2))}
    assert found == {0: "1", 1: "0", 2: None, 3: None}
    # A number is no time; both its readings are shown.
    for command in (["plan", file, "--since"], ["offsets", file, "--at"]):
        _, said = tidemark(*command, "1795244400000", code=2)
        assert "a number is not taken as a time: " in said
        assert "2026-11-21T07:00:00Z if it is milliseconds" in said
    _, said = tidemark("plan", file, "--since", at(3), "--until-time", at(3), code=2)
    assert "the first has to lie before the second" in said
    assert list(live.opened.ledger.store.scan(())) == []


@pytest.mark.covers("N11")
@pytest.mark.usefixtures("spark")
def test_a_backfill_takes_what_is_not_covered_and_a_replay_what_is(timed: LiveStream) -> None:
    live, file, topic = timed, str(timed.file), timed.topics[0]
    live.rewrite(
        source={"start": {"offsets": {f"{topic}/0": 2, f"{topic}/1": 1}}}, event_time={"allowed_lateness_minutes": 0}
    )
    live.ingest()
    live.kafka.send([(topic, 0, b"k", b"later")])
    times = ["--since", at(2), "--if-none", "end", "--reason", "a test", "--dry-run"]
    found = {kind: asked(kind, file, *times) for kind in ("backfill", "replay")}
    ranges = {
        kind: [f"{one['partition']}@{one['from']}-{one['until']}" for one in shown["ranges"]]
        for kind, shown in found.items()
    }
    assert ranges == {
        "backfill": [f"{topic}/0@1-2", f"{topic}/1@0-1"],
        "replay": [f"{topic}/0@2-4", f"{topic}/1@1-3"],
    }
    left_out = {kind: {why: one["offsets"] for why, one in shown["left_out"].items()} for kind, shown in found.items()}
    assert left_out == {
        "backfill": {"a window has read them": 4, "at or above the ingest position": 1},
        "replay": {"no window has read them": 2, "at or above the ingest position": 1},
    }
    assert (found["backfill"]["stored_before"], found["replay"]["stored_before"]) == (0, _stored(live))
    # A dry run gives its plan: it is accepted as long as it is what it was, and no other one is.
    assert asked("replay", "--yes", file, *times, "--plan", found["replay"]["plan"])["plan"] == found["replay"]["plan"]
    _, said = tidemark("replay", "--yes", file, *times, "--plan", found["backfill"]["plan"], code=3)
    assert f"the plan {found['backfill']['plan'][:12]} of {live.opened.ledger.stream} is stale" in said
    # The forms in Airflow ask the same.
    for request, kind in ((BackfillRequest, "backfill"), (ReplayRequest, "replay")):
        selected = plan_request(live.opened, request(since=at(2), if_none="end", reason="a test"))
        assert [f"{one.partition}@{one.start}-{one.until}" for one in selected.ranges] == ranges[kind]
    # Explicit ranges are answered in the same way.
    shown = asked("replay", file, "--from", f"{topic}/0@0", "--reason", "a test", "--dry-run")
    assert {why: one["offsets"] for why, one in shown["left_out"].items()} == {"no window has read them": 2}
    assert shown["offsets"] == 2
    _check_hours(file, topic)


def _check_hours(file: str, topic: str) -> None:
    """Which hours are complete, after windows from offset 2 of partition 0, and from 1 of partition 1, up to hour 4."""
    out, _ = tidemark("complete", file, "--hour", "2026-11-20T02Z", "--json", code=1)
    found = json.loads(out)
    partitions = {one["partition"]: one for one in found["partitions"]}
    rules = {int(name.rpartition("/")[2]): one["rule"] for name, one in partitions.items()}
    # Partition 1 begins with hour 3: what follows of hour 2 is late. The last two partitions have nothing so new.
    assert rules == {0: "missing", 1: "passed", 2: "idle", 3: "idle"}
    assert partitions[f"{topic}/0"]["missing"] == [{"kind": "unread", "range": f"{topic}/0@1-2"}]
    assert partitions[f"{topic}/1"]["late"] == {"least": 1, "most": 1, "windows": ["ingest/1"]}
    assert (found["complete"], found["late"]) == (False, {"least": 1, "most": 1})
    # The unread message of now: all before it has been read.
    assert datetime.fromisoformat(found["watermark"]) > datetime.now(UTC) - timedelta(hours=1)
    for words in (["--hour", "2026-11-20T04Z"], ["--since", at(4), "--until", at(5)]):
        assert asked("complete", file, *words)["complete"]
    # Bounds, where a window has other hours too; and the exact number, read from Kafka.
    late = ["--since", "2026-11-20T01:30:00Z", "--until", "2026-11-20T02:30:00Z"]
    out, said = tidemark("complete", file, *late, "--count", code=1)
    assert "2026-11-20 01:30:00Z to 2026-11-20 02:30:00Z is not complete; the watermark is " in out
    assert "late: 1 message\n" in said
    assert "counting" not in said
    drawn = at_a_terminal("complete", file, *late, "--count", code=1)
    assert "counting late messages" in drawn
    done, total = re.findall(rf"{re.escape(topic)}/1 +\S+ +(\d+)/(\d+) ", drawn)[-1]
    assert done == total != "0"
    for words, problem in (
        (["--hour", "2026-11-20T04:30Z"], "no hour begins then"),
        (["--hour", "2026-11-20T04Z", "--until", at(5)], "say which span"),
        (["--since", at(5), "--until", at(4)], "the span has no time in it"),
        (["--hour", "13"], "a number is not taken as a time"),
    ):
        _, said = tidemark("complete", file, *words, code=2)
        assert problem in said


@pytest.mark.covers("E52")
@pytest.mark.usefixtures("spark")
def test_times_are_the_brokers_however_the_clock_of_a_run_goes(make: Make) -> None:
    """The run's clock is nine minutes ahead, and the producers' is years behind; the broker writes its own time."""
    live = make(ORDERS)
    topic = f"{live.name}-stamped"
    live.kafka.create(topic, 1, **{"message.timestamp.type": "LogAppendTime"})
    live.rewrite(source={"topics": [topic]})
    live.topics = (topic,)
    messages = list(ORDERS.generate(20, 0))
    began = _broker_time(live, topic, messages[:12])
    second = _broker_time(live, topic, messages[12:])

    opened, ahead = live.opened, 540_000
    right = opened.ledger.clock
    opened.ledger.clock = lambda: right() + ahead
    (record,) = live.ingest(opened=opened)
    live.assert_exactly_what_was_read()
    (tally,) = record.tallies
    assert began <= tally.first_timestamp <= second <= tally.last_timestamp <= right()
    # A time names the broker's messages, for a run whose clock is wrong as for one whose clock is right.
    since = datetime.fromtimestamp(second / 1000, UTC).isoformat()
    for one in (opened, live.opened):
        assert str(plan_request(one, ReplayRequest(since=since, reason="a test")).ranges) == str(
            live.ranges(0, 0, (12, 20))
        )
    # The clocks are shown, and differ as they do.
    clocks = asked("ledger", "clock", str(live.file))
    assert clocks["generation"] - clocks["here"] > ahead - 120_000
    assert abs(clocks["server"] - clocks["here"]) < 10_000
    assert audit(live.opened, live.new_run()).clean


def _broker_time(live: LiveStream, topic: str, messages: list[tuple[bytes | None, bytes | None]]) -> int:
    """Sends messages of long ago, and gives the time shortly before the broker had them, later than all before."""
    time.sleep(0.01)
    now = time.time_ns() // 1_000_000
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    for key, value in messages:
        producer.send(topic, value, key, partition=0, timestamp_ms=1).get(timeout=30)
    producer.close()
    return now


def _stored(live: LiveStream) -> int:
    return sum(
        1
        for topic, partition, offset, _ in live.expected().rows
        if (partition, offset) in {(0, 2), (0, 3), (1, 1), (1, 2)}
    )
