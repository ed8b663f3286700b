"""The offsets that other tools are shown: those of the partitions that the ingest still reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs
from pydantic import TypeAdapter, ValidationError

from tests.support.memory import TransactionalStore
from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.ledger.records import Position, exported
from tidemark.ledger.stores.contract import ResetOffset
from tidemark.ledger.stores.zookeeper import OffsetLayouts
from tidemark.streams.model import AnyLedger


def test_a_recreated_topic_shows_no_partition_that_it_no_longer_has(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 10), (0, 20))
    record = made.ingest()
    assert record is not None
    assert exported(record) == {"orders": {0: 10, 1: 20}}
    # The topic came back with one partition, and another topic was left.
    newer = tuple(structs.replace(one, incarnation=2) for one in record.window.ranges if one.partition == 0)
    positions = (*record.positions, Position("orders", 2, 0, 3), Position("gone", 1, 0, 7))
    later = structs.replace(record, window=structs.replace(record.window, ranges=newer), positions=positions)
    # The topic that was left stays, without partitions: with it, Storm's nodes have a folder for each topic.
    assert exported(later) == {"orders": {0: 3}, "gone": {}}
    nodes = dict(OffsetLayouts("g", None, "/storm", "spout").nodes(exported(later), {("orders", 0): ("b", 9092)}))
    assert list(nodes) == ["/storm/spout/orders/partition_0"]
    assert json.loads(nodes["/storm/spout/orders/partition_0"])["broker"] == {"host": "b", "port": 9092}


@pytest.mark.covers("O3")
def test_the_first_offsets_of_a_recreated_topic_may_be_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of ZooKeeper never fall, except there: they kept the larger offset of the topic before."""
    monkeypatch.setattr("tidemark.runs.live.kafka_now._STALE_PAUSE_SECONDS", 0)
    store = TransactionalStore()
    text = TEXT.replace("start: earliest", "start: earliest\n  on_recreated: accept")
    made = StreamInMemory(tmp_path, text=text, store=store)
    made.ends((0, 50))
    made.ingest("run 1")
    made.kafka.ids["orders"] = "created again"
    for end in (12, 15):
        # A partition that is added is none that begins anew.
        made.ends((0, end), *[(0, 3)] * (end == 15))
        made.ingest(f"run {end}")
    assert store.shown == [{"orders": {0: 50}}, {"orders": {0: 12}}, {"orders": {0: 15, 1: 3}}]
    anew = [
        (topic, partition)
        for shown in store.shown
        for topic, offsets in (shown or {}).items()
        for partition, offset in offsets.items()
        if isinstance(offset, ResetOffset)
    ]
    assert anew == [("orders", 0)]
    assert isinstance(store.shown[1]["orders"][0], ResetOffset)  # type: ignore[index]


def test_group_root_and_id_of_a_stream_file() -> None:
    def read(**said: object) -> AnyLedger:
        return TypeAdapter(AnyLedger).validate_python(said)

    assert read(type="zookeeper", storm="/storm") == read(type="zookeeper", storm={"zk_root": "/storm"})
    for group in ("groupid-1", "a:b", "old job"):
        assert read(type="hbase", group=group).group == group  # type: ignore[attr-defined]
    for group in ("", ".", "..", "a/b", "a\nb", "a\0"):
        for wrong in ({"group": group}, {"storm": {"zk_root": "/storm", "id": group}}):
            with pytest.raises(ValidationError):
                read(type="zookeeper", **wrong)
    with pytest.raises(ValidationError):
        read(type="zookeeper", storm={"id": "spout"})
