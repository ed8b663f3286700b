"""The settings of a table in HBase with the newest row of each key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.hbase.keyed.settings import KeyedTableSettings
from tidemark.sinks.latest.settings import LatestSettings

TYPE = "hbase_latest"


class HBaseLatestSink(LatestSettings, KeyedTableSettings):
    """A row for each key in HBase. What the windows have written is in a folder below the path of the connection `files`."""

    type: Literal["hbase_latest"]
    name: Name = Field(default="hbase_latest", description="The name of the sink. Two sinks of one type need names.")
