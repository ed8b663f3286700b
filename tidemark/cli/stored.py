"""The offsets that `tidemark ledger import --from` names."""

from __future__ import annotations

import csv
from pathlib import Path

from tidemark import importing
from tidemark.connections import hbase_endpoint, zookeeper_endpoint
from tidemark.errors import WrongUse
from tidemark.hbase.gateway import Gateway, TableMissing
from tidemark.importing import Offsets
from tidemark.planning.discovery import topics_now
from tidemark.streams.opened import OpenStream
from tidemark.zookeeper import ZooKeeper


def stored_offsets(opened: OpenStream, source: str, group: str, connection: str | None) -> Offsets:
    """Read the offsets of `KIND:PLACE`. Raises WrongUse for what does not exist or cannot be read."""
    kind, _, place = source.partition(":")
    topics = topics_now(opened)
    if kind != "checkpoint" and not group:
        raise WrongUse(f"--from {source} needs --group: whose offsets they are")
    try:
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
    except OSError as problem:
        raise WrongUse(f"--from {source}: {problem.strerror}") from problem
    except (UnicodeDecodeError, csv.Error) as problem:
        raise WrongUse(f"--from {source}: not the text that was expected: {problem}") from problem
    except TableMissing:
        raise WrongUse(f"--from {source}: HBase has no such table") from None
    raise WrongUse(f"--from {source}: expected csv:, checkpoint:, kafka-group, hbase:, consumers: or storm:")
