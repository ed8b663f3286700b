"""Offsets for other tools go on where their readers look: in the rows and nodes that were there before the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import happybase
import pytest
from kazoo.client import KazooClient

from services.site import Site
from tests.support.command_line import tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS
from tests.support.protocol_world import NoWork, Sweeps, hold
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.errors import Unreachable
from tidemark.ledger.records import INGEST
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest


@pytest.fixture
def reader(site: Site) -> Iterator[KazooClient]:
    """Another tool, which has no login."""
    client = KazooClient(hosts=site.address("zookeeper"))
    client.start()
    yield client
    client.stop()
    client.close()


def committed(live: LiveStream, seq: int, opened: OpenStream | None = None) -> dict[tuple[str, int], int]:
    """Commit the ingest's next window, without reading its messages. Gives the positions after it."""
    opened, run = opened or live.opened, f"run {seq}"
    assert ingest.plan_ingest(opened, run) is not None
    protocol.process(opened.ledger, Sweeps(), NoWork(), hold, INGEST, seq, Run(run, "v", "d"))
    return live.positions()


def rows(site: Site, table: str, prefix: str) -> list[dict[int, int]]:
    """The offsets of each row that begins so, in the order of the rows."""
    connection = happybase.Connection("127.0.0.1", site.port("thrift"))
    found = [
        {int(column.removeprefix(b"offsets:")): int(value) for column, value in cells.items()}
        for _, cells in connection.table(table).scan(row_prefix=prefix.encode())
    ]
    connection.close()
    return found


@pytest.mark.covers("O1")
def test_rows_of_the_group_without_the_partitions_that_fell_away(make: Make, site: Site) -> None:
    live = make(CDN)
    offsets_table = f"{live.name}_offsets"
    kept, gone = live.topics[0], f"{live.name}-gone"
    live.kafka.create(gone, 1)
    ledger = {**LEDGERS["hbase"], "offsets_table": offsets_table, "group": "groupid-1"}
    live.rewrite(ledger=ledger, source={"topics": [kept, gone], "start": "earliest", "on_deleted": "leave"})
    live.kafka.send([(kept, 1, None, b"x"), (gone, 0, None, b"x")])
    committed(live, 1)
    assert rows(site, offsets_table, f"{kept}:groupid-1:") == [{0: 0, 1: 1, 2: 0, 3: 0}]
    assert rows(site, offsets_table, f"{gone}:groupid-1:") == [{0: 1}]
    live.kafka.delete(gone)
    live.kafka.send([(kept, 1, None, b"y")])
    positions = committed(live, 2)
    # The ledger still knows the position; other tools are not shown it any more.
    assert positions[gone, 0] == 1
    assert rows(site, offsets_table, f"{kept}:groupid-1:")[-1] == {0: 0, 1: 2, 2: 0, 3: 0}
    assert rows(site, offsets_table, f"{gone}:groupid-1:") == [{0: 1}]
    assert rows(site, offsets_table, f"{kept}:{live.name}:") == []
    shown, _ = tidemark(
        "ledger", "export", "--dry-run", str(live.file), "--to", "kafka-group", "--group", "g", "--json"
    )
    assert {one["partition"] for one in json.loads(shown)} == {f"{kept}/{number}" for number in range(4)}


@pytest.mark.covers("O3", "S11")
def test_nodes_that_were_there_go_on_under_their_group_and_id(make: Make, reader: KazooClient) -> None:
    live = make(CDN)
    topic, zk_root = live.topics[0], f"/kafkastorm-{live.name}"
    group, spout = f"groupid-1-{live.name}", "spout"
    ledger = {"type": "zookeeper", "group": group, "storm": {"zk_root": zk_root, "id": spout}}
    live.rewrite(ledger=ledger)
    node, state = f"/consumers/{group}/offsets/{topic}/1", f"{zk_root}/{spout}/partition_1"
    before: dict[str, Any] = {"topology": {"id": "t-1", "name": "t"}, "offset": 1, "partition": 1}
    reader.create(node, b"1", makepath=True)
    reader.create(
        state, json.dumps(before | {"broker": {"host": "old", "port": 1}, "topic": topic}).encode(), makepath=True
    )
    live.kafka.send((topic, 1, None, b"x") for _ in range(3))
    committed(live, 1)
    assert reader.get(node)[0] == b"3"
    (broker,) = live.kafka.admin.describe_cluster()["brokers"]
    assert json.loads(reader.get(state)[0]) == {
        "topology": {"id": spout, "name": spout},
        "offset": 3,
        "partition": 1,
        "broker": {"host": broker["host"], "port": broker["port"]},
        "topic": topic,
    }
    assert sorted(reader.get_children(f"{zk_root}/{spout}")) == [f"partition_{number}" for number in range(4)]
    for root in ("/consumers", zk_root):
        assert reader.exists(f"{root}/{live.name}") is None

    # A broker that cannot be asked at the commit keeps nothing from being committed.
    opened = live.opened

    def away(names: object) -> Any:
        raise Unreachable("nobody is there")

    opened.ledger.store.name_leaders(away)  # type: ignore[attr-defined]
    live.kafka.send([(topic, 1, None, b"y")])
    assert committed(live, 2, opened)[topic, 1] == 4
    found = json.loads(reader.get(state)[0])
    assert (found["offset"], found["broker"]) == (4, {"host": "", "port": 0})

    # An export names the leader too.
    place = f"{zk_root}-export"
    tidemark("ledger", "export", str(live.file), "--to", f"storm:{place}", "--group", "other", "--yes")
    found = json.loads(reader.get(f"{place}/other/partition_1")[0])
    assert (found["offset"], found["broker"]) == (4, {"host": broker["host"], "port": broker["port"]})
