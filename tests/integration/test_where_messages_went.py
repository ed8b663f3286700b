"""Where messages went, with a real Kafka: a topic in which each kind of offset is, and each offset's one answer."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from tests.support.command_line import asked, tidemark
from tests.support.compacted_topics import COMPACTED, wait_until_left
from tests.support.evil import EVIL
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, Example, Outcome
from tests.support.transactions import transaction
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.slots import OffsetContents
from tidemark.errors import Conflict
from tidemark.ledger.records import LaneKind
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.reading import Reading
from tidemark.runs.live import message_lookup
from tidemark.runs.requests.keys import find_key
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.kinds import sink_to_compact
from tidemark.spark.sinks.parquet.compacting import compact
from tidemark.views.browsing.items import SearchBudget
from tidemark.views.browsing.messages import MessageQuery, messages
from tidemark.views.browsing.places import SearchScope as Place
from tidemark.views.messages import trace
from tidemark.views.messages.message import MessageTrace, as_values

GOOD = b'1.2.3.4 - - [21/Nov/2026:07:10:00 +0000] "GET http://h/a HTTP/1.1" 200 5 0.1'
LARGE = b"x" * 10_000_000

pytestmark = pytest.mark.usefixtures("spark")


def answers(live: LiveStream, topic: int, offsets: range, partition: int = 0) -> dict[int, tuple[str, str | None]]:
    """The fate of each offset, and what Kafka has there now."""
    opened, at = live.opened, TopicPartition(live.topics[topic], partition)
    found = {offset: as_values(trace.located(opened, Coordinate(at, offset))) for offset in offsets}
    return {offset: (one.fate, one.kafka.slot) for offset, one in found.items()}


def looked_through(live: LiveStream, where: str, filter_: str = "", **more: Any) -> list[int]:
    found = messages(live.opened, MessageQuery(Place(where), filter_, **more), SearchBudget.of(1e9, 1e9, 60))
    return [one.at.offset for one in found.items]


@pytest.mark.full
@pytest.mark.covers("U6", "U8", "U28")
def test_each_offset_has_one_answer(make: Make) -> None:
    live = make(CDN)
    topic, compacted = live.topics[0], f"{live.name}-compacted"
    live.kafka.create(compacted, 1, **COMPACTED)
    live.topics = (compacted,)
    live.kafka.send((compacted, 0, key, GOOD) for key in (b"a", b"a", b"b"))
    time.sleep(0.5)
    live.kafka.send([(compacted, 0, b"c", GOOD)])
    wait_until_left(live, [1, 2, 3], 4)
    live.topics = (topic, compacted)
    live.rewrite()

    # 0 and 1 expire before they are read. 5 is a dead letter. The messages are compressed in each way that Kafka knows.
    live.kafka.send((topic, 0, None, GOOD) for _ in range(3))
    for way in ("gzip", "lz4", "zstd"):
        value = EVIL.encode() if way == "zstd" else GOOD
        live.kafka.send([(topic, 0, EVIL.encode(), value)], compression_type=way)
    # 6 and 7 are of an aborted transaction, 8 is its mark; 9 is of one that commits, 10 is its mark.
    with closing(KafkaProducer(**live.kafka.settings, transactional_id=live.name)) as producer:
        producer.init_transactions()
        transaction(live, producer, 2, end="abort")
        transaction(live, producer, 1, end="commit")
        live.kafka.wait_for_stable_end(topic, 0, 11)
        live.kafka.delete_records(topic, 0, 2)
        live.ingest("dag/the run")
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 4)), "dag/a replay")
        # What expires now was read before. 11 is held back by an open transaction, and so is 12, which is of none.
        live.kafka.delete_records(topic, 0, 3)
        transaction(live, producer, 1, end="nothing")
        live.kafka.send([(topic, 0, None, GOOD)], compression_type="snappy")
        assert answers(live, 0, range(14)) == {
            **dict.fromkeys((0, 1), ("expired", "expired")),
            2: ("stored", "expired"),
            **dict.fromkeys((3, 4, 9), ("stored", "message")),
            5: ("dead letter", "message"),
            **dict.fromkeys((6, 7), ("no message", "aborted")),
            **dict.fromkeys((8, 10), ("no message", "marker")),
            **dict.fromkeys((11, 12), ("not read yet", "held back")),
            13: ("not in the topic yet", "not yet"),
        }
        assert answers(live, 0, range(1), partition=9) == {0: ("gone", None)}
        assert answers(live, 1, range(5)) == {
            0: ("no message", "compacted"),
            **dict.fromkeys((1, 2, 3), ("stored", "message")),
            4: ("not in the topic yet", "not yet"),
        }
        # Looking through them shows what a reader of the stream gets: no marks, and nothing that is aborted or held back.
        assert looked_through(live, f"{topic}/0") == [3, 4, 5, 9]
        assert looked_through(live, f"{topic}/0", count=3, backwards=True) == [9, 5, 4]
        assert looked_through(live, f"{topic}/0", "value contains '<script>' and key is not null") == [5]
        assert looked_through(live, compacted) == [1, 2, 3]
        producer.abort_transaction()

    file = str(live.file)
    out, said = tidemark("messages", file, f"{topic}/0@3-10", "--tail", "3", "--format", "jsonl")
    assert [json.loads(one)["offset"] for one in out.splitlines()] == [4, 5, 9]
    # Before it, maybe that the ledger of another test's stream is damaged.
    assert said.splitlines()[-1].startswith("3 of ")
    out, _ = tidemark(
        "messages", file, f"{topic}/0", "--dead-letters", "--filter", "reason is not null", "--format", "csv"
    )
    assert [one.split(",")[:3] for one in out.splitlines()] == [["topic", "partition", "offset"], [topic, "0", "5"]]
    for sink in ("hbase", "parquet"):
        rows = asked("results", file, "--sink", sink, "--where", f"{topic}/0@3-10", "--filter", "code = 200")
        assert [one["coordinate"] for one in rows] == [f"{topic}/0@{offset}" for offset in (3, 4, 9)]
    assert "filter: character 1" in tidemark("messages", file, f"{topic}/0", "--filter", "amount < 0", code=2)[1]
    found = asked("show", file, f"{topic}/0@3", "--message")
    assert [one["run"] for one in found["windows"]] == ["dag/a replay", "dag/the run"]
    assert found["sentence"].startswith("stored: window replay-")
    assert found["sentence"].endswith(" by run dag/a replay")
    assert (found["message"]["key"]["text"], found["message"]["value"]["text"]) == (EVIL, GOOD.decode())
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found["message"]["timestamp"] // 1000))
    assert asked("show", file, f"{topic}/0@{at}")["offset"] == "3"
    out, _ = tidemark("show", file, f"{topic}/0@5", "--message")
    assert out.startswith(f"{topic}/0@5: a dead letter, reason ")
    assert f"value, {len(EVIL)} bytes: {EVIL}\n" in out

    # The same, as the page and the command line show groups of dead letters and windows.
    (group,) = asked("dead-letters", file)["groups"]
    assert (group["number"], group["examples"]) == (1, [f"{topic}/0@5"])
    window = asked("window", file, "ingest/1")
    tally = next(one["tally"] for one in window["partitions"] if one["partition"] == f"{topic}/0")
    counts = {name: tally[name] for name in ("read", "stored", "invalid", "no_message")}
    assert counts == {"read": "5", "stored": "4", "invalid": "1", "no_message": "4"}
    out, _ = tidemark("window", file, "ingest/1")
    assert out.startswith("window ingest/1: committed, ")

    # A value of 10 MB is read whole, and cut.
    large = f"{live.name}-large"
    live.kafka.create(large, 1, **{"max.message.bytes": "11000000"})
    live.kafka.send([(large, 0, None, LARGE)], max_request_size=11_000_000)
    slot = live.opened.log.slot(large, 0, 0)
    assert slot is not None
    assert slot.message is not None
    assert slot.message.value == LARGE


# Every other message is skipped, and there is no sink of type `hbase`.
BESIDE = Example(
    "beside",
    {
        "source": {},
        "scheme": {"type": "json", "fields": {"id": "integer", "kind": "string"}},
        "transform": {
            "sql": "SELECT _topic, _incarnation, _partition, _offset, _index, id, kind FROM messages WHERE id % 2 = 0",
            "fields": {"id": "integer", "kind": "string"},
        },
        "sinks": [],
    },
    ("beside",),
    1,
    lambda count, first: ((None, b'{"id": %d, "kind": "%d"}' % (one, one % 3)) for one in range(first, first + count)),
    lambda value: Outcome({}, None),
)


@pytest.mark.full
@pytest.mark.covers("U14", "U6")
def test_what_each_sink_has_of_a_message(make: Make) -> None:
    live = make(BESIDE)
    topic, out, keyed = live.topics[0], f"{live.name}-out", {"key": "kind"}
    live.kafka.create(out, 2)
    values = {"rows": "count", "all": {"sum": "id"}}
    sinks = [
        {"type": "parquet", "folder": live.name},
        {"type": "delta", "folder": f"{live.name}_delta"},
        {"type": "kafka", "topic": out, **keyed},
        {"type": "hbase_latest", "table": f"{live.name}_latest", "folder": f"{live.name}_latest", **keyed},
        {
            "type": "hbase_aggregates",
            "table": f"{live.name}_sums",
            "values": values,
            "folder": f"{live.name}_sums",
            **keyed,
        },
    ]
    live.rewrite(sinks=sinks)
    live.produce(40)
    live.ingest()
    at = TopicPartition(topic, 0)

    def shown(offset: int) -> MessageTrace:
        return as_values(trace.located(live.opened, Coordinate(at, offset)))

    # Its counts say `stored or skipped`: the files say which.
    assert [shown(offset).fate for offset in (12, 13)] == ["stored", "skipped"]
    found = shown(12)
    fields = {"id": "12", "kind": "0"}
    rows = {one.place: one.fields for one in found.rows}
    assert (rows["parquet"], rows["delta"]) == (fields, fields)
    place, value = rows["kafka"]["written to"], json.loads(str(rows["kafka"]["value"]))
    assert (value, rows["kafka"]["key"]) == ({"id": 12, "kind": "0"}, "0")
    number, offset = map(int, place.removeprefix(f"{out}/").split("@"))
    with closing(KafkaConsumer(**live.kafka.settings, group_id=None)) as consumer:
        consumer.assign([KafkaTopicPartition(out, number)])
        consumer.seek(KafkaTopicPartition(out, number), offset)
        record = next(iter(consumer))
    assert dict(record.headers)["tidemark.offset"] == b"12"
    under = {one.place: one for one in found.under_keys}
    # 36 is the last of its kind.
    assert under["hbase_latest"].said == f"the newest row of its key, from {topic}/0@36"
    assert (under["hbase_latest"].key, under["hbase_latest"].fields) == ({"kind": "0"}, {"id": "36"})
    assert shown(36).under_keys[0].said == "the newest row of its key, from this message"
    same = [row for row in live.expected().rows.values() if row["kind"] == "0"]
    assert under["hbase_aggregates"].fields == {"rows": f"{len(same)}", "all": f"{sum(int(row['id']) for row in same)}"}
    assert under["hbase_aggregates"].said == "the total of its key"
    assert found.unsaid == []
    # What has no row has none under a key, and a topic proves nothing by what it lacks.
    skipped = {one.place: one.why for one in shown(13).unsaid}
    assert "hbase_latest" not in skipped
    assert "not among the 20 messages" in skipped["kafka"]

    # After a replay of a part, and after a compaction, the same rows are found; those of before count no more.
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (10, 20)), "dag/a replay")
    compact(live.opened, sink_to_compact(live.opened.stream.sinks, live.name, None), "compaction", CompactionRequest())
    again = shown(12)
    assert (again.fate, len(again.windows)) == ("stored", 2)
    moved = {one.place: one.fields for one in again.rows}
    assert moved["kafka"].pop("written to") != rows["kafka"].pop("written to")
    assert moved == rows
    assert shown(22).rows[0].fields == {"id": "22", "kind": "1"}

    # The command line says the same.
    out_of, _ = tidemark("show", str(live.file), f"{topic}/0@12", "--message")
    assert "parquet index 0: id=12 kind=0\n" in out_of
    assert f"(the newest value of its key, from {topic}/0@36)" in out_of

    # A sink that is away takes no other with it.
    folder = Path(live.opened.stream.sinks[1].base(live.opened.connections).removeprefix("file://"))  # type: ignore[attr-defined]
    folder.rename(folder.with_name("away"))
    quick = as_values(trace.located(live.opened, Coordinate(at, 12), all_sinks=False))
    assert (quick.fate, quick.not_asked) == ("read", ["parquet", "delta", "kafka"])
    left = shown(12)
    assert {one.place for one in left.rows} == {"parquet", "kafka"}
    (folder.with_name("away")).rename(folder)


@pytest.mark.full
@pytest.mark.covers("Q26")
def test_no_message_of_a_topic_that_is_recreated_while_somebody_looks(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real Kafka gives the new topic's offsets under the old name, and knows nothing of the leaders of the old one."""
    live = make(CDN, source={"on_recreated": "accept"})
    topic, at = live.topics[0], TopicPartition(live.topics[0], 0)
    live.kafka.send((topic, 0, None, GOOD) for _ in range(6))
    live.ingest()
    slot = KafkaLog.slot

    def recreated_before(log: KafkaLog, *asked: Any) -> OffsetContents | None:
        live.kafka.recreate(topic, 4)
        live.kafka.send((topic, 0, None, GOOD + b"9") for _ in range(9))
        return slot(log, *asked)

    with monkeypatch.context() as patched:
        patched.setattr(KafkaLog, "slot", recreated_before)
        with pytest.raises(Conflict, match=f"topic {topic} was deleted and created again while it was looked at"):
            message_lookup.slot_at(live.opened, Coordinate(at, 5))
    # Nor afterwards, while no run has met it; and then under the new incarnation alone.
    assert message_lookup.look(live.opened, Coordinate(at, 5)).slot is None
    with pytest.raises(Conflict, match="does not read the new one yet"):
        looked_through(live, topic)
    assert find_key(live.opened, b"k", Reading()).read == 0
    live.ingest()
    assert message_lookup.look(live.opened, Coordinate(at, 5)).slot is None
    newer = message_lookup.slot_at(live.opened, Coordinate(at._replace(incarnation=2), 5))
    assert newer is not None
    assert newer.message is not None
    assert newer.message.value == GOOD + b"9"
    assert looked_through(live, f"{topic}/0") == [*range(9)]
