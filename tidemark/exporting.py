"""A stream's positions for other programs, in the layouts that `importing` reads: the next offset of each partition.

For who leaves, or goes on beside: Tidemark itself reads none of it.
"""

from __future__ import annotations

import csv
from pathlib import Path

from tidemark.errors import WrongUse
from tidemark.hbase.gateway import Gateway
from tidemark.importing import CSV_COLUMNS, harmless
from tidemark.ledger.hbase import HBaseLedgerStore
from tidemark.ledger.store import Offsets
from tidemark.ledger.zookeeper import OffsetLayouts, shown_acl
from tidemark.zookeeper import ZooKeeper


def to_csv(path: Path, group: str, offsets: Offsets) -> None:
    """Rows of group,topic,partition,offset in a new file. Raises WrongUse when it is there already."""
    try:
        with path.open("x", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(CSV_COLUMNS)
            for topic, partitions in sorted(offsets.items()):
                for partition, offset in sorted(partitions.items()):
                    rows.writerow([harmless(group), harmless(topic), partition, offset])
    except OSError as problem:
        raise WrongUse(f"{path}: cannot be written: {problem.strerror}") from problem


def to_hbase_rows(gateway: Gateway, table: str, group: str, at: int, offsets: Offsets) -> None:
    """A row `TOPIC:GROUP:MILLISECONDS` for each topic, in a table that is there and has the family `offsets`."""
    HBaseLedgerStore(gateway, "", group, table).publish(at, offsets)


def to_nodes(zookeeper: ZooKeeper, layouts: OffsetLayouts, offsets: Offsets) -> None:
    """The nodes of Kafka's old consumers, or of Storm; others may read them. One that is there gets the new offset."""
    for path, value in layouts.nodes(offsets):
        _put(zookeeper, path, value)


def _put(zookeeper: ZooKeeper, path: str, value: bytes) -> None:
    folder = path.rpartition("/")[0]
    # One after the other: kazoo makes a path in several steps, and what is sent together would overtake them.
    for call in (
        lambda client: client.ensure_path_async(folder, acl=shown_acl(client, create=True)),
        lambda client: client.ensure_path_async(path, acl=shown_acl(client)),
        lambda client: client.set_async(path, value),
    ):
        zookeeper.repeated("write", call)
