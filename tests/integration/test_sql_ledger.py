"""What is a database's own in the ledger, on a real PostgreSQL and on SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from services import control
from services.site import Site
from tests.support.command_line import tidemark
from tests.support.cuts import Cut, cut_after
from tests.support.oracle import LEDGERS
from tests.support.playground import Make
from tests.support.stores import SETTINGS, new_stream, stores_of
from tidemark.clients.connections import from_environment
from tidemark.commit.protocol import Step
from tidemark.errors import AuthenticationFailed, LedgerContradiction, NotAuthorized, Unreachable, WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.ledger.store import Anew, sortable
from tidemark_spark.jobs.audit import audit

HEAD = ("head", "ingest")
SQLITE = {"type": "sql", "sql": "sqlite_default"}
OFFSETS = "SELECT topic, partition, next_offset FROM tidemark_offsets WHERE stream = %s ORDER BY topic, partition"


@pytest.fixture
def postgresql(site: Site) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Another program, which knows SQL."""
    control.up(site, ["postgresql"])
    said = from_environment("sql_default")
    with psycopg.connect(
        host=said.host, port=said.port, user=said.login, password=said.password, dbname=said.schema, autocommit=True
    ) as connection:
        yield connection


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "ledger.db"
    monkeypatch.setenv("AIRFLOW_CONN_SQLITE_DEFAULT", json.dumps({"conn_type": "sqlite", "host": str(found)}))
    return found


@pytest.mark.covers("O10")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("ledger", ["postgresql", "sqlite"])
def test_a_stream_with_its_ledger_in_sql(
    make: Make, ledger: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Read, cut off behind the results, read again, replayed, audited; and the offsets are there for everybody."""
    other = request.getfixturevalue("postgresql" if ledger == "postgresql" else "file")
    play = make(ledger=SETTINGS[ledger])
    play.produce(120)
    play.ingest()
    play.produce(60)
    with pytest.raises(Cut):
        play.ingest(on_step=cut_after(Step.SINK_STORED))
    play.ingest(take_over=True)
    play.select(LaneKind.REPLAY, play.ranges(0, 0, (3, 5), (7, 8)))
    play.assert_exactly_what_was_read()
    report = audit(play.opened, play.new_run())
    assert (report.clean, report.expected) == (True, 180), report.sentence()
    assert tidemark("ledger", "verify", str(play.file))[0].startswith(f"{play.name}: 3 windows")

    wanted = [(topic, partition, offset) for (topic, partition), offset in sorted(play.positions().items())]
    if ledger == "postgresql":
        assert other.execute(OFFSETS, [play.name]).fetchall() == wanted
    else:
        with closing(sqlite3.connect(other)) as connection:
            assert connection.execute(OFFSETS.replace("%s", "?"), [play.name]).fetchall() == wanted

    # To another kind of ledger, and back.
    for number, there in enumerate((LEDGERS["zookeeper"], SETTINGS[ledger] | {"table": "moved"})):
        backup = str(tmp_path / f"backup {number}")
        tidemark("ledger", "backup", str(play.file), backup, "--final", "--reason", "moved")
        play.rewrite(ledger=there)
        tidemark("ledger", "restore", str(play.file), backup)
    play.produce(30)
    play.ingest()
    report = audit(play.opened, play.new_run())
    assert (report.clean, report.expected) == (True, 210), report.sentence()


def offsets_of(connection: psycopg.Connection[tuple[object, ...]], stream: str) -> list[tuple[object, ...]]:
    return connection.execute(OFFSETS, [stream]).fetchall()


@pytest.mark.covers("O10")
def test_offsets_are_shown_with_the_commit_and_not_without(
    site: Site, postgresql: psycopg.Connection[tuple[object, ...]]
) -> None:
    stores, stream = stores_of(SETTINGS["postgresql"]), new_stream()
    store = stores.make(stream)
    store.prepare()
    assert store.swap(HEAD, None, b"0")
    for seq, offset in ((1, 10), (2, 25), (3, Anew(4))):
        shown = {"logs": {0: offset, 1: 7}, "other": {0: 2}}
        before, after = (f"{number}".encode() for number in (seq - 1, seq))
        assert not store.commit(HEAD, b"another", b"x", ("history", "ingest", sortable(seq)), b"r", {"logs": {0: 99}})
        assert store.commit(HEAD, before, after, ("history", "ingest", sortable(seq)), b"r", shown)
        assert offsets_of(postgresql, stream) == [("logs", 0, int(offset)), ("logs", 1, 7), ("other", 0, 2)]
    # Lanes other than the ingest show none.
    assert store.commit(HEAD, b"3", b"4", ("history", "ingest", sortable(4)), b"r", None)
    assert offsets_of(postgresql, stream)[0] == ("logs", 0, 4)


@pytest.mark.covers("O10")
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_record_that_the_head_does_not_know_is_a_contradiction(kind: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("postgresql" if kind == "postgresql" else "file")
    store = stores_of(SETTINGS[kind]).new()
    first = ("history", "ingest", sortable(1))
    assert store.swap(HEAD, None, b"pinned")
    store.put(first, b"of nobody")
    with pytest.raises(LedgerContradiction, match="is there already, and its head does not know it"):
        store.commit(HEAD, b"pinned", b"committed", first, b"record", {"logs": {0: 1}})
    assert (store.read(HEAD), store.read(first)) == (b"pinned", b"of nobody")


@pytest.mark.covers("O10")
def test_who_is_not_let_in_or_may_not_write_is_told_so(
    postgresql: psycopg.Connection[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = stores_of(SETTINGS["postgresql"])
    stores.new()
    postgresql.execute("DROP ROLE IF EXISTS reader")
    postgresql.execute("CREATE ROLE reader LOGIN PASSWORD 'r'")
    said = json.loads(os.environ["AIRFLOW_CONN_SQL_DEFAULT"])
    monkeypatch.setenv("AIRFLOW_CONN_SQL_DEFAULT", json.dumps({**said, "login": "reader", "password": "r"}))
    store = stores.make(new_stream())
    with pytest.raises(
        NotAuthorized, match=r"permission denied for table tidemark_ledger.*to select, insert and update"
    ):
        store.read(HEAD)
    with pytest.raises(NotAuthorized, match="permission denied for table tidemark_ledger"):
        store.swap(HEAD, None, b"x")
    for name, value, expected in (
        ("password", "wrong", "password authentication failed"),
        ("schema", "nowhere", 'database "nowhere" does not exist'),
    ):
        monkeypatch.setenv("AIRFLOW_CONN_SQL_DEFAULT", json.dumps({**said, name: value}))
        with pytest.raises(AuthenticationFailed, match=expected) as caught:
            stores.make(new_stream()).read(HEAD)
        assert "wrong" not in str(caught.value)


@pytest.mark.covers("O10")
def test_a_file_in_no_folder_of_this_machine_is_no_empty_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another machine: there, a new file would begin a new ledger."""
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "nowhere" / "ledger.db")}
    monkeypatch.setenv("AIRFLOW_CONN_SQLITE_DEFAULT", json.dumps(connection))
    store = stores_of(SQLITE).make(new_stream(), patience=0.1)
    with pytest.raises(Unreachable, match="unable to open database file"):
        store.read(HEAD)
    with pytest.raises(WrongUse, match="the file cannot be made: No such file or directory"):
        store.prepare()
    monkeypatch.setenv("AIRFLOW_CONN_SQLITE_DEFAULT", json.dumps({**connection, "host": "ledger.db"}))
    with pytest.raises(WrongUse, match=r"ledger\.db is no absolute path"):
        stores_of(SQLITE).make(new_stream())
