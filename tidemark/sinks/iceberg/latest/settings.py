"""The settings of an Iceberg table with the newest row of each key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.iceberg.settings import InCatalog
from tidemark.sinks.latest.settings import LatestSettings, VersionedTable


class IcebergTableSettings(InCatalog, VersionedTable):
    """An Iceberg table with a row for each key, whatever its rows are."""


class IcebergLatestSink(IcebergTableSettings, LatestSettings):
    """An Iceberg table in a folder below the connection's path, named in a catalog, partitioned by buckets of its key."""

    type: Literal["iceberg_latest"]
    name: Name = Field(default="iceberg_latest", description="The name of the sink. Two sinks of one type need names.")
