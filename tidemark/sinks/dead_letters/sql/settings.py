"""The settings of dead letters in a database."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tidemark.clients.connections import Connections
from tidemark.ledger.stores.settings import SQLTable
from tidemark.settings.parts import ConnectionName
from tidemark.sinks.dead_letters.contract import DeadLetterSettings

# Far more than Kafka takes unless it was told to, and less than any database does.
_MAX_BYTES = 256 << 20


class SQLDeadLetters(DeadLetterSettings):
    """The table of the dead letters in a database."""

    server: ClassVar[str] = "the database"

    type: Literal["sql"]
    sql: ConnectionName = Field(
        default="sql_default", description="The connection, of Airflow's type `postgres`, `mysql` or `sqlite`."
    )
    table: SQLTable = Field(default="tidemark_dead_letters", description="The table. Streams may share it.")

    @property
    def connection(self) -> str:
        return self.sql

    @property
    def database(self) -> str:
        return self.sql

    @property
    def database_tables(self) -> frozenset[str]:
        return frozenset({self.table, f"{self.table}_owners"})

    @property
    def most_bytes(self) -> int:
        return _MAX_BYTES

    def place(self, connections: Connections) -> dict[str, str]:
        return {"connection": self.sql, "table": self.table}
