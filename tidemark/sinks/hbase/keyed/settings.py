"""The settings of a table in HBase with a row for each key."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.sinks.contract import OwnedPlace
from tidemark.sinks.hbase.settings import HBaseTableSettings
from tidemark.sinks.latest.settings import HistorySettings


class KeyedTableSettings(HistorySettings, HBaseTableSettings):
    """What the windows have written is in a folder below the path of the connection `files`."""

    @property
    def other_connections(self) -> frozenset[str]:
        return frozenset({self.hbase})

    def owned(self) -> Iterable[OwnedPlace]:
        return [*HistorySettings.owned(self), *HBaseTableSettings.owned(self)]
