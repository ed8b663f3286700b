"""The settings of dead letters in HBase."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tidemark.clients.connections import Connections
from tidemark.settings.parts import MAX_CELL_BYTES, CellBytes, ConnectionName, Table
from tidemark.sinks.contract import OwnedPlace, owned_table
from tidemark.sinks.dead_letters.contract import DeadLetterSettings


class HBaseDeadLetters(DeadLetterSettings):
    """The HBase table of the dead letters."""

    server: ClassVar[str] = "HBase"

    type: Literal["hbase"]
    hbase: ConnectionName = Field(default="hbase_default", description="The connection of the table.")
    table: Annotated[Table, Field(description="The table.")]
    max_cell_bytes: Annotated[
        CellBytes,
        Field(
            description="The largest cell that HBase takes, as for the sink [`hbase`](sinks.md#rows-that-are-too-large). A "
            "dead letter leaves out a key, a value or headers that do not fit, and says so in `detail`."
        ),
    ] = MAX_CELL_BYTES

    @classmethod
    def receipts(cls) -> str:
        # A place of HBase is cleared as the sink's is.
        return "hbase"

    @property
    def connection(self) -> str:
        return self.hbase

    @property
    def most_bytes(self) -> int:
        """The rest of the cell limit is for the cell's other data."""
        return max(self.max_cell_bytes - 1_024, self.max_cell_bytes // 2)

    def owned(self) -> Iterable[OwnedPlace]:
        return [owned_table(self.table)]

    def place(self, connections: Connections) -> dict[str, str]:
        return {"connection": self.hbase, "table": self.table}
