"""`tidemark ledger export`: the positions, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemark import exporting
from tidemark.cli import finding
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, error
from tidemark.connections import hbase_endpoint, zookeeper_endpoint
from tidemark.errors import WrongUse
from tidemark.hbase.gateway import Gateway, TableMissing
from tidemark.ledger.records import INGEST, next_offsets
from tidemark.ledger.store import Offsets
from tidemark.ledger.zookeeper import OffsetLayouts
from tidemark.streams.opened import OpenStream
from tidemark.zookeeper import ZooKeeper

_KINDS = ("csv", "kafka-group", "hbase", "consumers", "storm")


def export(
    stream: Stream,
    to: Annotated[str, typer.Option(help="csv:FILE, kafka-group, hbase:TABLE, consumers:ROOT or storm:ROOT")],
    group: Annotated[str, typer.Option(help="the group (for Storm the id) that the offsets are written for")],
    connection: Annotated[str | None, typer.Option(help="the HBase or ZooKeeper connection")] = None,
    write: Annotated[bool, typer.Option("--write", help="do it; without this, it is only shown")] = False,
    as_json: Json = False,
) -> None:
    """Write the ingest's positions, the next offset of each partition, as another program keeps them.

    Example: tidemark ledger export orders --to csv:offsets.csv --group orders --write
    """
    opened = finding.opened(stream)
    kind, _, place = to.partition(":")
    if kind not in _KINDS or (kind in ("csv", "storm") and not place):
        raise WrongUse(f"--to {to}: expected csv:FILE, kafka-group, hbase:TABLE, consumers:ROOT or storm:ROOT")
    head = opened.book.head(INGEST)
    if head is None:
        raise WrongUse(f"{opened.book.stream} has no positions yet: there is nothing to export")
    offsets = next_offsets(head.head.positions)
    if write:
        _write(opened, kind, place, group, connection, offsets)
    found = [
        {"partition": f"{topic}/{partition}", "offset": str(offset), "to": to}
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    ]
    data(found, as_json=as_json, rows=[list(one.values()) for one in found], columns=("partition", "offset", "to"))
    if not write:
        error("Nothing was written: say --write to do it.")


def _write(opened: OpenStream, kind: str, place: str, group: str, connection: str | None, offsets: Offsets) -> None:
    match kind:
        case "csv":
            exporting.to_csv(Path(place), group, offsets)
        case "kafka-group":
            opened.log.commit_group(group, offsets)
        case "hbase":
            gateway = Gateway(hbase_endpoint(opened.connections(connection or "hbase_default")))
            try:
                table = place or "stream_kafka_offsets"
                exporting.to_hbase_rows(gateway, table, group, opened.book.clock(), offsets)
            except TableMissing:
                raise WrongUse(f"--to {kind}:{place}: HBase has no such table") from None
        case _:
            zookeeper = ZooKeeper(zookeeper_endpoint(opened.connections(connection or "zookeeper_default")))
            root = place or "/consumers"
            layouts = OffsetLayouts(group, **{kind: root})
            exporting.to_nodes(zookeeper, layouts, offsets)
