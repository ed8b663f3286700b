"""A stream's positions for other programs, in the layouts that `importing` reads: the next offset of each partition.

For users who leave Tidemark, or run another program beside it. Tidemark itself reads no export.
"""

from __future__ import annotations

import csv
from pathlib import Path

from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.zookeeper import ZooKeeper
from tidemark.errors import WrongUse
from tidemark.ledger.stores.contract import Leaders, Offsets
from tidemark.ledger.stores.hbase import HBaseLedgerStore
from tidemark.ledger.stores.zookeeper import OffsetLayouts, shown_acl
from tidemark.migrate.importing import CSV_COLUMNS, harmless


def to_csv(path: Path, group: str, offsets: Offsets) -> None:
    """Rows of group,topic,partition,offset in a new file. Raises WrongUse when the file exists already."""
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
    """A row `TOPIC:GROUP:MILLISECONDS` for each topic, in an existing table with the family `offsets`."""
    HBaseLedgerStore(gateway, "", group, table).publish(at, offsets)


def to_nodes(zookeeper: ZooKeeper, layouts: OffsetLayouts, offsets: Offsets, leaders: Leaders) -> None:
    """The nodes of Kafka's old consumers, or of Storm. Other logins may read them. An existing node gets the new offset."""
    for path, value in layouts.nodes(offsets, leaders):
        _put(zookeeper, path, value)


def _put(zookeeper: ZooKeeper, path: str, value: bytes) -> None:
    folder = path.rpartition("/")[0]
    # One after the other: kazoo makes a path in several steps, and a call sent at the same time would overtake them.
    for call in (
        lambda client: client.ensure_path_async(folder, acl=shown_acl(client, create=True)),
        lambda client: client.ensure_path_async(path, acl=shown_acl(client)),
        lambda client: client.set_async(path, value),
    ):
        zookeeper.repeated("write", call)
