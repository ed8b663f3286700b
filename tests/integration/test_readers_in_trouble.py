"""Readers of results where something is not there: a broker that goes away, a table that nobody has made yet."""

from __future__ import annotations

import secrets
from contextlib import closing

import pytest
from kafka import KafkaProducer

from services import control
from services.site import Site
from tests.support.live_streams import Kafka
from tests.support.memory import MemoryStore
from tests.support.stores import new_stream
from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.kafka import consuming
from tidemark.errors import Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.hbase.table import ResultTable
from tidemark.sinks.kafka import messages as kafka_messages
from tidemark.sinks.kafka.messages import Origin
from tidemark.sinks.stored_rows import Place

AT = TopicPartition("orders", 0)


class Counting(Ledger):
    """A ledger in which all messages of a partition count."""

    def authority(self, sink: str | None = None) -> Authority:
        return Authority([(9, RangeSet([OffsetRange(AT, 0, 100)]))])


@pytest.mark.full
def test_a_broker_that_goes_away_between_two_partitions(
    other_kafka: tuple[Site, Kafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it no longer gives is not left out."""
    monkeypatch.setattr(consuming, "_TIMEOUT_MS", 3_000)
    site, kafka = other_kafka
    kafka.create("out", 2)
    with closing(KafkaProducer(bootstrap_servers=kafka.servers)) as producer:
        for partition in (0, 1):
            headers = Origin("s", Place(AT, partition, 0), 9, "ingest", 1).headers()
            producer.send("out", b"row", partition=partition, headers=headers).get(timeout=30)
    given = kafka_messages.kafka_messages(Counting(MemoryStore(), "s"), kafka.endpoint, ["out"], "out")
    assert next(given).origin.place.offset == 0
    control.down(site, report=lambda line: None)
    # The client may notice by itself that the broker is away, before the partition gives nothing.
    with pytest.raises(Unreachable, match=r"out/1|Kafka at .* did not answer"):
        next(given)


def test_a_table_that_nobody_has_made_yet_has_no_rows(site: Site) -> None:
    gateway = Gateway(HBaseEndpoint("127.0.0.1", site.port("thrift")))
    table = ResultTable(gateway, f"nowhere_{secrets.token_hex(3)}")
    assert list(table.rows_that_count(Counting(MemoryStore(), new_stream()).authority(), OffsetRange(AT, 0, 100))) == []
