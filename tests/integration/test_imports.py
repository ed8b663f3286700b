"""A new stream begins exactly where another program stopped: its state is written by hand, in its own format."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import happybase
import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.structs import OffsetAndMetadata
from kazoo.client import KazooClient

from tests.support.command_line import asked, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tidemark.runs.windows import ingest

# Eleven partitions, so that 10 comes after 9 as a number and not as text; of four there is no stored offset.
MANY = replace(CDN, partitions=11)
STORED = {0: 0, 1: 3, 2: 10, 4: 1, 6: 2, 9: 5, 10: 7}
GROUP = "old-job"


def csv(live: LiveStream, folder: Path) -> str:
    lines = ["group,topic,partition,offset", f"another,{live.topics[0]},0,9"]
    lines += [f"{GROUP},{live.topics[0]},{partition},{offset}" for partition, offset in STORED.items()]
    (folder / "offsets.csv").write_text("\n".join(lines) + "\n")
    return f"csv:{folder / 'offsets.csv'}"


def checkpoint(live: LiveStream, folder: Path) -> str:
    """Batches 8 to 10 are done, 11 was planned and not committed."""
    for name in ("offsets", "commits"):
        (folder / "checkpoint" / name).mkdir(parents=True)
    later = {partition: offset + 1 for partition, offset in STORED.items()}
    for batch, ends in ((8, dict.fromkeys(STORED, 0)), (10, STORED), (9, dict.fromkeys(STORED, 0)), (11, later)):
        source = json.dumps({live.topics[0]: {str(partition): end for partition, end in ends.items()}})
        settings = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
        (folder / "checkpoint" / "offsets" / str(batch)).write_text(f"v1\n{settings}\n-\n{source}")
        if batch != 11:
            (folder / "checkpoint" / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "checkpoint" / "offsets" / ".11.crc").write_bytes(b"crc")
    return f"checkpoint:{folder / 'checkpoint'}"


def kafka_group(live: LiveStream, folder: Path) -> str:
    consumer = KafkaConsumer(bootstrap_servers=live.kafka.servers, group_id=GROUP, enable_auto_commit=False)
    offsets = {
        KafkaTopicPartition(live.topics[0], partition): OffsetAndMetadata(offset, "", -1)
        for partition, offset in STORED.items()
    }
    consumer.assign(list(offsets))
    consumer.commit(offsets)
    consumer.close()
    return "kafka-group"


def hbase(live: LiveStream, folder: Path) -> str:
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    name = f"{live.name}_theirs"
    connection.create_table(name, {"offsets": {}})
    table = connection.table(name)
    for time, offsets in ((1795260000000, dict.fromkeys(STORED, 0)), (1795263600000, STORED)):
        cells = {f"offsets:{partition}".encode(): str(offset).encode() for partition, offset in offsets.items()}
        table.put(f"{live.topics[0]}:{GROUP}:{time}".encode(), cells)
    table.put(f"{live.topics[0]}:{GROUP}-b:1795270000000".encode(), {b"offsets:0": b"9"})
    connection.close()
    return f"hbase:{name}"


def in_zookeeper(live: LiveStream, nodes: dict[str, str]) -> None:
    client = KazooClient(hosts=live.site.address("zookeeper"))
    client.start()
    for path, value in nodes.items():
        client.create(path, value.encode(), makepath=True)
    client.stop()
    client.close()


def consumers(live: LiveStream, folder: Path) -> str:
    base = f"/{live.name}/consumers/{GROUP}/offsets/{live.topics[0]}"
    in_zookeeper(live, {f"{base}/{partition}": str(offset) for partition, offset in STORED.items()})
    return f"consumers:/{live.name}/consumers"


def storm(live: LiveStream, folder: Path) -> str:
    nodes = {
        f"/{live.name}/storm/{GROUP}/partition_{partition}": json.dumps(
            {
                "topology": {"id": "t-1", "name": "t"},
                "offset": offset,
                "partition": partition,
                "broker": {"host": "b", "port": 9092},
                "topic": live.topics[0],
            }
        )
        for partition, offset in STORED.items()
    }
    in_zookeeper(live, nodes)
    return f"storm:/{live.name}/storm"


# What of each layout's promise is about reading it.
LAYOUTS = {hbase: ("O1",), storm: ("S11",), csv: (), checkpoint: ("O5",), kafka_group: ("O4",), consumers: ("O3",)}


@pytest.mark.covers("E33")
@pytest.mark.parametrize(
    "layout",
    [pytest.param(one, marks=pytest.mark.covers(*rows), id=one.__name__) for one, rows in LAYOUTS.items()],
)
def test_the_first_window_begins_where_the_other_program_stopped(
    make: Make, tmp_path: Path, layout: Callable[[LiveStream, Path], str]
) -> None:
    live = make(MANY)
    live.produce(110)
    source = layout(live, tmp_path)
    arguments = ["ledger", "import", str(live.file), "--from", source, "--group", GROUP, "--json"]
    shown, said = tidemark(*arguments, "--dry-run")
    assert "dry run, nothing was changed" in said
    assert list(live.opened.ledger.store.scan(())) == []
    assert tidemark(*arguments, "--yes")[0] == shown
    pending = ingest.plan_ingest(live.opened, "run")
    assert pending is not None
    begun = {one.partition: one.start for one in pending.window.ranges}
    # A partition without a stored offset starts by the policy.
    assert begun == {partition: STORED.get(partition, 0) for partition in range(11)}
    assert [one["from"] for one in json.loads(shown)].count(source) == len(STORED)
    _, said = tidemark(*arguments, "--yes", code=2)
    assert "has positions already, and they never fall back" in said


def test_a_partition_without_a_stored_offset_may_start_at_its_end(make: Make, tmp_path: Path) -> None:
    live = make(MANY)
    live.produce(110)
    source = csv(live, tmp_path)
    tidemark("ledger", "import", str(live.file), "--from", source, "--group", GROUP, "--others", "latest", "--yes")
    assert {at.partition: offset for at, offset in live.head().offsets().items()} == {
        partition: STORED.get(partition, 10) for partition in range(11)
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("topic;partition;offset\n", "offsets.csv:1: 1 columns; expected", marks=pytest.mark.full),
        pytest.param(
            "{0},0\n", "offsets.csv:2: 2 columns; expected group,topic,partition,offset", marks=pytest.mark.full
        ),
        ("{0},{1},0,-2\n", "offsets.csv:2: '-2' is not an offset or a partition; expected a number from 0 on"),
        ("{0},{1},0,1\n{0},{1},0,2\n", "offsets.csv:3: {1}/0 stands there a second time"),
        ("{0},{1},0,99\n", "{1}/0 ends at 10 now, 99 lies above it"),
        pytest.param("{0},{1},50,1\n", "{1}/50 does not exist", marks=pytest.mark.full),
        pytest.param(
            "{0},{1}\x1b[31m,0,1\n{0},{1}\x1b[31m,0,2\n",
            "offsets.csv:3: {1}\\x1b[31m/0 stands there a second time",
            marks=pytest.mark.full,
        ),
        pytest.param("other,{1},0,1\n", "there is no offset of {1} to import", marks=pytest.mark.full),
    ],
)
def test_stored_offsets_that_cannot_be_are_refused_and_nothing_is_written(
    make: Make, tmp_path: Path, text: str, said: str
) -> None:
    live = make(CDN)
    live.produce(40)
    header = "" if text.startswith("topic") else "group,topic,partition,offset\n"
    (tmp_path / "offsets.csv").write_text(header + text.format(GROUP, live.topics[0]))
    source = f"csv:{tmp_path / 'offsets.csv'}"
    _, found = tidemark("ledger", "import", str(live.file), "--from", source, "--group", GROUP, "--yes", code=2)
    assert said.format(GROUP, live.topics[0]) in found
    assert live.opened.ledger.head("ingest") is None


@pytest.mark.covers("A36")
def test_the_plan_after_an_import(make: Make) -> None:
    live = make(replace(CDN, partitions=2), limits={"max_records": 300})
    topic, file = live.topics[0], str(live.file)
    live.kafka.send((topic, partition, None, b"x") for partition in range(2) for _ in range(500))
    live.opened.log.commit_group(GROUP, {topic: {0: 400, 1: 500}})
    tidemark("ledger", "import", file, "--from", "kafka-group", "--group", GROUP, "--yes")
    # What has nothing new is listed all the same, and no task reads it.
    found = asked("plan", file)
    first = {"partition": f"{topic}/0", "from": "400", "until": "500"}
    assert found["ranges"] == [first, {"partition": f"{topic}/1", "from": "500", "until": "500"}]
    assert found["tasks"] == [first]


@pytest.mark.full
@pytest.mark.covers("O4", "E36")
@pytest.mark.usefixtures("spark")
def test_committed_offsets_are_exported_to_a_consumer_group(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    live = make(CDN)
    group = f"{live.name}-shown"
    live.rewrite(source={"topics": list(live.topics), "export_group": group})
    live.produce(40)
    live.ingest()
    assert live.opened.log.group_offsets(group) == live.positions()
    # A new stream can begin there.
    other = make(CDN)
    other.rewrite(source={"topics": list(live.topics)})
    tidemark("ledger", "import", str(other.file), "--from", "kafka-group", "--group", group, "--yes")
    assert other.positions() == live.positions()
    # Somebody is a member of the group: the commit stands, the export is missed, and the next commit repairs it.
    consumer = KafkaConsumer(
        live.topics[0], bootstrap_servers=live.kafka.servers, group_id=group, enable_auto_commit=False
    )
    while not consumer.assignment():
        consumer.poll(timeout_ms=500)
    before = live.positions()
    live.produce(40)
    live.ingest()
    assert "were not exported" in caplog.text
    assert live.opened.log.group_offsets(group) == before
    consumer.close()
    live.produce(40)
    live.ingest()
    assert live.opened.log.group_offsets(group) == live.positions() != before
    # The group's offsets are gone, as when they have expired: the next run goes on at its own.
    live.kafka.admin.delete_groups([group])
    assert live.opened.log.group_offsets(group) == {}
    live.produce(8)
    (record,) = live.ingest()
    assert sum(tally.read.number for tally in record.tallies) == 8
