"""The settings of a table in HBase with the newest row of each key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.contract import Owned
from tidemark.sinks.hbase.settings import HBaseTableSettings
from tidemark.sinks.latest.settings import LatestSettings


class HBaseLatestSink(LatestSettings, HBaseTableSettings):
    """A row for each key in HBase. What the windows have written is in a folder below the path of the connection `files`."""

    type: Literal["hbase_latest"]
    name: Name = Field(default="hbase_latest", description="The name of the sink. Two sinks of one type need names.")

    @property
    def other_connections(self) -> frozenset[str]:
        return frozenset({self.hbase})

    def owned(self) -> Iterable[Owned]:
        return [*LatestSettings.owned(self), *HBaseTableSettings.owned(self)]
