"""The settings of an Iceberg table with aggregates by key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.iceberg.latest.settings import IcebergTableSettings

TYPE = "iceberg_aggregates"


class IcebergAggregatesSink(AggregatesSettings, IcebergTableSettings):
    """An Iceberg table in a folder below the connection's path, named in a catalog, with aggregates of all rows of each key."""

    type: Literal["iceberg_aggregates"]
    name: Name = Field(
        default="iceberg_aggregates", description="The name of the sink. Two sinks of one type need names."
    )
