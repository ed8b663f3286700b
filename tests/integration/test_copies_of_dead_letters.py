"""Copies of dead letters in a topic of a real cluster, of a stream with a file of SQLite and a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka import TopicPartition as KafkaTopicPartition

from services.site import Site
from tests.support import own_readers
from tests.support.cuts import Cut, cut_after
from tests.support.live_streams import Kafka, LiveStream, Make
from tests.support.oracle import CDN
from tidemark.clients.kafka.consuming import consumer_of, records_of
from tidemark.commit.protocol import Step
from tidemark.errors import TopicUnknown
from tidemark.ledger.records import LaneKind
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive

pytestmark = pytest.mark.covers("O16")


@pytest.fixture
def live(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LiveStream:
    file = {"conn_type": "sqlite", "host": str(tmp_path / "ledger.db")}
    monkeypatch.setenv("AIRFLOW_CONN_SQLITE_DEFAULT", json.dumps(file))
    made = make(CDN, ledger={"type": "sql", "sql": "sqlite_default"})
    made.rewrite(
        sinks=[{"type": "parquet", "name": "files", "folder": made.name}],
        dead_letters={"type": "parquet", "folder": f"{made.name}_dead", "copy_to_topic": f"{made.name}.dead"},
        # Stricter than the example: so each window has some.
        checks=[*CDN.stream.get("checks", []), {"invalid_when": "code = 200", "reason": "not yet"}],
    )
    return made


def messages(live: LiveStream, topic: str) -> list[tuple[dict[str, str], bytes | None, bytes | None]]:
    """Headers, key and value of every message."""
    found = []
    with consumer_of(live.opened.log.endpoint) as consumer:
        numbers = consumer.partitions_for_topic(topic) or set()
        places = [KafkaTopicPartition(topic, number) for number in sorted(numbers)]
        for at, end in consumer.end_offsets(places).items():
            for record in records_of(consumer, at, end):
                headers = {name: value.decode() for name, value in record.headers}
                found.append((headers, record.key, record.value))
    return found


def coordinates(live: LiveStream, topic: str) -> list[tuple[str, int, int]]:
    named = [[headers[f"__connect.errors.{name}"] for name in ("topic", "partition", "offset")]
             for headers, *_ in messages(live, topic)]  # fmt: skip
    return sorted((topic, int(partition), int(offset)) for topic, partition, offset in named)


@pytest.mark.usefixtures("spark")
def test_each_dead_letter_that_counts_is_copied(live: LiveStream, kafka: Kafka, site: Site) -> None:
    """A topic that is not there, a death after the commit, a topic that is gone meanwhile, and a redrive."""
    topic = f"{live.name}.dead"
    live.produce(120)
    with pytest.raises(TopicUnknown, match=f"copy_to_topic is {topic}, and Kafka at .* has no such topic: create it"):
        live.ingest()
    assert live.opened.ledger.committed() == []
    kafka.create(topic, 2)
    with pytest.raises(Cut):
        live.ingest(on_step=cut_after(Step.COMMITTED), take_over=True)
    assert messages(live, topic) == []
    kafka.delete(topic)
    with pytest.raises(TopicUnknown, match=r"Window ingest/1 is committed, and copies of its dead letters go there"):
        live.ingest()
    kafka.create(topic, 2)
    live.produce(60)
    live.ingest()
    wanted = {place[:3]: fields["reason"] for place, fields in own_readers.dead_letters(live.opened)}
    assert len(wanted) > 20
    assert {*live.expected().dead} <= {*wanted}
    assert coordinates(live, topic) == sorted(wanted)
    values = {}
    for place in {KafkaTopicPartition(*one[:2]) for one in wanted}:
        with consumer_of(live.opened.log.endpoint) as consumer:
            end = consumer.end_offsets([place])[place]
            values |= {
                (*place, record.offset): (record.key, record.value) for record in records_of(consumer, place, end)
            }
    for headers, key, value in messages(live, topic):
        at = (
            headers["__connect.errors.topic"],
            *(int(headers[f"__connect.errors.{one}"]) for one in ("partition", "offset")),
        )
        assert (key, value) == values[at]
        assert headers["__connect.errors.exception.message"] == wanted[at]
        assert headers["__connect.errors.connector.name"] == live.name
        assert headers["tidemark.errors.window"].startswith("ingest/")
    # What is a dead letter again is copied again, and says which window has made it so.
    again = redrive(live.opened, DeadLetterFilter()).ranges
    live.select(LaneKind.REPLAY, again)
    assert coordinates(live, topic) == sorted([*wanted, *wanted])
    windows = [headers["tidemark.errors.window"].partition("-")[0] for headers, *_ in messages(live, topic)]
    assert windows.count("replay") == len(wanted)
