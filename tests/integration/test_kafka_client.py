"""One client for all questions to a Kafka cluster, for programs that ask again and again."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaAdminClient

from services import control, processes
from services.site import Site
from tests.support.live_streams import Kafka
from tidemark.clients.kafka import log
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.errors import Unreachable


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
