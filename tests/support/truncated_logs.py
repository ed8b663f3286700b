"""Logs that lose their newest messages, as after an unclean election."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kafka import KafkaProducer

from services.site import Site
from tests.support.live_streams import Kafka


def cut_log(site: Site, topic: str, partition: int, until: int) -> None:
    """Remove the batches from offset `until` on from the log of a broker that is down."""
    folder = site.folder("kafka", "data", f"{topic}-{partition}")
    (file,) = folder.glob("*.log")
    stored, at = file.read_bytes(), 0
    while at < len(stored):
        offset, length = struct.unpack_from(">qi", stored, at)
        if offset >= until:
            break
        at += 12 + length
    assert 0 < at < len(stored)
    file.write_bytes(stored[:at])
    for index in [*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")]:
        index.unlink()
    for mark in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        (site.folder("kafka", "data") / mark).unlink(missing_ok=True)


def send_one_by_one(kafka: Kafka, topic: str, partition: int, values: Iterable[bytes]) -> None:
    """A batch for each message."""
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    for value in values:
        producer.send(topic, value, partition=partition).get(timeout=30)
    producer.close()
