"""Compaction of a sink with an Iceberg table of a row for each key: of its history, and the expiry of older snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from tidemark.sinks.contract import CompactionRequest, Replaceable, Replacement, SinkContext
from tidemark.sinks.iceberg import catalog, compacting
from tidemark.sinks.iceberg.catalog import CatalogTable
from tidemark.sinks.iceberg.holding import HoldingOf
from tidemark.sinks.iceberg.latest.settings import IcebergTableSettings
from tidemark.sinks.iceberg.latest.sink import IcebergLatestAdmin, located, table_place
from tidemark.sinks.latest.compacting import HistoryCompaction
from tidemark.sinks.latest.rows import history_of
from tidemark.sinks.latest.sink import LakeTableAdmin


class IcebergTableCompaction(HistoryCompaction):
    """The compaction of such a sink, without Spark."""

    admin: ClassVar[LakeTableAdmin]

    def planned(
        self, opened: SinkContext, settings: IcebergTableSettings, asked: CompactionRequest
    ) -> Sequence[Replaceable]:
        history = super().planned(opened, settings, asked)
        where, hours, holding = where_of(opened, settings), settings.keep_hours, _holding(opened, settings, self.admin)
        expiring = compacting.steadily(
            where, lambda seen: compacting.expiry_planned(catalog.opened(seen.where), hours, opened.ledger, holding)
        )
        return [*history, *expiring]

    def made(self, opened: SinkContext, settings: IcebergTableSettings, run: str) -> Sequence[Replacement]:
        history = super().made(opened, settings, run)
        return [*history, *compacting.expired_by(catalog.opened(where_of(opened, settings)), run)]


class IcebergLatestCompaction(IcebergTableCompaction):
    """The compaction of the sink `iceberg_latest`."""

    admin = IcebergLatestAdmin()


def where_of(opened: SinkContext, settings: IcebergTableSettings) -> CatalogTable:
    return located(opened.connections, table_place(settings, settings.base(opened.connections)))


def expire(opened: SinkContext, settings: IcebergTableSettings, run: str, admin: LakeTableAdmin) -> None:
    """Let older snapshots expire, and remove the files that nobody names. Repeatable."""
    holding = _holding(opened, settings, admin)
    compacting.expire(opened.ledger, where_of(opened, settings), settings.keep_hours, run, holding)


def _holding(opened: SinkContext, settings: IcebergTableSettings, admin: LakeTableAdmin) -> HoldingOf:
    return partial(admin.holding, opened, settings.name, history_of(settings.base(opened.connections)))
