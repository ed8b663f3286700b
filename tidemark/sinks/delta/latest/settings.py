"""The settings of a Delta table with the newest row of each key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.latest.settings import LatestSettings


class DeltaLatestSink(LatestSettings):
    """A Delta table in a folder below the connection's path, partitioned by buckets of its key."""

    type: Literal["delta_latest"]
    name: Name = Field(default="delta_latest", description="The name of the sink. Two sinks of one type need names.")
