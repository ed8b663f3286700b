"""`tidemark ledger import` and `tidemark ledger export`: positions as other programs keep them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, error
from tidemark.clients.hbase.endpoint import TableMissing, hbase_endpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.zookeeper import ZooKeeper, zookeeper_endpoint
from tidemark.errors import WrongUse
from tidemark.ledger.records import INGEST, exported, next_offsets
from tidemark.ledger.stores.contract import Offsets
from tidemark.ledger.stores.zookeeper import OffsetLayouts
from tidemark.migrate import exporting, importing
from tidemark.runs.live.kafka_now import topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest

_KINDS = ("csv", "kafka-group", "hbase", "consumers", "storm")


@changes()
def import_(
    stream: Stream,
    asking: Confirmation,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="csv:FILE, checkpoint:FOLDER, kafka-group, hbase:TABLE, consumers:ROOT or storm:ROOT",
        ),
    ],
    group: Annotated[str, typer.Option(help="the group (for Storm the id) whose offsets they are")] = "",
    others: Annotated[
        str, typer.Option(help="earliest or latest: for partitions without a stored offset")
    ] = "earliest",
    shift: Annotated[int, typer.Option(help="this many messages later, or earlier if negative, than is stored")] = 0,
    connection: Annotated[str | None, typer.Option(help="the HBase or ZooKeeper connection")] = None,
    as_json: Json = False,
) -> None:
    """Begin a new stream at the offsets that another program has stored. Shows them, and asks.

    Example: tidemark ledger import orders --from hbase:stream_kafka_offsets --group old-job
    """
    opened = stream_lookup.opened(stream)
    if others not in ("earliest", "latest"):
        raise WrongUse(f"--others {others!r}: expected earliest or latest")
    offsets = stored_offsets(opened, source, group, connection)
    run = f"tidemark ledger import {source}"
    start = ingest.import_positions(opened, offsets, others, run, write=asking.yes, shift=shift)
    positions = [
        {
            "partition": str(position.at),
            "offset": str(position.offset),
            "from": source if (position.topic, position.partition) in offsets else others,
        }
        for position in start
    ]
    data(
        positions,
        as_json=as_json,
        rows=[list(position.values()) for position in positions],
        columns=("partition", "offset", "from"),
    )
    for position in start:
        before = offsets.get((position.topic, position.partition))
        if before is not None and position.offset != before + shift:
            end = "beginning" if position.offset > before + shift else "end"
            error(f"{position.at}: {before}{shift:+d} is outside the log: cut to its {end}, {position.offset}")
    if asking.shows and asking.agrees(f"Begin {opened.ledger.stream} there?"):
        # The offsets that were shown count, wherever the ends are by then.
        shown = {(position.topic, position.partition): position.offset for position in start}
        ingest.import_positions(opened, shown, others, run, write=True)


@changes()
def export(
    stream: Stream,
    asking: Confirmation,
    to: Annotated[str, typer.Option(help="csv:FILE, kafka-group, hbase:TABLE, consumers:ROOT or storm:ROOT")],
    group: Annotated[str, typer.Option(help="the group (for Storm the id) that the offsets are written for")],
    connection: Annotated[str | None, typer.Option(help="the HBase or ZooKeeper connection")] = None,
    as_json: Json = False,
) -> None:
    """Write the ingest's positions, the next offset of each partition, as another program keeps them.

    Shows them, and asks.

    Example: tidemark ledger export orders --to csv:offsets.csv --group orders
    """
    opened = stream_lookup.opened(stream)
    kind, _, place = to.partition(":")
    if kind not in _KINDS or (kind in ("csv", "storm") and not place):
        raise WrongUse(f"--to {to}: expected csv:FILE, kafka-group, hbase:TABLE, consumers:ROOT or storm:ROOT")
    head = opened.ledger.head(INGEST)
    if head is None:
        raise WrongUse(f"{opened.ledger.stream} has no positions yet: there is nothing to export")
    last = head.head.last
    offsets = next_offsets(head.head.positions) if last is None else exported(last)
    positions = [
        {"partition": f"{topic}/{partition}", "offset": str(offset), "to": to}
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    ]
    data(
        positions,
        as_json=as_json,
        rows=[list(position.values()) for position in positions],
        columns=("partition", "offset", "to"),
    )
    if asking.agrees(f"Write these offsets to {to}, in place of what group {group} has there?"):
        _write(opened, kind, place, group, connection, offsets)


def stored_offsets(opened: OpenStream, source: str, group: str, connection: str | None) -> importing.Offsets:
    """Read the offsets of `KIND:PLACE`. Raises WrongUse for what does not exist or cannot be read."""
    # A file of offsets may be of one group, which it does not name.
    if source.partition(":")[0] not in ("checkpoint", "csv") and not group:
        raise WrongUse(f"--from {source} needs --group: whose offsets they are")
    try:
        return _read(opened, source, group, connection)
    except OSError as problem:
        raise WrongUse(f"--from {source}: {problem.strerror}") from problem
    except (UnicodeDecodeError, csv.Error) as problem:
        raise WrongUse(f"--from {source}: not the text that was expected: {problem}") from problem
    except TableMissing:
        raise WrongUse(f"--from {source}: HBase has no such table") from None


def _read(opened: OpenStream, source: str, group: str, connection: str | None) -> importing.Offsets:
    kind, _, place = source.partition(":")
    topics = topics_now(opened)
    match kind:
        case "csv":
            return importing.from_csv(Path(place), group)
        case "checkpoint":
            return importing.from_checkpoint(Path(place), topics)
        case "kafka-group":
            return opened.log.group_offsets(group)
        case "hbase":
            gateway = Gateway(hbase_endpoint(opened.connections(connection or "hbase_default")))
            return importing.from_hbase_rows(gateway, place or "stream_kafka_offsets", group, topics)
        case "consumers" | "storm":
            zookeeper = ZooKeeper(zookeeper_endpoint(opened.connections(connection or "zookeeper_default")))
            if kind == "consumers":
                return importing.from_consumer_nodes(zookeeper, place or "/consumers", group, topics)
            return importing.from_storm_nodes(zookeeper, place, group, topics)
    raise WrongUse(f"--from {source}: expected csv:, checkpoint:, kafka-group, hbase:, consumers: or storm:")


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
                exporting.to_hbase_rows(gateway, table, group, opened.ledger.clock(), offsets)
            except TableMissing:
                raise WrongUse(f"--to {kind}:{place}: HBase has no such table") from None
        case _:
            zookeeper = ZooKeeper(zookeeper_endpoint(opened.connections(connection or "zookeeper_default")))
            root = place or "/consumers"
            layouts = OffsetLayouts(group, **{kind: root})
            exporting.to_nodes(zookeeper, layouts, offsets, opened.log.leaders(offsets) if kind == "storm" else {})
