"""Positions of other programs: their files in each of the forms that are found, and places that are said twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NoNodeError

from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.zookeeper import ZooKeeper
from tidemark.errors import WrongUse
from tidemark.migrate.importing import (
    Offsets,
    from_checkpoint,
    from_consumer_nodes,
    from_csv,
    from_hbase_rows,
    from_storm_nodes,
)

HEADER = "group,topic,partition,offset"


def offsets_in(tmp_path: Path, content: str | bytes, group: str = "old") -> Offsets:
    path = tmp_path / "saved.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return from_csv(path, group)


@pytest.mark.covers("E33")
@pytest.mark.parametrize(
    "content",
    [
        f"{HEADER}\nold,orders,0,2\nother,orders,0,9\n",
        # As a spreadsheet saves it.
        f"\ufeff{HEADER}\r\nold,orders,0,2\r\n",
        '\ufeff"group","topic","partition","offset"\r\n"old","orders",0,2\r\n',
        # As kafka-consumer-groups.sh exports one group, and several (KIP-122, KIP-175).
        "orders,0,2\n",
        '"orders",0,2\n',
        "old,orders,0,2\nother,orders,0,9\n",
        "topic,partition,offset\norders,0,2\n",
    ],
)
def test_forms_of_csv(tmp_path: Path, content: str) -> None:
    assert offsets_in(tmp_path, content) == {("orders", 0): 2}


@pytest.mark.covers("E33")
@pytest.mark.parametrize(
    ("content", "group", "said"),
    [
        (
            f"{HEADER}\nold,orders,0\nold,orders,1,x\n",
            "old",
            r"saved.csv:2: 'old' is not an offset|saved.csv:2: 'orders'",
        ),
        (f"{HEADER}\nold,0\n", "old", "saved.csv:2: 2 columns; expected group,topic,partition,offset"),
        ("Group;Topic;Partition;Offset\n", "old", "saved.csv:1: 1 columns; expected"),
        ("topic,offset,partition\n", "old", "saved.csv:1: 'offset' is not an offset or a partition"),
        ("old,orders,0,2\n", "", "saved.csv:1: it has offsets of groups, such as 'old': --group says"),
        (f"orders,0,{'9' * 5000}\n", "", "is not an offset or a partition"),
    ],
)
def test_what_is_no_offset_is_refused(tmp_path: Path, content: str, group: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        offsets_in(tmp_path, content, group)


def checkpoint(folder: Path, version: str, *lines: str) -> Path:
    for part, text in (("offsets", "\n".join([version, '{"batchWatermarkMs":0}', *lines])), ("commits", "v1\n{}")):
        (folder / part).mkdir(parents=True)
        (folder / part / "7").write_text(text)
    return folder


ORDERS = '{"orders":{"0":2,"1":5}}'


@pytest.mark.covers("O5", "E33")
@pytest.mark.parametrize(
    ("version", "lines"),
    [
        ("v1", ["-", ORDERS]),
        # Named sources, of Spark 4.1 and later; without a name, its number.
        ("v2", [f"0:{ORDERS}"]),
        ("v2", ['others:{"else":{"0":1}}', f"my_orders:{ORDERS}", "files:-", 'rate:{"logOffset":3}']),
    ],
)
def test_formats_of_checkpoints(tmp_path: Path, version: str, lines: list[str]) -> None:
    found = from_checkpoint(checkpoint(tmp_path / "job", version, *lines), ["orders"])
    assert found == {("orders", 0): 2, ("orders", 1): 5}


def test_a_newer_format_of_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="offsets/7:1: expected v1 or v2"):
        from_checkpoint(checkpoint(tmp_path / "job", "v3", f"0:{ORDERS}"), ["orders"])
    with pytest.raises(WrongUse, match="offsets/7:3: expected offsets by partition for orders, found 5"):
        from_checkpoint(checkpoint(tmp_path / "other", "v2", '0:{"orders":5}'), ["orders"])


class Nodes:
    """ZooKeeper's nodes by their paths, as the import asks for them."""

    def __init__(self, nodes: Mapping[str, bytes]) -> None:
        self._nodes = nodes

    def repeated(self, _: str, call: Callable[[Any], Any]) -> Any:
        return call(
            SimpleNamespace(get_children_async=self._children, get_async=lambda path: (self._nodes[path], None))
        )

    def _children(self, folder: str) -> list[str]:
        below = [one.removeprefix(f"{folder}/") for one in self._nodes if one.startswith(f"{folder}/")]
        if not below:
            raise NoNodeError
        return sorted({one.partition("/")[0] for one in below} & {one for one in below if "/" not in one})


def consumers(_: Path, said: Iterable[tuple[str, int]]) -> Offsets:
    nodes = {f"/consumers/old/offsets/orders/{partition}": b"%d" % offset for partition, offset in said}
    return from_consumer_nodes(cast("ZooKeeper", Nodes(nodes)), "/consumers", "old", ["orders"])


def storm(_: Path, said: Iterable[tuple[str, int]]) -> Offsets:
    folders = iter(("/storm/old", "/storm/old/orders"))
    nodes = {
        f"{next(folders)}/partition_{partition}": json.dumps(
            {"topic": "orders", "partition": int(partition), "offset": offset}
        ).encode()
        for partition, offset in said
    }
    return from_storm_nodes(cast("ZooKeeper", Nodes(nodes)), "/storm", "old", ["orders"])


def hbase(_: Path, said: Iterable[tuple[str, int]]) -> Offsets:
    cells = {f"offsets:{partition}".encode(): b"%d" % offset for partition, offset in said}
    gateway = SimpleNamespace(last_rows=lambda *_: [(b"orders:old:1", cells)])
    return from_hbase_rows(cast("Gateway", gateway), "table", "old", ["orders"])


def of_checkpoint(tmp_path: Path, said: Iterable[tuple[str, int]]) -> Offsets:
    lines = [json.dumps({"orders": {partition: offset}}) for partition, offset in said]
    return from_checkpoint(checkpoint(tmp_path / "job", "v1", *lines), ["orders"])


def in_one_object(tmp_path: Path, said: Iterable[tuple[str, int]]) -> Offsets:
    inner = ",".join(f'"{partition}":{offset}' for partition, offset in said)
    return from_checkpoint(checkpoint(tmp_path / "job", "v1", f'{{"orders":{{{inner}}}}}'), ["orders"])


def of_csv(tmp_path: Path, said: Iterable[tuple[str, int]]) -> Offsets:
    return offsets_in(tmp_path, "".join(f"old,orders,{partition},{offset}\n" for partition, offset in said))


@pytest.mark.covers("E33")
@pytest.mark.parametrize("source", [consumers, storm, hbase, of_checkpoint, in_one_object, of_csv])
def test_a_place_that_is_said_twice_is_refused(
    tmp_path: Path, source: Callable[[Path, Iterable[tuple[str, int]]], Offsets]
) -> None:
    """Whichever comes last would win. A partition may be written as `0` and as `00`."""
    for number, said in enumerate(([("0", 9), ("00", 4)], [("0", 4), ("00", 9)])):
        if source in (in_one_object,):
            said = [("0", offset) for _, offset in said]
        with pytest.raises(WrongUse, match=r"a second time: \d here, \d in|each key once"):
            source(tmp_path / str(number) if source is not of_csv else tmp_path, said)
    assert source(tmp_path, [("0", 4)]) == {("orders", 0): 4}
