"""A stream whose ledger is in memory, with a real Delta table: its work writes the files that Spark would write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import duckdb
import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from tests.support.iceberg_in_memory import COLUMNS, LETTERS, IcebergInMemory
from tests.support.streams_in_memory import TEXT
from tidemark.clients.lake import beside
from tidemark.ledger.records import SinkReceipt
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.attempts import attempt_folder
from tidemark.sinks.delta.changing import FileChange
from tidemark.sinks.reading import delta_tables

SINK = "  - type: delta\n    folder: orders\n"


@dataclass
class DeltaInMemory(IcebergInMemory):
    """Each message is a row whose `id` is its offset."""

    text: str = TEXT.replace("  - type: hbase\n    table: orders\n", SINK).replace(*LETTERS)

    columns: ClassVar[Sequence[str]] = [name for name in COLUMNS.names if name != "_generation"]

    @property
    def base(self) -> str:
        (sink,) = self.opened.stream.sinks
        return str(sink.base(self.opened.connections))  # type: ignore[attr-defined]

    def prepare(self) -> None:
        columns = delta_table.columns(self.opened.fields)
        register = self.opened.ledger.register()
        assert register is not None
        delta_table.prepare(self.base, columns, self.opened.ledger.stream, register[1].ledger)

    def receipt(self, lane: str, seq: int, generation: int) -> SinkReceipt:
        folder = attempt_folder(self.base, lane, seq, generation)
        return SinkReceipt(name="delta", type="delta", place={"base": self.base, "folder": folder})

    def foreign(self) -> DeltaTable:
        """The table as another program has it."""
        return DeltaTable(self.base)

    def seen(self) -> list[tuple[int, int]]:
        """Partition and offset of each row that others see: deltalake, polars, and DuckDB over the files of the version."""
        table = self.foreign()
        rows = table.to_pyarrow_table(columns=["_partition", "_offset"]).to_pylist()
        found = sorted((row["_partition"], row["_offset"]) for row in rows)
        of_polars = pl.scan_delta(self.base).select("_partition", "_offset").collect().rows()
        assert sorted(of_polars) == found
        files = table.file_uris()
        with duckdb.connect() as connection:
            query = "SELECT _partition, _offset FROM read_parquet(?)"
            assert sorted(connection.execute(query, [files]).fetchall() if files else []) == found
        return found

    def counting(self) -> list[tuple[int, int]]:
        tables = delta_tables(self.opened.ledger, "delta")
        return sorted((row["_partition"], row["_offset"]) for table in tables for row in table.to_pylist())

    def left(self) -> list[str]:
        """The files that attempts have left beside the table."""
        there = Path(beside(self.base).removeprefix("file://"))
        return sorted(str(one.relative_to(there)) for one in there.rglob("*.parquet"))


def add(base: str, transaction: str, generation: int, window: str) -> None:
    """Add the files in a generation's folder to a table, as attempts of earlier versions of Tidemark did before the commit."""
    folder = Path(delta_table.partition_folder(base, generation).removeprefix("file://"))

    def append(table: DeltaTable) -> None:
        if (table.transaction_version(transaction) or 0) < generation:
            change = FileChange(base)
            for file in sorted(folder.glob("*.parquet")):
                change.add(f"{folder.name}/{file.name}", generation)
            actions: list[AddAction | RemoveAction] = [*change.added]
            named = CommitProperties(
                custom_metadata={"tidemark.window": window}, app_transactions=[Transaction(transaction, generation)]
            )
            table.create_write_transaction(actions, "append", table.schema(), ["_generation"], commit_properties=named)

    delta_table.change(base, append)
