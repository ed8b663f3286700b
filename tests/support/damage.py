"""Damage to results, for an audit to find."""

from __future__ import annotations

from tests.support.live_streams import LiveStream
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.hbase.rows import PartitionKeys
from tidemark.sinks.hbase.table import stream_table


def place(report: AuditReport, name: str) -> PlaceReport:
    return next(one for one in report.places if one.name == name)


def delete_rows(live: LiveStream, table: str, topic: int, partition: int, *offsets: int) -> None:
    gateway = stream_table(live.opened, "hbase_default", table)._gateway
    keys = PartitionKeys(TopicPartition(live.topics[topic], partition))
    for offset in offsets:
        key = keys.key(offset, 0)
        gateway.once(lambda client, key=key: client.deleteAllRow(table.encode(), key, {}))


def rows_at(live: LiveStream, topic: int, partition: int, count: int) -> list[int]:
    """Offsets of a partition that have a row with fields."""
    rows = live.expected().rows
    return [place[2] for place in sorted(rows) if place[:2] == (live.topics[topic], partition) and rows[place]][:count]
