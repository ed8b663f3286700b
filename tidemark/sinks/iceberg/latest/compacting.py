"""Compaction of the sink `iceberg_latest`: that of its history, and the expiry of the table's older snapshots."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.sinks.contract import CompactionRequest, Opened, Replaceable, Replacement
from tidemark.sinks.iceberg import catalog, compacting
from tidemark.sinks.iceberg.catalog import CatalogTable
from tidemark.sinks.iceberg.latest.settings import IcebergLatestSink
from tidemark.sinks.iceberg.latest.sink import PlainIcebergLatest, located
from tidemark.sinks.latest.compacting import HistoryCompaction


class IcebergLatestCompaction(HistoryCompaction):
    """The compaction of the sink `iceberg_latest`, without Spark."""

    def planned(self, opened: Opened, settings: IcebergLatestSink, asked: CompactionRequest) -> Sequence[Replaceable]:
        history = super().planned(opened, settings, asked)
        where, hours = where_of(opened, settings), settings.keep_hours
        expiring = compacting.steadily(
            where, lambda seen: compacting.expiry_planned(catalog.opened(seen.where), hours, opened.book)
        )
        return [*history, *expiring]

    def made(self, opened: Opened, settings: IcebergLatestSink, run: str) -> Sequence[Replacement]:
        history = super().made(opened, settings, run)
        return [*history, *compacting.expired_by(catalog.opened(where_of(opened, settings)), run)]


def where_of(opened: Opened, settings: IcebergLatestSink) -> CatalogTable:
    place = PlainIcebergLatest().table_place(settings, settings.base(opened.connections))
    return located(opened.connections, place)


def expire(opened: Opened, settings: IcebergLatestSink, run: str) -> None:
    """Let older snapshots expire, and remove the files that nobody names. Repeatable."""
    compacting.expire(opened.book, where_of(opened, settings), settings.keep_hours, run)
