"""The sink `kafka`: a message for each row, of which readers see exactly what counts, each once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from pyspark.sql import SparkSession

from tests.support.command_line import asked, tidemark
from tests.support.cuts import crash, cut_after, cuts, read_by
from tests.support.damage import place
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS, Example, Fields, Place
from tests.support.sink_topics import counting, written
from tidemark.audit.comparison import MAX_EXAMPLES, NOT_IN_TOPICS, ReplayComparison
from tidemark.audit.levels import Level
from tidemark.audit.report import AuditReport
from tidemark.commit.protocol import Step
from tidemark.errors import ProcessingFailed, TopicUnknown
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.kafka.messages import kafka_messages
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.compare import compare
from tidemark.spark.runtime.failures import translate
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")

Content = tuple[str, bytes | None, Any]


def with_sink(live: LiveStream, *, first: bool = False, **sink: Any) -> str:
    """Give the stream a sink in Kafka, between its others or before them; gives the name of a topic of its own."""
    out = f"{live.name}-out"
    if out not in live.kafka.admin.list_topics():
        live.kafka.create(out, 3)
    table, folder = {"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}
    mine = {"type": "kafka", **({"topic": out} if not sink.get("topic_field") else {}), **sink}
    live.rewrite(sinks=[mine, table, folder] if first else [table, mine, folder])
    return out


def given(live: LiveStream, *topics: str) -> list[tuple[Place, tuple[str, bytes | None, bytes | None]]]:
    """What counts, by the reader."""
    return [
        (
            (at.topic, at.partition, one.origin.place.offset, one.origin.place.index),
            (one.topic, one.key, one.value),
        )
        for one in kafka_messages(live.opened.ledger, live.kafka.endpoint, topics, "kafka")
        for at in [one.origin.place.partition]
    ]


def given_by_spark(live: LiveStream) -> list[tuple[Place, tuple[str, bytes | None, bytes | None]]]:
    """What counts, by the reader with Spark."""
    return [
        (
            (row["_topic"], row["_partition"], row["_offset"], row["_index"]),
            (row["topic"], *(None if row[name] is None else bytes(row[name]) for name in ("key", "value"))),
        )
        for row in results(SparkSession.active(), live.opened, "kafka").collect()
    ]


def as_json(live: LiveStream, fields: Fields) -> dict[str, Any] | None:
    """What the default value of a row's message should hold; None for a tombstone."""
    read = {
        "integer": int,
        "double": float,
        "boolean": lambda text: text == "true",
        "timestamp": lambda text: f"{text.replace(' ', 'T')}.000000Z",
        "string": str,
    }
    kinds = live.example.stream["scheme"]["fields"]
    if not fields:
        return None
    return {name: read[kind](fields[name]) if name in fields else None for name, kind in kinds.items()}


def assert_each_once(live: LiveStream, *topics: str, twice: bool = False) -> None:
    """The reader gives the oracle's rows, each once, and so does an independent reading (unless a row is there `twice`)."""
    found = given(live, *topics)
    assert Counter(place for place, _ in found).total() == len(dict(found))
    wanted = {place: as_json(live, fields) for place, fields in live.expected().rows.items()}
    assert {place: value and json.loads(value) for place, (_, _, value) in found} == wanted
    assert sorted(given_by_spark(live)) == sorted(found)
    independent = counting(live, *topics)
    assert dict(independent) == dict(found)
    if not twice:
        assert sorted(place for place, _ in independent) == sorted(wanted)
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_rows_become_messages_and_a_replay_writes_them_again(make: Make, example: Example, ledger: str) -> None:
    live = make(example, ledger=LEDGERS[ledger])
    out = with_sink(live)
    live.produce(300)
    (first,) = live.ingest()
    assert_each_once(live, out)
    live.produce(60)
    live.ingest()
    rows = len(live.expected().rows)
    assert len(list(written(live, out))) == rows
    # Tombstones are among them: a message whose value is null.
    assert sum(value is None for _, _, _, value in written(live, out)) == sum(
        not fields for fields in live.expected().rows.values()
    )
    (replayed,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9), (20, 21)) | live.ranges(-1, 2, (5, 6)))
    again = sum(tally.rows.number for tally in replayed.tallies)
    assert len(list(written(live, out))) == rows + again
    assert_each_once(live, out)
    # The older messages of a replayed row stay in the topic, and are not given.
    generations = {
        one.origin.generation for one in kafka_messages(live.opened.ledger, live.kafka.endpoint, [out], "kafka")
    }
    assert {first.attempt.generation, replayed.attempt.generation} <= generations
    windows = {(headers["tidemark.lane"], headers["tidemark.window"]) for headers, *_ in written(live, out)}
    assert windows == {("ingest", "1"), ("ingest", "2"), (replayed.lane, "1")}
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert [place.name for place in report.places] == ["hbase", "kafka", "parquet", "dead letters"]


@pytest.mark.covers("N30", "N10")
def test_the_audit_names_what_is_wrong_in_a_topic_and_a_replay_repairs_it(make: Make) -> None:
    live = make(CDN)
    out = with_sink(live, key="_key")
    live.produce(240)
    live.ingest()
    whole = list(written(live, out))
    (letter, *_), stored = sorted(live.expected().dead), sorted(live.expected().rows)
    lost, doubled, wrong = (stored[number] for number in (3, 40, 90))

    def placed(headers: dict[str, str]) -> Place:
        topic, partition, offset, index = (
            headers[f"tidemark.{name}"] for name in ("topic", "partition", "offset", "index")
        )
        return topic, int(partition), int(offset), int(index)

    def copy_to(target: str, messages: Iterable[tuple[dict[str, str], bytes | None, bytes | None]]) -> None:
        """The topic as it is after some damage."""
        with closing(KafkaProducer(bootstrap_servers=live.kafka.servers)) as producer:
            for headers, key, value in messages:
                as_sent = [(name, text.encode()) for name, text in headers.items()]
                producer.send(target, value, key or b"no key", headers=as_sent, partition=0)
            producer.flush()

    def damaged() -> Iterator[tuple[dict[str, str], bytes | None, bytes | None]]:
        for headers, _, key, value in whole:
            at = placed(headers)
            if at != lost:
                yield headers, key, b"wrong" if at == wrong else value
            if at == doubled:
                yield headers, key, value
                yield {**headers, "tidemark.generation": "99999999999999"}, key, value
                place_of_letter = dict(zip(("topic", "partition", "offset"), letter[:3], strict=True))
                as_letter = {f"tidemark.{name}": str(one) for name, one in place_of_letter.items()}
                yield {**headers, **as_letter, "tidemark.index": "0"}, key, value

    def writes_to(topic: str, key: str | None = "_key") -> AuditReport:
        live.rewrite(sinks=[{"type": "hbase", "table": live.name}, {"type": "kafka", "topic": topic, "key": key}])
        return audit(live.opened, live.new_run())

    def named(at: tuple[Any, ...]) -> tuple[str]:
        return (f"{at[0]}/{at[1]}@{at[2]}",)

    # A doubled message makes its block differ, without a look at the source.
    copy_to(out, [(headers, key, value) for headers, _, key, value in whole if placed(headers) == doubled])
    found = place(audit(live.opened, "blocks", level=Level.SINKS), "kafka")
    assert (found.blocks, found.blocks_at[0].found - found.blocks_at[0].expected) == (1, 1)

    broken = f"{live.name}-broken"
    live.kafka.create(broken, 2)
    copy_to(broken, damaged())
    # Messages without a key have got one on the way: they are wrong too, unless the stream's messages all have keys.
    report = writes_to(broken)
    found = place(report, "kafka")
    assert (found.missing_at, found.twice_at) == (named(lost), named(doubled))
    assert (found.extra_at, found.debris) == (named(letter), 1)
    assert set(named(wrong)) <= set(found.different_at)
    assert report.findings is not None
    live.select(LaneKind.REPLAY, live.opened.ledger.selection(report.findings))
    report = audit(live.opened, "repaired")
    assert report.clean, report.sentence()

    # Its retention deletes old messages: they are not missing, and those written since are compared.
    ends = {KafkaTopicPartition(broken, number): -1 for number in (0, 1)}
    live.kafka.admin.delete_records(ends)
    live.produce(30)
    live.ingest()
    found = place(writes_to(broken), "kafka")
    rows = len(live.expected().rows)
    assert (found.differences, found.expired, found.found) == (0, len(stored), rows - len(stored))

    # Compaction leaves the newest message of each key.
    compact = f"{live.name}-compact"
    live.kafka.create(compact, 1, **{"cleanup.policy": "compact"})
    live.rewrite(sinks=[{"type": "hbase", "table": live.name}, {"type": "kafka", "topic": compact, "key": "_key"}])
    live.select(LaneKind.REPLAY, everything(live))
    newest = {key: (headers, key, value) for headers, _, key, value in written(live, compact)}
    assert len(newest) < rows
    compacted = f"{live.name}-compacted"
    live.kafka.create(compacted, 1, **{"cleanup.policy": "compact"})
    copy_to(compacted, newest.values())
    found = place(writes_to(compacted), "kafka")
    assert (found.differences, found.found, found.replaced) == (0, len(newest), found.expected - len(newest))
    # And one of those that are left is gone: then it is missing.
    last = f"{live.name}-last"
    live.kafka.create(last, 1, **{"cleanup.policy": "compact"})
    copy_to(last, list(newest.values())[1:])
    assert place(writes_to(last), "kafka").missing > 0


@pytest.mark.full
@pytest.mark.covers("N22")
def test_a_comparison_says_what_a_replay_changes_in_a_topic(make: Make) -> None:
    """By what readers are given before the replay and after it."""
    live = make(CDN)
    columns = ", ".join(f"`{name}`" for name in live.fields if name not in ("host", "size"))
    coordinate = "_topic, _incarnation, _partition, _offset, _index"
    wrong = f"SELECT {coordinate}, {columns}, IF(code = 304, null, host) AS host, IF(code = 200, 1, size) AS size"
    broken = {"sql": f"{wrong} FROM messages WHERE method != 'HEAD'", "fields": CDN.stream["scheme"]["fields"]}
    out = f"{live.name}-out"
    live.kafka.create(out, 3)
    sinks = [{"type": "kafka", "topic": out, "key": "host"}, {"type": "parquet", "folder": live.name}]
    live.rewrite(sinks=sinks, transform=broken, checks=[{"invalid_when": "method = 'POST'", "reason": "no posts"}])
    live.produce(300)
    live.ingest()
    before = dict(given(live, out))
    live.rewrite(sinks=sinks, checks=[{"invalid_when": "code = 206", "reason": "no parts"}])
    said = compared(live)
    assert [one.name for one in said.places] == ["kafka", "parquet", "dead letters"]
    assert said.not_compared == ()
    assert dict(given(live, out)) == before

    live.select(LaneKind.REPLAY, everything(live))
    after = dict(given(live, out))
    changes = {
        at: tuple(
            name for name, old, new in zip(("topic", "key", "value"), before[at], after[at], strict=True) if old != new
        )
        for at in sorted(before.keys() & after.keys())
    }
    changed = {at: names for at, names in changes.items() if names}
    found = said.places[0]
    assert (found.before, found.after) == (len(before), len(after))
    assert (found.same, found.changed) == (len(changes) - len(changed), len(changed))
    assert (found.new, found.gone) == (len(after.keys() - before.keys()), len(before.keys() - after.keys()))
    assert min(found.same, found.changed, found.new, found.gone) > 0
    assert found.columns == Counter(name for names in changed.values() for name in names)
    assert found.columns.keys() == {"key", "value"}
    first = [(f"{at[0]}/{at[1]}@{at[2]}", at[3], names) for at, names in changed.items()][:MAX_EXAMPLES]
    assert [(one.at, one.index, one.columns) for one in found.changed_at] == first
    assert sum(found.new_because.values()) == found.new
    assert set(found.new_because) == {"its message was a dead letter", NOT_IN_TOPICS}
    assert found.gone_because == {"its message is now a dead letter": found.gone}

    # The older messages are still in the topic.
    assert [one.differences for one in compared(live).places] == [0, 0, 0]
    # What the topic has deleted by itself comes into it again.
    ends = {KafkaTopicPartition(out, number): -1 for number in range(3)}
    live.kafka.admin.delete_records(ends)
    again = compared(live).places
    assert (again[0].before, again[0].new_because) == (0, {NOT_IN_TOPICS: len(after)})
    assert again[1].differences == 0


def everything(live: LiveStream) -> RangeSet:
    return live.opened.ledger.authority().covered()


def compared(live: LiveStream) -> ReplayComparison:
    """A comparison of a replay of everything."""
    return compare(live.opened, live.new_run(), live.opened.ledger.store_selection(everything(live)).digest)


@pytest.mark.full
@pytest.mark.parametrize(("step", "times"), cuts(2), ids=lambda value: str(value).replace(" ", "-"))
def test_a_crash_leaves_messages_that_do_not_count(live: LiveStream, step: Step, times: int) -> None:
    out = with_sink(live, first=times == 1)
    live.produce(240)
    run = live.new_run()
    crash(live, run, on_step=cut_after(step, times))
    # They are in the topic, for every plain reader to see; what counts is all of the window or nothing of it.
    there = len(list(written(live, out)))
    assert there > 0
    assert len(given(live, out)) == (there if step == Step.COMMITTED else 0)
    assert_each_once(live, out)
    live.produce(60)
    live.ingest(run)
    live.ingest()
    assert read_by([window.record for window in live.opened.ledger.committed()]) == 300
    assert_each_once(live, out)
    rows = len(live.expected().rows)
    assert len(list(written(live, out))) == rows + (0 if step == Step.COMMITTED else there)


@pytest.mark.covers("S16")
def test_topic_key_and_value_from_fields(make: Make) -> None:
    live = make(CDN)
    names = [f"{live.name}-HTTP"]
    live.kafka.create(names[0], 2)
    http = [{"invalid_when": "code = 0", "reason": "code is 0"}]
    out = f"{live.name}-out"
    # The paths of the example's lines are no topics: one line for each of two that are, and one for neither.
    line = '203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "GET http://{}/{} HTTP/1.1" 200 5321 0.132'
    hosts = [names[0], "img.example.com", out]
    live.kafka.send(
        (live.topics[0], number % 4, b"key %d" % number, line.format(hosts[number % 3], f"p{number}").encode())
        for number in range(60)
    )
    live.kafka.send([(live.topics[0], 1, b"gone", None)])
    settings = {"compression.type": "gzip", "linger.ms": 1, "batch.size": 2_000, "acks": "all"}
    live.kafka.create(out, 3)
    by_field = {"topic_field": "host", "topics": names, "key": "host", "value": "path", "settings": settings}
    sinks = [{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}]
    live.rewrite(checks=http, sinks=[*sinks, {"type": "kafka", **by_field}])

    # A row that names no topic of the list is a dead letter, and so is a tombstone, which names none; no sink gets a row.
    live.ingest()
    reason = "sink kafka: host names none of its topics, and there is no other"
    assert Counter(fields["reason"] for _, fields in live.independent.hbase(f"{live.name}_dead").rows) == {reason: 41}
    first = given(live, *names)
    assert Counter(topic for _, (topic, _, _) in first) == {names[0]: 20}
    assert set(live.independent.hbase().by_place()) == {place for place, _ in first}
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()

    # With a topic for all others.
    live.rewrite(checks=http, sinks=[*sinks, {"type": "kafka", **by_field, "topic": out}])
    live.select(LaneKind.REPLAY, everything(live))
    rows = live.expected().rows
    found = dict(given(live, *names, out))
    assert found == dict(counting(live, *names, out))
    texts = {
        place: (names[0] if fields.get("host") == names[0] else out, fields.get("host"), fields.get("path"))
        for place, fields in rows.items()
    }
    assert found == {
        place: (topic, key and key.encode(), value and value.encode()) for place, (topic, key, value) in texts.items()
    }
    assert Counter(topic for topic, _, _ in found.values()) == {names[0]: 20, out: 41}
    live.assert_exactly_what_was_read()

    # The message's own key, which a tombstone has too; and a replay that writes to another topic than before.
    live.rewrite(checks=http, sinks=[*sinks, {"type": "kafka", "topic": out, "key": "_key"}])
    live.select(LaneKind.REPLAY, everything(live))
    found = dict(given(live, *names, out))
    assert dict(given_by_spark(live)) == found
    assert {topic for topic, _, _ in found.values()} == {out}
    assert {key for _, key, _ in found.values()} == {b"gone", *(b"key %d" % number for number in range(60))}
    assert [value for _, key, value in found.values() if key == b"gone"] == [None]


@pytest.mark.full
def test_a_compacted_topic_gets_no_message_without_a_key(make: Make) -> None:
    """The broker refuses such a message, and would refuse it at every try: it is a dead letter, and holds up nothing."""
    live = make(CDN)
    out = f"{live.name}-out"
    live.kafka.create(out, 1, **{"cleanup.policy": "compact,delete"})
    table: dict[str, Any] = {"type": "hbase", "table": live.name}
    live.rewrite(sinks=[table, {"type": "kafka", "topic": out, "key": "_key"}])
    line = b'203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "GET http://a.b/c HTTP/1.1" 200 5 0.1'
    sent = [(b"key", line), (None, line), (b"", line), (b"gone", None)]
    live.kafka.send((live.topics[0], 0, key, value) for key, value in sent)

    def keys() -> dict[int, bytes | None]:
        return {place[2]: key for place, (_, key, _) in given(live, out)}

    def dead() -> dict[int, str]:
        letters = live.independent.hbase(f"{live.name}_dead")
        return {place[2]: fields["reason"] for place, fields in letters.rows}

    reason = f"sink kafka: the key is null, and topic {out} is compacted"
    live.ingest()
    assert keys() == {0: b"key", 2: b"", 3: b"gone"}
    assert dead() == {1: reason}
    assert {place[2] for place in live.independent.hbase().by_place()} == {0, 2, 3}
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()

    # With a key that is made of the value, every tombstone has none.
    live.rewrite(sinks=[table, {"type": "kafka", "topic": out, "key": "host"}])
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 4)))
    assert keys() == dict.fromkeys((0, 1, 2), b"a.b")
    assert dead() == {3: reason}


@pytest.mark.full
def test_what_others_write_and_what_was_written_twice_does_not_count(make: Make) -> None:
    live = make(CDN)
    out = with_sink(live)
    live.produce(120)
    live.ingest()
    newest = live.head().last
    assert newest is not None
    before = given(live, out)
    copied = list(written(live, out))
    with closing(KafkaProducer(bootstrap_servers=live.kafka.servers)) as producer:
        for number, (headers, topic, key, value) in enumerate(copied):
            # As a task that Spark runs a second time; another stream's; an attempt's that has not been committed.
            producer.send(topic, value, key, headers=[(name, text.encode()) for name, text in headers.items()])
            change = {"tidemark.stream": "other"} if number % 2 else {"tidemark.generation": "99999999999999"}
            changed = {**headers, **change}
            producer.send(topic, b"wrong", key, headers=[(name, text.encode()) for name, text in changed.items()])
        producer.send(out, b"somebody else's")
        producer.flush()
    assert sorted(given(live, out)) == sorted(before)
    assert_each_once(live, out, twice=True)
    # Nor does an open transaction of somebody else hide what comes behind it.
    with closing(KafkaProducer(bootstrap_servers=live.kafka.servers, transactional_id=live.name)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(3):
            producer.send(out, b"open", partition=partition)
        producer.flush()
        live.produce(60)
        live.ingest()
        assert_each_once(live, out, twice=True)
        producer.abort_transaction()


@pytest.mark.full
def test_what_the_broker_refuses_is_not_acknowledged(make: Make) -> None:
    live = make(CDN)
    small = f"{live.name}-small"
    with_sink(live, topic=small, settings={"batch.size": 1})
    long = random.Random(5).randbytes(5_000).hex().encode()
    line = b'203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "GET http://a.b/%s HTTP/1.1" 200 5 0.1'
    live.kafka.send((live.topics[0], 2, None, line % path) for path in (b"short", long, b"short"))
    with pytest.raises(TopicUnknown, match=f"writes to {small}, and Kafka at .* has no such topic: create it"):
        live.ingest()
    assert small not in live.kafka.admin.list_topics()

    def lower(step: Step) -> None:
        """After it was seen: otherwise the message would be a dead letter."""
        if step == Step.READ:
            change = ConfigResource(ConfigResourceType.TOPIC, small, {"max.message.bytes": "3000"})
            live.kafka.admin.alter_configs([change])

    live.kafka.create(small, 1)
    run = live.new_run()
    with pytest.raises(Exception, match="has refused the result of") as caught:
        live.ingest(run, take_over=True, on_step=lower)
    said = translate(caught.value)
    assert isinstance(said, ProcessingFailed)
    assert f"{live.topics[0]}/2@1 for topic {small}" in str(said)
    # The others are there, and do not count.
    assert given(live, small) == []
    assert live.head().seq == 0

    out = with_sink(live)
    live.ingest(run)
    assert_each_once(live, out)


@pytest.mark.full
def test_the_command_line_shows_what_counts(make: Make) -> None:
    live = make(CDN)
    out = with_sink(live, key="host")
    live.produce(60)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 5)))
    shown = asked("results", str(live.file), "--sink", "kafka", "--limit", "1000")
    wanted = live.expected().rows
    found = {one["coordinate"]: (one["topic"], one["key"], one["value"] and json.loads(one["value"])) for one in shown}
    assert len(shown) == len(wanted)
    assert found == {
        f"{topic}/{partition}@{offset}": (out, fields.get("host"), as_json(live, fields))
        for (topic, partition, offset, _), fields in wanted.items()
    }
    text, _ = tidemark("results", str(live.file), "--sink", "kafka", "--limit", "2")
    assert len(text.splitlines()) == 3
    _, said = tidemark("results", str(live.file), "--sink", "files", code=2)
    assert "no sink files; there are: hbase, kafka, parquet" in said
