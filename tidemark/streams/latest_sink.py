"""What a stream file may say of a sink with the newest value of each key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from tidemark.streams.parts import (
    MOST_CELL_BYTES,
    CellBytes,
    ConnectionName,
    FieldName,
    Items,
    Name,
    Part,
    Regions,
    Table,
)


class HBaseLatestSink(Part):
    """A row for each key, of which the newest message's is the one on top. `regions` counts when the table is made."""

    type: Literal["hbase_latest"]
    name: Name = "hbase_latest"
    hbase: ConnectionName = "hbase_default"
    table: Table
    key: Annotated[Items[FieldName], Field(min_length=1, max_length=16)]
    regions: Regions = 1
    max_cell_bytes: CellBytes = MOST_CELL_BYTES

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return [given] if isinstance(given, str) else given

    @field_validator("key")
    @classmethod
    def _each_once(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(key)) < len(key):
            raise ValueError("a field is named twice")
        return key
