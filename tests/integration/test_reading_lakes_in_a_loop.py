"""Lakes and dead letters as other programs see them at every moment: each answer is a committed state, and in their order.

Spark, DuckDB, pyiceberg, deltalake and a database's own client read again and again while a real stream is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from services import control
from services.site import Site
from tests.support.command_line import asked
from tests.support.cuts import crash, cut_after
from tests.support.foreign_readers import catalog_in_a_file
from tests.support.live_streams import Make
from tests.support.oracle import ORDERS, Fields
from tests.support.reading_in_a_loop import LoopInAThread, states_seen
from tidemark.clients.environment import from_environment
from tidemark.commit.protocol import Step
from tidemark.ledger.records import LaneKind
from tidemark.sinks.iceberg.catalog import opened
from tidemark.sinks.iceberg.compacting import where_of
from tidemark.sinks.iceberg.latest.compacting import where_of as where_of_a_view

# Rows in their order. None: there is no table yet.
Answer = list[Any] | None
PLACE = ("_topic", "_partition", "_offset")
NEGATIVE = {"invalid_when": "amount < 0", "reason": "negative amount"}
LARGE = {"invalid_when": "amount > 5", "reason": "large amount"}


class Readers(LoopInAThread):
    """Asks each program in turn for the rows of its table, and keeps the answers."""

    def __init__(self, programs: dict[tuple[str, str], Callable[[], Answer]]) -> None:
        super().__init__()
        self.answers: list[tuple[str, str, Answer]] = []
        self._programs = programs

    def read(self) -> None:
        for (table, program), ask in self._programs.items():
            found = ask()
            self.answers.append((table, program, found if found is None else sorted(found, key=repr)))

    def of(self, table: str) -> list[tuple[str, Answer]]:
        return [(program, answer) for found, program, answer in self.answers if found == table]


def delta_files(base: str) -> list[str] | None:
    return DeltaTable(base).file_uris() if DeltaTable.is_deltatable(base) else None


def by_deltalake(base: str, columns: Sequence[str]) -> Answer:
    if not DeltaTable.is_deltatable(base):
        return None
    rows = DeltaTable(base).to_pyarrow_table(columns=[*columns]).to_pylist()
    return [[row[name] for name in columns] for row in rows]


def by_duckdb(files_of: Callable[[], Sequence[str] | None], columns: Sequence[str]) -> Answer:
    if not (files := files_of()):
        return None if files is None else []
    with duckdb.connect() as connection:
        named = ", ".join(columns)
        query = f"SELECT {named} FROM read_parquet(?, hive_partitioning = false)"
        return [[*row] for row in connection.sql(query, params=[[*files]]).fetchall()]


def by_spark(spark: SparkSession, files_of: Callable[[], Sequence[str] | None], columns: Sequence[str]) -> Answer:
    if not (files := files_of()):
        return None if files is None else []
    return [[*row] for row in spark.read.parquet(*files).select(*columns).collect()]


def totals_of(rows: Iterable[Fields]) -> Answer:
    totals: dict[Any, list[Any]] = {}
    for row in rows:
        total = totals.setdefault(row.get("customer"), [0, None])
        total[0] += 1
        if (amount := row.get("amount")) is not None:
            total[1] = (total[1] or 0) + float(amount)
    return sorted(([customer, *total] for customer, total in totals.items()), key=repr)


def iceberg_files(catalog: Path, where: Any) -> list[str] | None:
    table = opened(where) if catalog.exists() else None
    return None if table is None else [one.file.file_path for one in table.scan().plan_files()]


class Stream:
    """Orders that go into each type of lake table, with dead letters in one of two stores."""

    def __init__(self, make: Make, spark: SparkSession, store: str, catalog: Path) -> None:
        self.live = live = make(ORDERS, ledger={"type": "sql"})
        by_key = {"key": "customer", "buckets": 2}
        totals = {**by_key, "values": {"orders": "count", "total": {"sum": "amount"}}}
        self.sinks: list[dict[str, Any]] = [
            {"type": kind, "folder": f"{live.name}_{kind}", **more}
            for kind, more in {
                "delta": {},
                "iceberg": {"table": f"lake.{live.name}"},
                "delta_latest": by_key,
                "iceberg_latest": {**by_key, "table": f"lake.{live.name}_newest"},
                "delta_aggregates": totals,
                "iceberg_aggregates": {**totals, "table": f"lake.{live.name}_totals"},
            }.items()
        ]
        self.letters = {"type": store} if store == "sql" else {"type": store, "folder": f"{live.name}_dead"}
        self.code()
        lake = f"{live.site.folder('lake')}/{live.name}"
        rows, newest, sums = (*PLACE, "amount"), ("customer", *PLACE, "amount"), ("customer", "orders", "total")
        self.programs: dict[tuple[str, str], Callable[[], Answer]] = {}
        for kind, columns in {"delta": rows, "delta_latest": newest, "delta_aggregates": sums}.items():
            table, files = f"{lake}_{kind}", partial(delta_files, f"{lake}_{kind}")
            self.programs[kind, "deltalake"] = partial(by_deltalake, table, columns)
            self.programs[kind, "DuckDB"] = partial(by_duckdb, files, columns)
            if kind != "delta_aggregates":
                self.programs[kind, "Spark"] = partial(by_spark, spark, files, columns)
        for kind, columns in {"iceberg": rows, "iceberg_latest": newest, "iceberg_aggregates": sums}.items():
            files = partial(iceberg_files, catalog, self._where(kind))
            self.programs[kind, "DuckDB"] = partial(by_duckdb, files, columns)
            if kind == "iceberg":
                self.programs[kind, "Spark"] = partial(by_spark, spark, files, columns)
        reasons = (*PLACE, "reason")
        if store == "delta":
            self.programs["dead letters", "deltalake"] = partial(by_deltalake, f"{lake}_dead", reasons)
            files = partial(delta_files, f"{lake}_dead")
            self.programs["dead letters", "DuckDB"] = partial(by_duckdb, files, reasons)
        else:
            self.programs["dead letters", "psycopg"] = self._by_psycopg
        self.states: dict[str, list[Answer]] = {table: [None, []] for table, _ in self.programs}

    def _where(self, kind: str) -> Any:
        (sink,) = (one for one in self.live.opened.stream.sinks if one.type == kind)
        return (where_of if kind == "iceberg" else where_of_a_view)(self.live.opened, sink)  # type: ignore[arg-type]

    def code(self, *checks: dict[str, str]) -> None:
        """The stream file with these checks, as after a bug fix."""
        self.live.rewrite(sinks=self.sinks, dead_letters=self.letters, checks=[NEGATIVE, *checks])

    def note(self, readers: Readers) -> None:
        """What is there, now that all is published, is the state that the last commit has made."""
        seen = set()
        for (table, program), ask in self.programs.items():
            found = ask()
            answer = found and sorted(found, key=repr)
            if table not in seen and answer != self.states[table][-1]:
                self.states[table].append(answer)
            assert answer == self.states[table][-1], program
            seen.add(table)
        readers.wait()

    def _by_psycopg(self) -> Answer:
        said = from_environment("sql_default")
        query = "SELECT topic, partition, message_offset, reason FROM tidemark_dead_letters_text WHERE stream = %s"
        try:
            with psycopg.connect(
                host=said.host, port=said.port, user=said.login, password=said.password, dbname=said.schema
            ) as connection:
                return [[*row] for row in connection.execute(query, [self.live.name]).fetchall()]
        except psycopg.errors.UndefinedTable:
            return None


@pytest.mark.covers("I1", "I2", "I3")
@pytest.mark.parametrize("store", ["delta", pytest.param("sql", marks=pytest.mark.full)])
def test_each_answer_is_a_committed_state(
    make: Make, site: Site, spark: SparkSession, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.up(site, ["postgresql"])
    catalog_in_a_file(tmp_path, monkeypatch)
    stream = Stream(make, spark, store, tmp_path / "catalog.db")
    live = stream.live
    with Readers(stream.programs) as readers:
        live.produce(60)
        run = live.new_run()
        # A process that dies with all rows written, and one that dies after its commit: the next run finishes it.
        crash(live, run, on_step=cut_after(Step.VERIFIED))
        readers.wait()
        live.ingest(run)
        stream.note(readers)
        live.produce(60)
        run = live.new_run()
        crash(live, run, on_step=cut_after(Step.COMMITTED))
        readers.wait()
        live.ingest(run)
        stream.note(readers)
        # A replay makes dead letters of rows, and the next one rows of dead letters.
        replayed = live.ranges(0, 0, (0, 9)) | live.ranges(1, 1, (3, 9))
        for checks in ([LARGE], []):
            stream.code(*checks)
            live.select(LaneKind.REPLAY, replayed)
            stream.note(readers)
        asked("compact", "--yes", str(live.file), "--sink", "delta_latest")
        stream.note(readers)
        erased = next(iter(live.ranges(0, 0, (2, 3))))
        asked("erase", "--yes", str(live.file), "--records", f"{erased.partition}@2", "--reason", "a test")
        stream.note(readers)
        live.produce(40)
        live.ingest()
        stream.note(readers)
    expected = live.expected()
    at = (erased.partition.topic, erased.partition.partition, 2)
    amounts = {
        place: float(fields["amount"]) if "amount" in fields else None for place, fields in expected.rows.items()
    }
    rows = [[*place[:3], amount] for place, amount in amounts.items() if place[:3] != at]
    assert stream.states["delta"][-1] == stream.states["iceberg"][-1] == sorted(rows, key=repr)
    dead = [[*place, reason] for place, reason in expected.dead.items() if place != at]
    assert stream.states["dead letters"][-1] == sorted(dead, key=repr)
    assert stream.states["delta_latest"][-1] == stream.states["iceberg_latest"][-1]
    counted = [fields for place, fields in expected.rows.items() if place[:3] != at]
    assert stream.states["delta_aggregates"][-1] == stream.states["iceberg_aggregates"][-1] == totals_of(counted)
    for table, states in stream.states.items():
        seen = states_seen(readers.of(table), states)
        assert len(states) - 1 in seen, table
        assert len(seen) >= 4, (table, json.dumps([*seen]))
