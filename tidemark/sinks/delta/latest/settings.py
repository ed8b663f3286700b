"""The settings of a Delta table with the newest row of each key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.contract import SettingsContext
from tidemark.sinks.delta.settings import no_column
from tidemark.sinks.latest.settings import LatestSettings, VersionedTable


class DeltaLatestSink(LatestSettings, VersionedTable):
    """A Delta table in a folder below the connection's path, partitioned by buckets of its key."""

    type: Literal["delta_latest"]
    name: Name = Field(default="delta_latest", description="The name of the sink. Two sinks of one type need names.")

    def problem_with(self, others: SettingsContext) -> str | None:
        return no_column(self.name, others) or super().problem_with(others)
