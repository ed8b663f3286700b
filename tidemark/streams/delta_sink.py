"""What a stream file may say of a sink in a Delta table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tidemark.streams.parquet_sink import Compression
from tidemark.streams.parts import ConnectionName, Name, Part


class DeltaSink(Part):
    """A Delta table in a folder below the connection's path, partitioned by the generation that wrote a row."""

    type: Literal["delta"]
    name: Name = "delta"
    files: ConnectionName = "lake_default"
    folder: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*$")]
    compression: Compression = "snappy"
