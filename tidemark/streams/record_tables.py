"""Tables of records that requests may name instead of a file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidemark.settings.parts import ConnectionName, Part, Table, form

_Column = Annotated[str, form(r"^[A-Za-z0-9_.-]{1,100}:[!-~]{1,200}$", "a column, as family:qualifier")]


class RecordTable(Part):
    """An HBase table of records. No other table can be named in a request."""

    hbase: ConnectionName = Field(default="hbase_default", description="The connection.")
    table: Annotated[Table, Field(description="The table, with its namespace if it has one: `reports:late`.")]
    topic: _Column = Field(default="d:topic", description="The column of the topic, with its family.")
    partition: _Column = Field(default="d:partition", description="The column of the partition.")
    offset: _Column = Field(default="d:offset", description="The column of the offset.")

    @property
    def columns(self) -> tuple[str, str, str]:
        return self.topic, self.partition, self.offset
