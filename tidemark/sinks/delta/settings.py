"""The settings of a sink in a Delta table."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.parquet.settings import Compression, FolderSettings


class DeltaSink(FolderSettings):
    """A Delta table in a folder below the connection's path, partitioned by the generation that wrote a row."""

    type: Literal["delta"]
    name: Name = Field(default="delta", description="The name of the sink. Two sinks of one type need names.")
    compression: Compression = Field(default="snappy", description="How the files are compressed.")
