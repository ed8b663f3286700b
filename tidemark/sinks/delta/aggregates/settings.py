"""The settings of a Delta table with aggregates by key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.latest.settings import VersionedTable

TYPE = "delta_aggregates"


class DeltaAggregatesSink(AggregatesSettings, VersionedTable):
    """A Delta table in a folder below the connection's path, with aggregates of all rows of each key."""

    type: Literal["delta_aggregates"]
    name: Name = Field(
        default="delta_aggregates", description="The name of the sink. Two sinks of one type need names."
    )
