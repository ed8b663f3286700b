"""A stream whose ledger is in memory, with dead letters in a database: its work writes the rows that Spark's tasks would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.iceberg_in_memory import IcebergInMemory, Killed
from tests.support.letters_in_databases import write
from tests.support.protocol_world import hold
from tests.support.streams_in_memory import TEXT
from tidemark.clients.connections import Connection, Connections
from tidemark.clients.sql import make_file
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Listener, Run, Step
from tidemark.ledger.records import Attempt, Receipt, Record, SinkReceipt, Window
from tidemark.ledger.register import note_places
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.sinks.dead_letters.sql.letters import LettersInSQL, letters_in

TABLE = "letters"


@dataclass
class LettersInSQLite(IcebergInMemory):
    """Each message is a dead letter, whose reason names the run, but for those that are `good`. Rows go nowhere.

    `connection`: of another database than a file of SQLite.
    """

    text: str = TEXT.replace("  - type: hbase\n    table: orders\n", "  - type: parquet\n    folder: orders\n")
    good: Callable[[int], bool] = lambda _: False
    connection: str = "sql_default"
    table_name: str = TABLE
    connections: Connections | None = None

    def __post_init__(self) -> None:
        where = f"dead_letters: {{type: sql, sql: {self.connection}, table: {self.table_name}}}\n"
        self.text = self.text.replace("dead_letters:\n  type: hbase\n  table: orders_dead\n", where)
        super().__post_init__()

    def _connection(self, name: str) -> Connection:
        if name == self.connection:
            file = Connection(name, host=str(self.folder / "letters.db"), kind="sqlite")
            return file if self.connections is None else self.connections(name)
        return super()._connection(name)

    @property
    def letters(self) -> LettersInSQL:
        return letters_in(self._connection, self.connection, self.table_name, self.name, self.opened.ledger)

    @property
    def place(self) -> SinkReceipt:
        place = {"connection": self.connection, "table": self.table_name}
        return SinkReceipt(name="dead_letters", type="sql_dead_letters", place=place)

    def process(self, lane: str, run: str = "run 1", *, until: Step | None = None) -> Record:
        ledger = self.opened.ledger
        found, register = ledger.head(lane), ledger.register()
        assert found is not None
        assert register is not None
        self.letters.prepare(self.name, register[1].ledger)
        note_places(ledger, [self.place])

        def heard(step: Step) -> None:
            if step == until:
                raise Killed(step)

        self.now += 1
        this, seq = Run(run, "v1", "d"), found.head.seq + 1
        return protocol.process(ledger, self.opened.sweeper, _Work(self, run), hold, lane, seq, this, on_step=heard)

    def asked(self, statement: str) -> list[Any]:
        """As another program asks the database."""
        make_file(self.letters.where)

        def ask(connection: Any) -> list[Any]:
            found = connection.exec_driver_sql(statement)
            return [tuple(row) for row in found] if found.returns_rows else []

        return self.letters.asked(ask)

    def seen(self) -> list[tuple[int, int]]:
        """Partition and offset of each row of the table."""
        return [(one, offset) for one, offset, _ in self.reasons()]

    def reasons(self) -> list[tuple[int, int, str]]:
        rows = self.asked(f"SELECT t.partition, t.message_offset, t.reason FROM {self.table_name}_text t")
        assert len(self.asked(f"SELECT 1 FROM {self.table_name}")) == len(rows)
        return sorted(rows)

    def left(self) -> int:
        """How many rows there are of attempts."""
        return len(self.asked(f"SELECT 1 FROM {self.table_name}_attempts"))

    def counting(self) -> list[tuple[int, int]]:
        authority = self.opened.ledger.view().of(None).authority
        rows = (one for range_ in authority.covered().hull() for one in self.letters.rows(authority, range_))
        return sorted((place.partition.partition, place.offset) for place, row in rows if row is not None)


class _Work:
    def __init__(self, world: LettersInSQLite, run: str) -> None:
        self._world = world
        self._run = run

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._dead = {
            at: [offset for part in covers.of(at) for offset in range(*part) if not self._world.good(offset)]
            for at in covers.partitions
        }

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        for at, offsets in self._dead.items():
            if offsets:
                write(self._world.letters, attempt.generation, *offsets, at=at, reason=self._run.encode())
        on_step(Step.DEAD_LETTERS_STORED)

    def verify(self) -> Receipt:
        tallies = tuple(
            PartitionTally(
                topic=at.topic,
                incarnation=at.incarnation,
                partition=at.partition,
                failed=Count(len(offsets), "0" * 16),
            )
            for at, offsets in self._dead.items()
        )
        return Receipt(
            tallies=tallies, sinks=(), dead_letters=self._world.place, started_at=1, finished_at=2, fields="0" * 64
        )
