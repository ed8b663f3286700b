"""What is a database's own in the ledger, on a real PostgreSQL, a real MariaDB and on SQLite."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pymysql
import pytest

from services import control, processes
from services.authority import CertificateAuthority
from services.site import Site
from tests.support import views_in_sql
from tests.support.command_line import tidemark
from tests.support.cuts import Cut, cut_after
from tests.support.letters_in_databases import AT, write
from tests.support.live_streams import Make
from tests.support.oracle import LEDGERS
from tests.support.proxy import lossy
from tests.support.stores import SETTINGS, new_stream, stores_of
from tidemark.clients import sql as sql_client
from tidemark.clients.environment import from_environment
from tidemark.clients.sql import asked, database
from tidemark.commit.protocol import Step
from tidemark.errors import AuthenticationFailed, LedgerContradiction, NotAuthorized, Unreachable, WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.ledger.stores import sql as sql_store
from tidemark.ledger.stores.contract import ResetOffset, sortable
from tidemark.ledger.stores.doubt import swap_surely
from tidemark.offsets.coordinates import Coordinate
from tidemark.sinks.dead_letters.sql.letters import letters_in
from tidemark.spark.jobs.audit import audit

HEAD = ("head", "ingest")
SQLITE = {"type": "sql", "sql": "sqlite_default"}
# MySQL has reserved the word `partition`, except behind a point.
OFFSETS = """
    SELECT o.topic, o.partition, o.next_offset FROM tidemark_offsets o WHERE o.stream = %s ORDER BY o.topic, o.partition
"""


@pytest.fixture
def postgresql(site: Site) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Another program, which knows SQL."""
    control.up(site, ["postgresql"])
    with connected() as connection:
        yield connection


def connected() -> psycopg.Connection[tuple[object, ...]]:
    said = from_environment("sql_default")
    return psycopg.connect(
        host=said.host, port=said.port, user=said.login, password=said.password, dbname=said.schema, autocommit=True
    )


class MariaDB:
    """Another program, which knows SQL too."""

    def __init__(self) -> None:
        said = from_environment("mysql_default")
        self.connection = pymysql.connect(
            host=said.host,
            port=said.port or 0,
            user=said.login,
            password=said.password or "",
            database=said.schema,
            autocommit=True,
        )

    def execute(self, statement: str, values: Any = None) -> MariaDB:
        self._cursor = self.connection.cursor()
        self._cursor.execute(statement, values)
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._cursor.fetchall())

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def mariadb(site: Site) -> Iterator[MariaDB]:
    control.up(site, ["mariadb"])
    found = MariaDB()
    yield found
    found.close()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "ledger.db"
    monkeypatch.setenv("AIRFLOW_CONN_SQLITE_DEFAULT", json.dumps({"conn_type": "sqlite", "host": str(found)}))
    return found


@pytest.mark.covers("O10")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "ledger",
    ["postgresql", *(pytest.param(one, marks=pytest.mark.full) for one in ("mariadb", "sqlite"))],
)
def test_a_stream_with_its_ledger_in_sql(
    make: Make, ledger: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Read, cut off behind the results, read again, replayed, audited; and the offsets are there for everybody."""
    other = request.getfixturevalue("file" if ledger == "sqlite" else ledger)
    live = make(ledger=SETTINGS[ledger])
    live.produce(120)
    live.ingest()
    live.produce(60)
    with pytest.raises(Cut):
        live.ingest(on_step=cut_after(Step.SINK_STORED))
    live.ingest(take_over=True)
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 5), (7, 8)))
    live.assert_exactly_what_was_read()
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.expected) == (True, 180), report.sentence()
    assert tidemark("ledger", "verify", str(live.file))[0].startswith(f"{live.name}: 3 windows")

    wanted = [(topic, partition, offset) for (topic, partition), offset in sorted(live.positions().items())]
    if ledger != "sqlite":
        assert other.execute(OFFSETS, [live.name]).fetchall() == wanted
    else:
        with closing(sqlite3.connect(other)) as connection:
            assert connection.execute(OFFSETS.replace("%s", "?"), [live.name]).fetchall() == wanted

    # To each other kind of ledger, and back.
    places = [LEDGERS["hbase"], SETTINGS[ledger] | {"table": "moved"}, LEDGERS["zookeeper"]]
    for number, there in enumerate([*places, SETTINGS[ledger] | {"table": "moved_again"}]):
        backup = str(tmp_path / f"backup {number}")
        tidemark("ledger", "backup", str(live.file), backup, "--final", "--yes", "--reason", "moved")
        live.rewrite(ledger=there)
        tidemark("ledger", "restore", "--yes", str(live.file), backup)
        assert tidemark("ledger", "verify", str(live.file))[0].startswith(f"{live.name}: 3 windows"), there
    live.produce(30)
    live.ingest()
    report = audit(live.opened, live.new_run())
    assert (report.clean, report.expected) == (True, 210), report.sentence()
    # Also of windows that have come from another ledger.
    windows = (
        "SELECT w.lane, w.seq, w.messages_read FROM moved_again_windows w "
        "WHERE w.kind = 'ingest' AND w.state = 'committed' AND w.stream = %s ORDER BY w.seq"
    )
    wanted = [("ingest", 1, 120), ("ingest", 2, 60), ("ingest", 3, 30)]
    if ledger != "sqlite":
        assert list(other.execute(windows, [live.name]).fetchall()) == wanted
    else:
        with closing(sqlite3.connect(other)) as connection:
            assert connection.execute(windows.replace("%s", "?"), [live.name]).fetchall() == wanted


def offsets_of(connection: Any, stream: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = connection.execute(OFFSETS, [stream]).fetchall()
    return found


@pytest.mark.covers("O10")
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_offsets_are_shown_with_the_commit_and_not_without(kind: str, request: pytest.FixtureRequest) -> None:
    database = request.getfixturevalue(kind)
    stores, stream = stores_of(SETTINGS[kind]), new_stream()
    store = stores.make(stream)
    store.prepare()
    assert store.swap(HEAD, None, b"0")
    for seq, offset in ((1, 10), (2, 25), (3, ResetOffset(4))):
        shown = {"logs": {0: offset, 1: 7}, "other": {0: 2}}
        before, after = (f"{number}".encode() for number in (seq - 1, seq))
        assert not store.commit(HEAD, b"another", b"x", ("history", "ingest", sortable(seq)), b"r", {"logs": {0: 99}})
        assert store.commit(HEAD, before, after, ("history", "ingest", sortable(seq)), b"r", shown)
        assert offsets_of(database, stream) == [("logs", 0, int(offset)), ("logs", 1, 7), ("other", 0, 2)]
    # Lanes other than the ingest show none.
    assert store.commit(HEAD, b"3", b"4", ("history", "ingest", sortable(4)), b"r", None)
    assert offsets_of(database, stream)[0] == ("logs", 0, 4)


@pytest.mark.full
@pytest.mark.covers("O10")
@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("postgresql", "ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"),
        ("postgresql", "ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"),
        ("mariadb", "CHARACTER SET latin1 COLLATE latin1_swedish_ci"),
        ("mariadb", "CHARACTER SET utf16 COLLATE utf16_general_ci"),
    ],
    ids=["LATIN1", "SQL_ASCII", "latin1", "utf16"],
)
def test_encodings_and_collations_of_a_database_do_not_matter(
    kind: str, made: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are bytes: none is equal to another that a collation takes for it, and they sort as bytes do."""
    name = f"other_{secrets.token_hex(3)}"
    request.getfixturevalue(kind).execute(f"CREATE DATABASE {name} {made}")
    connection = SETTINGS[kind].get("sql", "sql_default")
    variable = f"AIRFLOW_CONN_{connection.upper()}"
    monkeypatch.setenv(variable, json.dumps({**json.loads(os.environ[variable]), "schema": name}))
    stores = stores_of(SETTINGS[kind])
    store, other = stores.make("orders"), stores.make("Orders")
    store.prepare()
    words = ["A", "a", "a ", "\u00c4", "\u00e4", "a\u0308", "ss", "\u00df", "\u65e5\u672c"]
    for word in words:
        assert store.swap(("lane", word), None, word.encode())
    assert other.read(("lane", "a")) is None
    assert [key[1] for key, _ in store.scan(("lane",))] == sorted(words, key=str.encode)
    assert store.swap(HEAD, None, b"0")
    record = ("history", "ingest", sortable(1))
    assert store.commit(HEAD, b"0", b"1", record, b"record", {"Logs": {0: 1}, "logs": {0: 2}})
    letters = letters_in(from_environment, connection, "dead", "orders")
    letters.prepare("orders", "ledger 1")
    said: dict[str, Any] = {
        "value": "\u65e5\u672c".encode(),
        "detail": "na\u00efve \u20ac".encode(),
        "reason": b"\xff\x00",
    }
    write(letters, 3, 5, **said)
    assert letters.rows_at(Coordinate(AT, 5), 3)[0].fields == {**said, "redrives": b"0"}


@pytest.mark.full
@pytest.mark.covers("O10", "E38")
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("answered", [True, False], ids=["after its answer", "at the commit"])
def test_a_server_is_killed_in_the_middle_of_a_commit(kind: str, answered: bool, site: Site) -> None:
    """Whatever the server did before it died, its ledger has all of it or nothing, and the writer finds out which."""
    control.up(site, [kind])
    stores, stream = stores_of(SETTINGS[kind]), new_stream()
    direct, record = stores.make(stream), ("history", "ingest", sortable(1))
    direct.prepare()
    assert direct.swap(HEAD, None, b"pinned")
    victims, killed = processes.running(site, kind), threading.Event()

    def kill() -> None:
        # At once: what the server would write a moment later is not written.
        processes.send(victims, signal.SIGKILL)
        psutil.wait_procs(victims, timeout=60)
        processes.kill(site, kind)
        killed.set()

    with lossy(stores.port) as proxy, ThreadPoolExecutor(1) as pool:
        behind = stores.make(stream, port=proxy.port, timeout=5.0)
        proxy.lose_next(stores.settling(b"committed"), applied=True, meanwhile=kill, awaited=answered)
        commit = partial(behind.commit, HEAD, b"pinned", b"committed", record, b"record", {"logs": {0: 10}})
        writing = pool.submit(
            swap_surely, behind, HEAD, b"pinned", b"committed", lambda stored: stored == b"committed", write=commit
        )
        assert killed.wait(60)
        control.up(site, [kind])
        if answered:
            # What the server has said is so outlives its death.
            assert direct.read_several([HEAD, record]) == [b"committed", b"record"]
        writing.result()
    assert dict(direct.scan(())) == {HEAD: b"committed", record: b"record"}
    with closing(connected() if kind == "postgresql" else MariaDB()) as database:
        assert offsets_of(database, stream) == [("logs", 0, 10)]


@pytest.mark.covers("O10")
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_a_record_that_the_head_does_not_know_is_a_contradiction(kind: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("file" if kind == "sqlite" else kind)
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
    for name, value, kind, expected in (
        ("password", "wrong", AuthenticationFailed, "password authentication failed"),
        (
            "schema",
            "nowhere",
            WrongUse,
            'database "nowhere" does not exist.*Create the database, or correct the schema',
        ),
    ):
        monkeypatch.setenv("AIRFLOW_CONN_SQL_DEFAULT", json.dumps({**said, name: value}))
        with pytest.raises(WrongUse, match=expected) as caught:
            stores.make(new_stream()).read(HEAD)
        assert caught.type is kind
        assert "wrong" not in str(caught.value)


@pytest.mark.full
@pytest.mark.covers("O12")
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_windows_are_read_by_plain_sql(kind: str, request: pytest.FixtureRequest) -> None:
    database, table = request.getfixturevalue(kind), f"views_{secrets.token_hex(4)}"
    connection = SETTINGS[kind].get("sql", "sql_default")
    store = stores_of({**SETTINGS[kind], "table": table}).make("orders")
    views_in_sql.check(store, table, lambda said: database.execute(said).fetchall())
    letters_in(from_environment, connection, "tidemark_dead_letters", "orders").prepare("orders", "ledger 1")
    answers = [
        database.execute(question.replace("tidemark_ledger", table)).fetchall() for question in views_in_sql.questions()
    ]
    assert [row[:4] for row in answers[2]] == [("orders", "ingest", 3, "run 3")]


@pytest.mark.full
@pytest.mark.covers("O12")
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_view_of_an_earlier_version_is_replaced_and_its_readers_stay(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it had other columns, which PostgreSQL replaces only by another view."""
    database, table = request.getfixturevalue(kind), f"views_{secrets.token_hex(4)}"
    store = stores_of({**SETTINGS[kind], "table": table}).make("orders")
    name = f"{table}_windows"
    with monkeypatch.context() as earlier:
        earlier.setattr(sql_store, "views", lambda kind, table: {name: "SELECT 2 AS older, 3 AS old"})
        store.prepare()
    assert database.execute(f"SELECT older FROM {name}").fetchall() == [(2,)]
    if kind == "postgresql":
        database.execute(f"GRANT SELECT ON {name} TO PUBLIC")
    store.prepare()
    columns = f"SELECT stream, lane, seq FROM {name}"
    assert database.execute(columns).fetchall() == []
    if kind == "postgresql":
        asked = f"SELECT grantee FROM information_schema.role_table_grants WHERE table_name = '{name}'"
        assert ("PUBLIC",) in database.execute(asked).fetchall()
    made: list[str] = []
    monkeypatch.setattr(sql_client, "_put_view", lambda where, connection, name, *_, **__: made.append(name))
    store.prepare()
    assert made == []


@pytest.mark.covers("O10")
def test_who_may_not_come_in_to_mysql_or_may_not_write_is_told_so(
    mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = stores_of(SETTINGS["mariadb"])
    stores.new()
    said = json.loads(os.environ["AIRFLOW_CONN_MYSQL_DEFAULT"])
    mariadb.execute("DROP USER IF EXISTS reader@127.0.0.1")
    mariadb.execute("CREATE USER reader@127.0.0.1 IDENTIFIED BY 'r'")
    # One that sees nothing of the database is not even let in.
    other = {**said, "login": "reader", "password": "r"}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_DEFAULT", json.dumps(other))
    with pytest.raises(AuthenticationFailed, match=r"Access denied for user 'reader'@'127\.0\.0\.1' to database"):
        stores.make(new_stream()).read(HEAD)
    mariadb.execute("GRANT SELECT ON tidemark.tidemark_ledger TO reader@127.0.0.1")
    store = stores.make(new_stream())
    assert store.read(HEAD) is None
    rights = r"command denied to user 'reader'@.* to select, insert and update tidemark_ledger and tidemark_offsets"
    with pytest.raises(NotAuthorized, match=rights):
        store.swap(HEAD, None, b"x")
    for name, value, kind, expected in (
        ("password", "wrong", AuthenticationFailed, "Access denied for user 'tidemark'"),
        ("schema", "nowhere", WrongUse, "Unknown database 'nowhere'.*Create the database, or correct the schema"),
    ):
        monkeypatch.setenv("AIRFLOW_CONN_MYSQL_DEFAULT", json.dumps({**said, name: value}))
        with pytest.raises(WrongUse, match=expected) as caught:
            stores.make(new_stream()).read(HEAD)
        assert caught.type is kind
        assert "wrong" not in str(caught.value)
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_DEFAULT", json.dumps(said))
    mariadb.execute("DROP TABLE IF EXISTS without_transactions")
    mariadb.execute("CREATE TABLE without_transactions (number INTEGER) ENGINE = MyISAM")
    with pytest.raises(WrongUse, match="the table without_transactions is kept by MyISAM, which has no transactions"):
        stores_of({**SETTINGS["mariadb"], "table": "without_transactions"}).new()


@pytest.mark.full
@pytest.mark.covers("O10")
@pytest.mark.usefixtures("mariadb")
def test_mysql_with_tls_is_who_its_certificate_says(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = json.loads(os.environ["AIRFLOW_CONN_MYSQL_DEFAULT"])
    authority, other = site.folder("tls") / "ca.pem", CertificateAuthority(tmp_path).certificate

    def cipher(**extra: str) -> str:
        monkeypatch.setenv("AIRFLOW_CONN_MYSQL_DEFAULT", json.dumps({**said, "extra": extra}))
        where = database(from_environment("mysql_default"))
        found = asked(where, lambda one: one.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'").one()[1], ["none"], 10, 1)
        return str(found)

    for mode in ("VERIFY_IDENTITY", "VERIFY_CA"):
        assert cipher(ssl_mode=mode, ssl_ca=str(authority)) != ""
        with pytest.raises(AuthenticationFailed, match="certificate verify failed"):
            cipher(ssl_mode=mode, ssl_ca=str(other))
    # The certificate is one of 127.0.0.1.
    said["host"] = "localhost"
    with pytest.raises(AuthenticationFailed, match=r"certificate verify failed.*localhost"):
        cipher(ssl_mode="VERIFY_IDENTITY", ssl_ca=str(authority))


@pytest.mark.full
@pytest.mark.covers("O10")
def test_a_lock_of_another_program_is_waited_for(mariadb: MariaDB) -> None:
    """MySQL has taken the statement back. What a transaction had done before goes with its end."""
    stores, stream = stores_of(SETTINGS["mariadb"]), new_stream()
    store, impatient = (stores.make(stream, timeout=2.0, patience=patience) for patience in (60.0, 0.0))
    store.prepare()
    assert store.swap(HEAD, None, b"pinned")
    first = ("history", "ingest", sortable(1))
    assert store.commit(HEAD, b"pinned", b"1", first, b"record", {"logs": {0: 1}})
    mariadb.execute("BEGIN")
    mariadb.execute("UPDATE tidemark_offsets SET next_offset = 7 WHERE stream = %s", [stream])
    second = ("history", "ingest", sortable(2))
    with pytest.raises(Unreachable, match="Lock wait timeout exceeded"):
        impatient.commit(HEAD, b"1", b"2", second, b"record", {"logs": {0: 2}})
    # Nothing of it stays, and it locks nobody out.
    assert (store.read(HEAD), store.read(second)) == (b"1", None)
    assert impatient.swap(HEAD, b"1", b"1")

    done: list[bool] = []
    commit = threading.Thread(
        target=lambda: done.append(store.commit(HEAD, b"1", b"2", second, b"record", {"logs": {0: 2}}))
    )
    before = lock_waits(mariadb)
    commit.start()
    # Until it has begun again.
    while lock_waits(mariadb) < before + 2:
        commit.join(0.1)
    mariadb.execute("ROLLBACK")
    commit.join(60)
    assert done == [True]
    assert (store.read(HEAD), store.read(second)) == (b"2", b"record")
    assert offsets_of(mariadb, stream) == [("logs", 0, 2)]


def lock_waits(mariadb: MariaDB) -> int:
    ((_, number),) = mariadb.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").fetchall()
    return int(number)


@pytest.mark.full
@pytest.mark.covers("O10")
def test_a_commit_that_ends_a_deadlock_is_tried_again(mariadb: MariaDB) -> None:
    stores, stream = stores_of(SETTINGS["mariadb"]), new_stream()
    store = stores.make(stream)
    store.prepare()
    assert store.swap(HEAD, None, b"pinned")
    first, second = (("history", "ingest", sortable(number)) for number in (1, 2))
    assert store.commit(HEAD, b"pinned", b"1", first, b"record", {"logs": {0: 1}})
    # The server ends the transaction that has changed less.
    for number in range(100):
        store.put(("report", sortable(number)), b"0")
    mariadb.execute("BEGIN")
    mariadb.execute(
        "UPDATE tidemark_ledger l SET l.value = 'x' WHERE l.stream = %s AND l.key LIKE 'report%%'", [stream]
    )
    mariadb.execute("UPDATE tidemark_offsets SET next_offset = 7 WHERE stream = %s", [stream])
    done: list[bool] = []
    commit = threading.Thread(
        target=lambda: done.append(store.commit(HEAD, b"1", b"2", second, b"record", {"logs": {0: 2}}))
    )
    before, waits = deadlocks(mariadb), lock_waits(mariadb)
    commit.start()
    while lock_waits(mariadb) == waits:
        commit.join(0.1)
    # The commit has the head, and waits for the offsets.
    mariadb.execute(
        "SELECT l.value FROM tidemark_ledger l WHERE l.stream = %s AND l.key = 'head/ingest' FOR UPDATE", [stream]
    )
    assert deadlocks(mariadb) == before + 1
    mariadb.execute("COMMIT")
    commit.join(60)
    assert done == [True]
    assert (store.read(HEAD), store.read(second)) == (b"2", b"record")


def deadlocks(mariadb: MariaDB) -> int:
    ((_, number),) = mariadb.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").fetchall()
    return int(number)


@pytest.mark.full
@pytest.mark.covers("F2", "O10")
@pytest.mark.usefixtures("mariadb")
def test_a_line_that_is_lost_after_the_answer_changes_nothing_of_it() -> None:
    """Whatever a client would send when it puts a connection back: the answer to the write has come before."""
    stores, stream = stores_of(SETTINGS["mariadb"]), new_stream()
    with lossy(stores.port) as proxy:
        store = stores.make(stream, port=proxy.port)
        store.prepare()
        record = ("history", "ingest", sortable(1))
        for write, value in (
            (lambda: store.swap(HEAD, None, b"pinned"), b"pinned"),
            (lambda: store.commit(HEAD, b"pinned", b"1", record, b"record", {"logs": {0: 1}}), b"1"),
        ):
            proxy.lose_next(b"\x03ROLLBACK", applied=False)
            assert write()
            assert stores.make(stream).read(HEAD) == value


@pytest.mark.full
@pytest.mark.covers("F2", "O10")
def test_a_switchover_of_postgresql_is_waited_out(postgresql: psycopg.Connection[tuple[object, ...]]) -> None:
    """The server answers as a standby does until the switchover is over. Whoever stays a standby is named as one."""
    stores, stream = stores_of(SETTINGS["postgresql"]), new_stream()
    store, impatient = stores.make(stream), stores.make(stream, patience=0.0)
    store.prepare()
    name = postgresql.info.dbname
    done: list[bool] = []
    write = threading.Thread(target=lambda: done.append(store.swap(HEAD, None, b"pinned")))
    postgresql.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        with pytest.raises(Unreachable, match="takes no writes, as a standby does") as caught:
            impatient.swap(HEAD, None, b"pinned")
        assert caught.value.retriable
        write.start()
        write.join(0.5)
        assert write.is_alive()
    finally:
        postgresql.execute("SET default_transaction_read_only = off")
        postgresql.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    write.join(30)
    assert (done, store.read(HEAD)) == ([True], b"pinned")


@pytest.mark.full
@pytest.mark.covers("O10")
def test_a_commit_is_on_disk_whatever_the_database_says(postgresql: psycopg.Connection[tuple[object, ...]]) -> None:
    name = postgresql.info.dbname
    postgresql.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    try:
        with connected() as other:
            assert other.execute("SHOW synchronous_commit").fetchone() == ("off",)
        where = database(from_environment("sql_default"))
        said = asked(where, lambda one: one.exec_driver_sql("SHOW synchronous_commit").scalar(), ["none"], 10, 1)
        assert said == "on"
    finally:
        postgresql.execute(f"ALTER DATABASE {name} RESET synchronous_commit")


@pytest.mark.full
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
