"""One client for all questions to a Kafka cluster, for programs that ask again and again."""

from __future__ import annotations

import itertools
import pickle
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from services import control, processes
from services.site import Site
from tests.support.live_streams import Kafka
from tidemark.clients.kafka import log
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.errors import Unreachable
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.kafka.messages import Origin, newest_origins
from tidemark.sinks.stored_rows import Place


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[KafkaAdminClient]:
    """The clients that were made."""
    made: list[KafkaAdminClient] = []

    class Counted(KafkaAdminClient):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            made.append(self)

    monkeypatch.setattr(log, "KafkaAdminClient", Counted)
    return made


def test_one_client_asks_all_questions_of_all_threads(kafka: Kafka, made: list[KafkaAdminClient]) -> None:
    kept = KafkaLog(KafkaEndpoint(kafka.servers), keep=True)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: kept.names(), range(40)))
    assert all(one == found[0] for one in found)
    assert len(made) == 1
    # To Spark's workers it travels without its client.
    copy = pickle.loads(pickle.dumps(kept))
    assert copy.names() == found[0]
    assert len(made) == 2
    copy.close()
    kept.close()
    assert kept.names() == found[0]
    assert len(made) == 3
    kept.close()
    # By default, each question has its own.
    each = KafkaLog(KafkaEndpoint(kafka.servers))
    assert each.names() == each.names() == found[0]
    assert len(made) == 5


@pytest.mark.full
def test_a_client_that_got_no_answer_is_not_used_again(kafka: Kafka, site: Site, made: list[KafkaAdminClient]) -> None:
    kept = KafkaLog(KafkaEndpoint(kafka.servers), timeout_ms=2_000, keep=True)
    found = kept.names()
    processes.kill(site, "kafka")
    try:
        with pytest.raises(Unreachable, match=f"Kafka at {kafka.servers} did not answer"):
            kept.names()
    finally:
        control.start(site, "kafka")
    assert kept.names() == found
    assert len(made) >= 2
    kept.close()


@pytest.mark.covers("E63")
@pytest.mark.parametrize("moment", [1, 2], ids=["before the starts", "before the ends"])
def test_a_topic_that_is_made_anew_while_it_is_looked_at(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """The ends of one incarnation never stand under the id of another."""
    topic = f"anew-{moment}-{secrets.token_hex(4)}"
    kafka.create(topic, 1)
    kafka.send((topic, 0, None, b"old") for _ in range(9))
    ask, asked = log._offsets, 0

    def offsets(*question: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == moment:
            kafka.recreate(topic, 1)
            kafka.send((topic, 0, None, b"new") for _ in range(4))
        return ask(*question)

    asking = KafkaLog(KafkaEndpoint(kafka.servers))
    before = asking.topics((topic,), READ_COMMITTED)[topic]
    monkeypatch.setattr(log, "_offsets", offsets)
    found = asking.topics((topic,), READ_COMMITTED)[topic]
    assert found.topic_id != before.topic_id
    assert (found.partitions[0].start, found.partitions[0].end) == (0, 4)
    # One that changes under each look has no answer.
    asked, moment = 0, 0
    numbers = itertools.count()
    monkeypatch.setattr(log, "_who", lambda described: next(numbers))
    with pytest.raises(Unreachable, match=f"{topic}: deleted, recreated or led by others each time"):
        asking.topics((topic,), READ_COMMITTED)


@pytest.mark.covers("O10")
def test_the_last_messages_of_a_topic_say_whose_it_is(kafka: Kafka) -> None:
    """Of each partition, also behind messages of another program; a topic that is not there says nothing."""
    topic = f"results-{secrets.token_hex(4)}"
    kafka.create(topic, 3)
    first, last = (Origin("orders", Place(TopicPartition("logs", 0), offset, 0), 5, "ingest", 3) for offset in (7, 8))
    with closing(KafkaProducer(bootstrap_servers=kafka.servers)) as producer:
        for partition, headers in ((0, first.headers()), (2, last.headers()), (2, []), (2, [("trace", b"1")])):
            producer.send(topic, b"{}", partition=partition, headers=headers)
        producer.flush()
    endpoint = KafkaEndpoint(kafka.servers)
    found = list(newest_origins(endpoint, [f"{topic}-missing", topic]))
    assert found == [(topic, first), (topic, last)]
