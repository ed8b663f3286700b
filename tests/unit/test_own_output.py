"""A stream that would read what it writes is refused, and a sensor that waits for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.airflow.waiting import windows_there
from tidemark.clients.connections import Connection
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import WrongUse
from tidemark.runs.live import own_output
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.own_output import check_own_output

COPIES = "  copy_to_topic: orders_dead\n  copy_kafka: kafka_of_another_user\n"
SINK = "  - {type: kafka, kafka: kafka_of_another_user, topic: orders_dead, key: id}\n"


def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, topic_id: str) -> OpenStream:
    """A stream that reads all topics of a pattern. By the other connection, a topic of the pattern has this id."""
    made = StreamInMemory(tmp_path, text=text)
    own = {"orders_dead": TopicLog("id of the dead", {0: PartitionLog(0, 5, None)})}
    there = {"orders_dead": TopicLog(topic_id, {0: PartitionLog(0, 5, None)})}

    class Other:
        def __init__(self, endpoint: Any) -> None:
            assert endpoint.servers == "localhost:9092"

        def topics(self, names: list[str], isolation: str) -> dict[str, TopicLog]:
            return there

    monkeypatch.setattr(own_output, "KafkaLog", Other)
    monkeypatch.setattr(type(made.opened.log), "topics", lambda self, names, isolation: own)
    return replace(
        made.opened, connections=lambda name: Connection(name, extra={"bootstrap.servers": "localhost:9092"})
    )


@pytest.mark.parametrize("more", [COPIES, SINK])
def test_a_stream_never_reads_what_it_writes_by_another_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    reads = TEXT.replace("  topics: [orders]\n", '  pattern: "orders.*"\n')
    text = reads + COPIES if more == COPIES else reads.replace("sinks:\n", f"sinks:\n{SINK}")
    same = world(tmp_path, monkeypatch, text, "id of the dead")
    with pytest.raises(WrongUse, match="it would read what it writes"):
        check_own_output(same)
    # Of another cluster, it is another topic.
    check_own_output(world(tmp_path, monkeypatch, text, "another"))


@pytest.mark.covers("N74")
@pytest.mark.parametrize("ranges", ["", " \n", [], "# orders/0@0-5", ["", "# none"]])
def test_a_sensor_that_names_nothing_does_not_pass(tmp_path: Path, ranges: str | list[str]) -> None:
    with pytest.raises(WrongUse, match="none is named"):
        windows_there(StreamInMemory(tmp_path).opened, ranges)
