"""Positions that other programs have stored, as the start of a new stream: {(topic, partition): next offset}.

All of these layouts hold the next offset to read, as Tidemark does. Each docstring names its origin. Reading changes
nothing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kazoo.exceptions import NoNodeError

from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.zookeeper import ZooKeeper
from tidemark.errors import WrongUse
from tidemark.offsets.ranges import MAX_OFFSET

Offsets = dict[tuple[str, int], int]

CSV_COLUMNS = ["group", "topic", "partition", "offset"]
# The characters with which a formula begins in a spreadsheet.
# A spreadsheet passes over a tab or a carriage return before the sign.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


class _OffsetsByPlace:
    """Offsets by their places. A place that is said twice, otherwise each time, is refused: neither can be trusted."""

    def __init__(self) -> None:
        self.offsets: Offsets = {}
        self._where: dict[tuple[str, int], str] = {}

    def put(self, topic: str, partition: object, offset: object, where: str) -> None:
        """Raises WrongUse, naming `where`."""
        place, number = (topic, _number(partition, where)), _number(offset, where)
        if self.offsets.setdefault(place, number) != number:
            raise WrongUse(
                f"{where}: {topic}/{place[1]} stands there a second time: {number} here, {self.offsets[place]} in "
                f"{self._where[place]}. Expected one next offset for each partition"
            )
        self._where.setdefault(place, where)


def from_csv(path: Path, group: str) -> Offsets:
    """Rows of group,topic,partition,offset, as an export writes them, or as Kafka's own command does.

    `kafka-consumer-groups.sh --reset-offsets --export` writes no header, and no group where it was asked for one. A
    spreadsheet puts a byte order mark before the first row. Raises WrongUse naming the line.
    """
    positions = _OffsetsByPlace()
    with path.open(newline="", encoding="utf-8-sig") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            where = f"{path}:{number}"
            if number == 1 and row in (CSV_COLUMNS, CSV_COLUMNS[1:]):
                continue
            if len(row) not in (len(CSV_COLUMNS), len(CSV_COLUMNS) - 1):
                raise WrongUse(
                    f"{where}: {len(row)} columns; expected {','.join(CSV_COLUMNS)}, or the same without the group"
                )
            *of_group, topic, partition, offset = row
            if of_group and not group:
                raise WrongUse(
                    f"{where}: it has offsets of groups, such as {of_group[0]!r}: --group says whose to take"
                )
            if not of_group or _plain(of_group[0]) == group:
                positions.put(_plain(topic), partition, offset, where)
    return positions.offsets


def harmless(text: str) -> str:
    """A cell that no spreadsheet takes as a formula: an apostrophe is put before a text that looks like one."""
    return f"'{text}" if text.startswith(FORMULAS) else text


def _plain(cell: str) -> str:
    """The text that `harmless` has made a cell of."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULAS) else cell


def from_hbase_rows(gateway: Gateway, table: str, group: str, topics: Iterable[str]) -> Offsets:
    """The newest row `<TOPIC>:<GROUP>:<MILLISECONDS>` of each topic, family `offsets`, as Spark jobs keep them in HBase."""
    positions = _OffsetsByPlace()
    for topic in topics:
        prefix = f"{topic}:{group}:"
        for row, cells in gateway.last_rows(table, prefix.encode(), f"{topic}:{group};".encode(), 1):
            for column, value in cells.items():
                partition = column.decode().removeprefix("offsets:")
                positions.put(topic, partition, value.decode(), f"{table} {row.decode()} {column.decode()}")
    return positions.offsets


def from_consumer_nodes(zookeeper: ZooKeeper, root: str, group: str, topics: Iterable[str]) -> Offsets:
    """`ROOT/GROUP/offsets/TOPIC/PARTITION`, as Kafka's old consumers keep them in ZooKeeper."""
    positions = _OffsetsByPlace()
    for topic in topics:
        folder = f"{root}/{group}/offsets/{topic}"
        for name, value in _nodes(zookeeper, folder):
            positions.put(topic, name, value.decode(errors="replace"), f"{folder}/{name}")
    return positions.offsets


def from_storm_nodes(zookeeper: ZooKeeper, root: str, identity: str, topics: Iterable[str]) -> Offsets:
    """`ROOT/ID/partition_N`, or `ROOT/ID/TOPIC/partition_N`, as Storm's Kafka spout keeps them: JSON."""
    wanted = set(topics)
    positions = _OffsetsByPlace()
    for folder in (f"{root}/{identity}", *(f"{root}/{identity}/{topic}" for topic in sorted(wanted))):
        for name, value in _nodes(zookeeper, folder):
            if name.startswith("partition_"):
                state = _object(value, f"{folder}/{name}")
                if state.get("topic") in wanted:
                    positions.put(state["topic"], state.get("partition"), state.get("offset"), f"{folder}/{name}")
    return positions.offsets


def from_checkpoint(folder: Path, topics: Iterable[str]) -> Offsets:
    """The offset log of a Structured Streaming checkpoint: the end of the last batch that its commit log has.

    A batch that was planned but not committed may have been written in part. It is read again, as Spark would do.
    """
    done = {path.name for path in (folder / "commits").glob("*") if path.name.isdecimal()}
    planned = {path.name for path in (folder / "offsets").glob("*") if path.name.isdecimal()}
    batches = sorted(done & planned, key=int)
    if not batches:
        raise WrongUse(f"{folder} has no committed batch: expected offsets/N and commits/N in a checkpoint")
    last = folder / "offsets" / batches[-1]
    lines = last.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0] not in ("v1", "v2"):
        raise WrongUse(f"{last}:1: expected v1 or v2, the formats that Spark 2 to 4 write")
    wanted = set(topics)
    positions = _OffsetsByPlace()
    # One line has the batch's settings, then each source has a line. Sources other than Kafka have no topics.
    for number, line in enumerate(lines[2:], start=3):
        # In v2 each begins with the source's name or number.
        offsets = line.partition(":")[2] if lines[0] == "v2" else line
        source = _object(offsets.encode(), f"{last}:{number}") if offsets != "-" else {}
        for topic in wanted & source.keys():
            if not isinstance(source[topic], dict):
                raise WrongUse(f"{last}:{number}: expected offsets by partition for {topic}, found {source[topic]!r}")
            for partition, offset in source[topic].items():
                positions.put(topic, partition, offset, f"{last}:{number}")
    return positions.offsets


def _nodes(zookeeper: ZooKeeper, folder: str) -> Iterator[tuple[str, bytes]]:
    try:
        names = zookeeper.repeated("read", lambda client: client.get_children_async(folder))
    except NoNodeError:
        return
    for name in names:
        yield name, _value(zookeeper, f"{folder}/{name}")


def _value(zookeeper: ZooKeeper, path: str) -> bytes:
    value: bytes = zookeeper.repeated("read", lambda client: client.get_async(path))[0]
    return value


def _object(value: bytes, where: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(value, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise WrongUse(f"{where}: expected a JSON object with each key once, found {value[:80]!r}")
    return parsed


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands twice in it")
    return fields


def _number(value: object, where: str) -> int:
    """A partition or an offset. Raises WrongUse: nothing is guessed, and -1 and -2 are no offsets."""
    text = str(value)
    if (
        isinstance(value, bool)
        or not text.isascii()
        or not text.isdecimal()
        or len(text) > 19
        or int(text) >= MAX_OFFSET
    ):
        raise WrongUse(f"{where}: {text[:80]!r} is not an offset or a partition; expected a number from 0 on")
    return int(text)
