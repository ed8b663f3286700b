"""The settings of a table in HBase with aggregates by key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.hbase.keyed.settings import KeyedTableSettings

TYPE = "hbase_aggregates"


class HBaseAggregatesSink(AggregatesSettings, KeyedTableSettings):
    """A row for each key in HBase, with aggregates of all rows of the key.

    A table keeps the key and the values that it was made with.
    """

    type: Literal["hbase_aggregates"]
    name: Name = Field(
        default="hbase_aggregates", description="The name of the sink. Two sinks of one type need names."
    )
