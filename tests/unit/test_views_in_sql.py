"""The views of a ledger in SQLite. On real servers: tests/integration/test_sql_ledger.py."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import views_in_sql
from tests.support.protocol_world import World
from tidemark.clients.connections import Connection
from tidemark.errors import WrongUse
from tidemark.ledger.stores import sql
from tidemark.ledger.stores.settings import SQLLedger
from tidemark.ledger.stores.sql import open_store
from tidemark.sinks.dead_letters.sql.letters import letters_in


@pytest.mark.covers("O12")
def test_windows_are_read_by_plain_sql(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"

    def connections(name: str) -> Connection:
        return Connection(name, str(file), kind="sqlite")

    store = open_store(SQLLedger(type="sql"), "orders", connections, waits=None)
    store.prepare()
    letters_in(connections, "sql_default", "tidemark_dead_letters", "orders").prepare("orders", "ledger 1")
    with closing(sqlite3.connect(file)) as another:

        def ask(statement: str) -> list[tuple[Any, ...]]:
            return another.execute(statement).fetchall()

        views_in_sql.check(store, "tidemark_ledger", ask)
        answers = [ask(question) for question in views_in_sql.questions()]
    assert len(answers) == 6
    assert answers[2] == [("orders", "ingest", 3, "run 3", "2026-11-27 07:09:52.914")]


@pytest.mark.covers("O12")
def test_a_view_of_an_earlier_version_is_replaced_and_one_of_this_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "ledger.db")
    connection = Connection("c", file, kind="sqlite")
    store = open_store(SQLLedger(type="sql"), "orders", lambda name: connection, waits=None)
    name = "tidemark_ledger_windows"
    with closing(sqlite3.connect(file)) as another:
        another.execute(f"CREATE VIEW {name} AS SELECT 1 AS old")
        with monkeypatch.context() as earlier:
            earlier.setattr(sql, "views", lambda kind, table: {name: "SELECT 2 AS older"})
            store.prepare()
        assert another.execute(f"SELECT * FROM {name}").fetchall() == [(2,)]
        store.prepare()
        assert another.execute(f"SELECT stream, lane, seq FROM {name}").fetchall() == []
        version = another.execute("PRAGMA schema_version").fetchone()
        store.prepare()
        assert another.execute("PRAGMA schema_version").fetchone() == version


@pytest.mark.covers("O12")
def test_who_may_not_make_views_goes_on_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "views", lambda kind, table: {f"{table}_windows": "SELECT nothing FROM nowhere WHERE ("})
    connection = Connection("c", str(tmp_path / "ledger.db"), kind="sqlite")
    store = open_store(SQLLedger(type="sql"), "orders", lambda name: connection, waits=None)
    store.prepare()
    assert store.swap(("head", "ingest"), None, b"{}")


@pytest.mark.covers("O10", "O12")
def test_what_people_read_is_made_when_it_is_named_later_or_was_dropped(tmp_path: Path) -> None:
    """A table of offsets that the stream file names since the ledger was made, and views that somebody has dropped."""
    file = tmp_path / "ledger.db"

    def opened(**settings: Any) -> Any:
        return open_store(
            SQLLedger(type="sql", **settings), "s", lambda name: Connection(name, str(file), kind="sqlite"), waits=None
        )

    world = World(opened(offsets_table="before"))
    world.one_window()
    with closing(sqlite3.connect(file)) as another:

        def ask(statement: str) -> list[tuple[Any, ...]]:
            return another.execute(statement).fetchall()

        another.execute("DROP VIEW tidemark_ledger_windows")
        # Each run opens the ledger anew.
        world.ledger.store = opened(offsets_table="since")
        world.process(world.pin())
        assert ask("SELECT topic, partition, next_offset FROM since") == [("logs", 0, 20)]
        assert ask("SELECT next_offset FROM before") == [(10,)]
        assert ask("SELECT seq, state FROM tidemark_ledger_windows ORDER BY seq") == [
            (1, "committed"),
            (2, "committed"),
        ]
        # Of a ledger that is gone, none is made in its place.
        another.execute("DROP TABLE tidemark_ledger")
        another.commit()
        with pytest.raises(WrongUse, match="has no table tidemark_ledger yet"):
            world.ledger.store.commit(
                ("head", "ingest"), b"1", b"2", ("history", "ingest", "3"), b"3", {"logs": {0: 30}}
            )
