"""Two brokers, each with a partition of its own: what happens when one of them is away."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator

import pytest
from kafka.errors import InvalidReplicationAssignmentError

from services import processes
from services.servers import SERVERS
from services.site import Site
from tests.support.live_streams import Kafka, Make
from tests.support.oracle import CDN
from tests.support.servers import free_ports
from tests.support.waiting import until
from tidemark.errors import Unreachable
from tidemark.runs.windows import ingest

SECOND = "kafka-second"


@pytest.fixture
def second_broker(other_kafka: tuple[Site, Kafka]) -> Iterator[Site]:
    """A second broker of `other_kafka`, which is no controller."""
    other, kafka = other_kafka
    first, second = other.folder("kafka"), other.folder(SECOND)
    port, data = free_ports(), second / "data"
    properties = (first / "conf" / "server.properties").read_text()
    for pattern, value in {
        "process.roles=.*": "process.roles=broker",
        "node.id=.*": "node.id=2",
        "listeners=PLAINTEXT.*": f"listeners=PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners=.*": f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
        "log.dirs=.*": f"log.dirs={data}",
    }.items():
        properties = re.sub(f"(?m)^{pattern}$", value, properties)
    file = second / "server.properties"
    file.write_text(properties)
    data.mkdir()
    # It belongs to the same cluster; its own number is written when it starts.
    meta = (first / "data" / "meta.properties").read_text()
    kept = [line for line in meta.splitlines() if not line.startswith(("node.id", "directory.id"))]
    (data / "meta.properties").write_text("\n".join([*kept, "node.id=2", ""]))
    shutil.copytree(first / "data" / "__cluster_metadata-0", data / "__cluster_metadata-0")
    command = SERVERS["kafka"].command
    assert command is not None
    processes.start(other, SECOND, [*command(other)[:-1], str(file)], {})
    until(lambda: len(kafka.admin.describe_cluster()["brokers"]) == 2, "the second broker is not there")
    yield other
    processes.kill(other, SECOND)


def created(kafka: Kafka, topic: str) -> bool:
    """Make a topic with a partition on each broker; one that has just been started takes none yet."""
    try:
        kafka.admin.create_topics({topic: {"assignments": {0: [1], 1: [2]}}}, wait_for_metadata=True)
    except InvalidReplicationAssignmentError:
        return False
    return True


@pytest.mark.covers("E31")
def test_a_partition_without_a_leader_fails_the_whole_window(
    make: Make, other_kafka: tuple[Site, Kafka], second_broker: Site
) -> None:
    _, kafka = other_kafka
    topic = f"logs-{secrets.token_hex(3)}"
    until(lambda: created(kafka, topic), "no topic can be made on both brokers")
    kafka.send([(topic, partition, None, b"x") for partition in (0, 1) for _ in range(4)])
    live = make(CDN, source={"topics": [topic], "kafka": "kafka_other"})
    before = list(live.opened.ledger.store.scan(()))
    processes.kill(second_broker, SECOND)

    def leaders() -> list[int]:
        (found,) = kafka.admin.describe_topics([topic])
        return sorted(one["leader_id"] for one in found["partitions"])

    until(lambda: leaders() == [-1, 1], "the partition still has a leader")
    with pytest.raises(Unreachable, match=rf"{topic}/1|leader") as refused:
        ingest.plan_ingest(live.opened, "run")
    assert refused.value.exit_code == 5
    assert list(live.opened.ledger.store.scan(())) == before == []
