"""The settings of a sink with a row for each result row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidemark.settings.parts import MAX_CELL_BYTES, CellBytes, ConnectionName, FieldName, Name, Regions, Table
from tidemark.sinks.contract import OwnedPlace, SettingsContext, SinkSettings, owned_table


class HBaseTableSettings(SinkSettings):
    """The settings that all sinks in HBase share: a connection and a table. `regions` counts when the table is made."""

    hbase: ConnectionName = Field(default="hbase_default", description="The connection.")
    table: Annotated[Table, Field(description="The table, with its namespace if it has one: `reports:orders`.")]
    regions: Regions = Field(default=1, description="The number of regions when the table is created.")
    max_cell_bytes: Annotated[
        CellBytes,
        Field(description="The [largest cell](#rows-that-are-too-large) that HBase takes."),
    ] = MAX_CELL_BYTES

    @property
    def connection(self) -> str:
        return self.hbase

    def owned(self) -> Iterable[OwnedPlace]:
        return [owned_table(self.table)]


class HBaseSink(HBaseTableSettings):
    """A row for each result row, by coordinate. What it says besides its name counts when the table is made."""

    type: Literal["hbase"]
    name: Name = Field(default="hbase", description="The name of the sink. Two sinks of one type need names.")
    columns: dict[FieldName, FieldName] = Field(
        default_factory=dict,
        description="`{customer: c}`: fields and the columns that hold them, if their names differ.",
    )
    packed: bool = Field(
        default=False,
        description="All fields of a row in one cell instead of one cell each, which is smaller; other programs must [decode "
        "it](layouts.md#rows-in-hbase). Cannot be combined with `columns`.",
    )

    @model_validator(mode="after")
    def _cells(self) -> HBaseSink:
        if self.packed and self.columns:
            raise ValueError("packed and columns exclude each other: in a packed cell the fields have their own names")
        return self

    def problem_with(self, others: SettingsContext) -> str | None:
        if unknown := [name for name in self.columns if name not in others.fields]:
            return f"sink {self.name}: columns names {unknown[0]}, which the stream does not have"
        named = [self.columns.get(name, name) for name in others.fields]
        if twice := [name for name in named if named.count(name) > 1]:
            return f"sink {self.name}: two fields would be in the column {twice[0]}"
        return None
