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


def from_csv(path: Path, group: str) -> Offsets:
    """Rows of group,topic,partition,offset, with that header, as an export writes them. Raises WrongUse naming the line."""
    found: Offsets = {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        if next(rows, None) != CSV_COLUMNS:
            raise WrongUse(f"{path}:1: expected the header {','.join(CSV_COLUMNS)}")
        for number, row in enumerate(rows, start=2):
            where = f"{path}:{number}"
            if len(row) != len(CSV_COLUMNS):
                raise WrongUse(f"{where}: {len(row)} columns; expected {','.join(CSV_COLUMNS)}")
            if _plain(row[0]) == group:
                place = _plain(row[1]), _number(row[2], where)
                if place in found:
                    raise WrongUse(f"{where}: {place[0]}/{place[1]} stands there a second time")
                found[place] = _number(row[3], where)
    return found


def harmless(text: str) -> str:
    """A cell that no spreadsheet takes as a formula: an apostrophe is put before a text that looks like one."""
    return f"'{text}" if text.startswith(FORMULAS) else text


def _plain(cell: str) -> str:
    """The text that `harmless` has made a cell of."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULAS) else cell


def from_hbase_rows(gateway: Gateway, table: str, group: str, topics: Iterable[str]) -> Offsets:
    """The newest row `<TOPIC>:<GROUP>:<MILLISECONDS>` of each topic, family `offsets`, as Spark jobs keep them in HBase."""
    found: Offsets = {}
    for topic in topics:
        prefix = f"{topic}:{group}:"
        for row, cells in gateway.last_rows(table, prefix.encode(), f"{topic}:{group};".encode(), 1):
            for column, value in cells.items():
                partition = column.decode().removeprefix("offsets:")
                found[topic, _number(partition, f"{table} {row.decode()}")] = _number(
                    value.decode(), f"{table} {row.decode()} {column.decode()}"
                )
    return found


def from_consumer_nodes(zookeeper: ZooKeeper, root: str, group: str, topics: Iterable[str]) -> Offsets:
    """`ROOT/GROUP/offsets/TOPIC/PARTITION`, as Kafka's old consumers keep them in ZooKeeper."""
    found: Offsets = {}
    for topic in topics:
        folder = f"{root}/{group}/offsets/{topic}"
        for name, value in _nodes(zookeeper, folder):
            found[topic, _number(name, folder)] = _number(value.decode(errors="replace"), f"{folder}/{name}")
    return found


def from_storm_nodes(zookeeper: ZooKeeper, root: str, identity: str, topics: Iterable[str]) -> Offsets:
    """`ROOT/ID/partition_N`, or `ROOT/ID/TOPIC/partition_N`, as Storm's Kafka spout keeps them: JSON."""
    wanted = set(topics)
    found: Offsets = {}
    for folder in (f"{root}/{identity}", *(f"{root}/{identity}/{topic}" for topic in sorted(wanted))):
        for name, value in _nodes(zookeeper, folder):
            if name.startswith("partition_"):
                state = _object(value, f"{folder}/{name}")
                if state.get("topic") in wanted:
                    where = f"{folder}/{name}"
                    found[state["topic"], _number(state.get("partition"), where)] = _number(state.get("offset"), where)
    return found


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
    if not lines or lines[0] != "v1":
        raise WrongUse(f"{last}:1: expected v1, the format that Spark 2 to 4 write")
    wanted = set(topics)
    found: Offsets = {}
    # One line has the batch's settings, then each source has a line. Sources other than Kafka have no topics.
    for number, line in enumerate(lines[2:], start=3):
        source = _object(line.encode(), f"{last}:{number}") if line != "-" else {}
        for topic in wanted & source.keys():
            for partition, offset in source[topic].items():
                found[topic, _number(partition, f"{last}:{number}")] = _number(offset, f"{last}:{number}")
    return found


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
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WrongUse(f"{where}: expected a JSON object, found {value[:80]!r}")
    return found


def _number(found: object, where: str) -> int:
    """A partition or an offset. Raises WrongUse: nothing is guessed, and -1 and -2 are no offsets."""
    text = str(found)
    if isinstance(found, bool) or not text.isascii() or not text.isdecimal() or int(text) >= MAX_OFFSET:
        raise WrongUse(f"{where}: {text[:80]!r} is not an offset or a partition; expected a number from 0 on")
    return int(text)
