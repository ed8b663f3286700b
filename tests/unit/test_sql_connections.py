"""Connections to databases: what closing one may say, a server that takes no writes for a while, and what a session sets.

On real servers: tests/integration/test_sql_ledger.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy.exc import DBAPIError

from tidemark.clients import mysql, sql
from tidemark.clients.sql import Database, check
from tidemark.errors import Unreachable
from tidemark.ledger.stores import sql as sql_store
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.ledger.stores.sql import SQLLedgerStore

KEY = ("head", "ingest")
STANDBY = psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction")
TAKES_NO_WRITES: list[tuple[str, Exception]] = [
    ("postgresql", STANDBY),
    *(
        ("mysql", pymysql.err.OperationalError(number, "The MySQL server is running with the --read-only option"))
        for number in (1290, 1792, 1836)
    ),
]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sql, sql_store):
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)


def store_in(tmp_path: Path, patience: float = 5.0) -> SQLLedgerStore:
    found = SQLLedgerStore(
        Database("sqlite", str(tmp_path / "ledger.db")), "ledger", "s", "offsets", RequestTimeouts(5, patience)
    )
    found.prepare()
    return found


class LostWhileClosing(sqlite3.Connection):
    """A line that is lost when the answer has come, before anything else is sent."""

    def rollback(self) -> None:
        raise sqlite3.OperationalError("Lost connection to server during query")


@pytest.mark.covers("F2", "O10")
def test_a_line_that_is_lost_after_the_answer_changes_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = store_in(tmp_path), list[str]()

    def connect(path: str, seconds: float) -> sqlite3.Connection:
        asked.append(path)
        return sqlite3.connect(path, seconds, isolation_level=None, factory=LostWhileClosing)

    monkeypatch.setattr(sql, "_file", connect)
    assert store.swap(KEY, None, b"pinned")
    assert store.commit(KEY, b"pinned", b"committed", ("history", "ingest", "1"), b"record", {"logs": {0: 1}})
    assert not store.commit(KEY, b"pinned", b"other", ("history", "ingest", "2"), b"record", None)
    store.put(("beat", "ingest"), b"alive")
    assert store.read(KEY) == b"committed"
    assert len(asked) == 5


def refusing(store: SQLLedgerStore, problem: Exception, times: int) -> Callable[..., bool]:
    """As the store's own writes, after `times` refusals."""
    swapped, told = store._swapped, list[int]()

    def write(*given: Any) -> bool:
        if len(told) < times:
            told.append(1)
            raise DBAPIError.instance("UPDATE ledger", {}, problem, Exception)
        return swapped(*given)

    return write


@pytest.mark.covers("F2", "O10")
@pytest.mark.parametrize("problem", [one for _, one in TAKES_NO_WRITES], ids=lambda one: str(one.args[0]))
def test_a_server_that_takes_no_writes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    store, record = store_in(tmp_path), ("history", "ingest", "1")
    monkeypatch.setattr(store, "_swapped", refusing(store, problem, 2))
    assert store.swap(KEY, None, b"pinned")
    monkeypatch.setattr(store, "_swapped", refusing(store, problem, 2))
    assert store.commit(KEY, b"pinned", b"committed", record, b"record", {"logs": {0: 1}})
    assert (store.read(KEY), store.read(record)) == (b"committed", b"record")


@pytest.mark.covers("O10")
@pytest.mark.parametrize(
    ("kind", "problem"), TAKES_NO_WRITES, ids=[f"{kind} {one.args[0]}" for kind, one in TAKES_NO_WRITES]
)
def test_a_server_that_goes_on_taking_no_writes_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, problem: Exception
) -> None:
    store = store_in(tmp_path, patience=0.0)
    monkeypatch.setattr(store, "_swapped", refusing(store, problem, 1_000))
    with pytest.raises(
        Unreachable, match=r"takes no writes, as a standby does.* name the server that takes the writes"
    ):
        store.swap(KEY, None, b"pinned")
    # Also where a question is asked, as by the dead letters.
    where = Database(kind, "db", 1, "ledger", "tidemark")
    said = DBAPIError.instance("INSERT INTO letters", {}, problem, Exception)
    check(where, said, ["letters"])
    with pytest.raises(Unreachable, match="takes no writes"):
        raise sql.unanswered(where, said)


@pytest.mark.covers("O10")
def test_a_session_of_postgresql_waits_until_a_commit_is_on_disk() -> None:
    """Whatever the database says: Airflow's is often set up so that commits are quick and may be lost."""
    assert "-c synchronous_commit=on" in sql._limits(30.0)["options"]


@pytest.mark.covers("O10")
@pytest.mark.parametrize("password", ["schlüssel", "pa€ss", ""])
def test_a_password_of_mysql_is_sent_as_its_own_clients_send_it(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    """As bytes of UTF-8: PyMySQL would take Latin-1 for a text, and stop where there is none."""
    given: dict[str, Any] = {}

    class Connection:
        def __init__(self, **said: Any) -> None:
            given.update(said)
            raise pymysql.err.OperationalError(2003, "nobody is there")

    monkeypatch.setattr(mysql, "BoundedConnection", Connection)
    with pytest.raises(pymysql.err.OperationalError):
        mysql.connect("127.0.0.1", 1, "db", "u", password, {}, 1.0)
    assert given["password"] == password.encode()
