"""Databases that SQLAlchemy speaks with: where an Airflow connection leads, and one connection for each question."""

from __future__ import annotations

import hashlib
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from tidemark.clients.connections import Connection
from tidemark.clients.dialects import BEGIN, LOCKED
from tidemark.clients.disks import refusal
from tidemark.errors import (
    SQL_PACKAGES,
    AuthenticationFailed,
    DiskFull,
    NotAuthorized,
    PackageMissing,
    Unreachable,
    WrongUse,
    install,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

PAUSE_SECONDS = 0.3
# The rights that a user needs on our tables.
_RIGHTS = "select, insert and update"
# libpq's own words: which of its modes of TLS check the server's certificate.
_CHECKED = ("verify-ca", "verify-full")
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
# MySQL's own words. `PREFERRED` would go on without TLS where somebody in between says that the server has none.
_MYSQL_MODES = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_MYSQL_FILES = ("ssl_ca", "ssl_cert", "ssl_key")
# MySQL takes no longer statement than `max_allowed_packet`: two of the ledger's largest values, with twice as many bytes
# for what has to be escaped. It is what MariaDB has, unless it is told otherwise.
_LEAST_PACKET = 16 << 20


@dataclass(frozen=True)
class Database:
    """One database. `kind` is `postgresql`, `mysql` (also MariaDB) or `sqlite`. Its password is never shown."""

    kind: str
    # A host, or the path of SQLite's file.
    host: str
    port: int | None = None
    name: str | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        if self.kind == "sqlite":
            return f"SQLite at {self.host}"
        server = "MySQL" if self.kind == "mysql" else "PostgreSQL"
        return f"the database {self.name} of {server} at {self.host}:{self.port}"


def database(connection: Connection) -> Database:
    """The database of an Airflow connection of the type `postgres`, `mysql` or `sqlite`. Raises WrongUse."""
    match connection.kind:
        case "sqlite":
            connection.only("SQLite", "host")
            path = connection.required("host, which is the path of SQLite's file", connection.host)
            if not Path(path).is_absolute():
                raise WrongUse(
                    f"connection {connection.name}: {path} is no absolute path: each program would mean another file"
                )
            return Database("sqlite", path)
        case "postgres" | "postgresql" | "tidemark_postgres":
            return _postgresql(connection)
        case "mysql" | "mariadb" | "tidemark_mysql":
            return _mysql(connection)
    raise WrongUse(
        f"connection {connection.name} has the type {connection.kind or 'generic'}; a database has the type postgres, mysql "
        'or sqlite, as in {"conn_type": "postgres", "host": ..., "schema": ..., "login": ..., "password": ...}'
    )


def _postgresql(connection: Connection) -> Database:
    connection.only("PostgreSQL", "host", "port", "schema", "login", "password", extras=("allow_insecure", *_TLS))
    given = {name: text for name in _TLS if (text := connection.text(name)) is not None}
    _encrypted(connection, "PostgreSQL", given.get("sslmode") in _CHECKED, '"sslmode": "verify-full"', "sslrootcert")
    for name in _TLS[1:]:
        if given.get(name) != "system":
            _there(connection, name, given.get(name))
    return _server(connection, "postgresql", 5432, given)


def _mysql(connection: Connection) -> Database:
    extras = ("allow_insecure", "ssl_mode", *_MYSQL_FILES)
    connection.only("MySQL", "host", "port", "schema", "login", "password", extras=extras)
    given = {name: text for name in ("ssl_mode", *_MYSQL_FILES) if (text := connection.text(name)) is not None}
    mode = given.get("ssl_mode", "DISABLED")
    if mode not in _MYSQL_MODES:
        raise WrongUse(f"connection {connection.name}: ssl_mode among its extras is none of {', '.join(_MYSQL_MODES)}")
    if mode == "DISABLED" and (files := [name for name in _MYSQL_FILES if name in given]):
        raise WrongUse(f"connection {connection.name} sets {', '.join(files)} without an ssl_mode that uses TLS")
    if "ssl_key" in given and "ssl_cert" not in given:
        raise WrongUse(f"connection {connection.name}: ssl_key among its extras goes with ssl_cert")
    _encrypted(connection, "MySQL", mode.startswith("VERIFY"), '"ssl_mode": "VERIFY_IDENTITY"', "ssl_ca")
    for name in _MYSQL_FILES:
        _there(connection, name, given.get(name))
    return _server(connection, "mysql", 3306, given)


def _encrypted(connection: Connection, server: str, checked: bool, remedy: str, authority: str) -> None:
    """Raises WrongUse for a line that others may read, unless the connection allows it."""
    host = connection.required("host", connection.host)
    if not checked:
        connection.allow_in_the_clear(
            [host],
            f"its line to {server} is not encrypted, or nobody checks who answers, and others could read and change it",
            f'say {remedy} and name the authority as "{authority}"',
            secret=connection.password is not None,
        )


def _there(connection: Connection, name: str, file: str | None) -> None:
    if file is not None and not Path(file).is_file():
        raise WrongUse(f"connection {connection.name}: there is no file {file}, the {name} among its extras")


def _server(connection: Connection, kind: str, port: int, tls: Mapping[str, str]) -> Database:
    return Database(
        kind,
        connection.required("host", connection.host),
        connection.port or port,
        connection.required("schema, which is the name of the database", connection.schema),
        connection.required("login", connection.login),
        connection.password,
        tuple(sorted(tls.items())),
    )


@lru_cache(maxsize=64)
def engine(where: Database, question_seconds: float) -> sa.Engine:
    """A pool that opens a connection for each question, which takes `question_seconds` at most.

    Raises PackageMissing.
    """
    try:
        import sqlalchemy as sa

        if where.kind == "postgresql":
            import psycopg  # noqa: F401
        elif where.kind == "mysql":
            from tidemark.clients import mysql
    except ImportError as problem:
        raise PackageMissing(f"SQL needs the package {problem.name}: {install(*SQL_PACKAGES)}") from None
    # A window asks some 15 questions, and to connect takes 4 ms on loopback. Connections that are kept would save 60 ms of a
    # window, and each run and page would hold one, of the hundred that a PostgreSQL allows.
    # Nothing is sent when a connection is put back: where the line is lost then, the answer has come already, and what
    # was done would look as if it had failed. The end of a connection takes back what a transaction has left.
    given: dict[str, Any] = {
        "poolclass": sa.NullPool,
        "pool_reset_on_return": None,
        "skip_autocommit_rollback": True,
        "isolation_level": "AUTOCOMMIT",
        "hide_parameters": True,
    }
    if where.kind == "sqlite":
        return sa.create_engine("sqlite://", creator=lambda: _file(where.host, question_seconds), **given)
    if where.kind == "mysql":
        at = (where.host, where.port or 0, where.name or "", where.login or "", where.password or "", dict(where.tls))
        return sa.create_engine("mysql+pymysql://", creator=lambda: mysql.connect(*at, question_seconds), **given)
    url = sa.URL.create(
        "postgresql+psycopg", where.login, where.password, where.host, where.port, where.name, dict(where.tls)
    )
    return sa.create_engine(url, connect_args=_limits(question_seconds), **given)


def _limits(question_seconds: float) -> Mapping[str, Any]:
    """A server that is stuck is like one that is away; a client that is, holds up nobody: libpq's and PostgreSQL's settings."""
    milliseconds = round(question_seconds * 1000)
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    # A database that is set up to be quick, as some set up Airflow's, answers before a commit outlives a power cut.
    options = " ".join((*(f"-c {name}={milliseconds}" for name in names), "-c synchronous_commit=on"))
    seconds = max(2, round(question_seconds))
    return {
        "connect_timeout": seconds,
        "tcp_user_timeout": milliseconds,
        "options": options,
        "application_name": "tidemark",
        # From a database without an encoding, the driver would return bytes.
        "client_encoding": "utf8",
    }


def _file(path: str, patience_seconds: float) -> sqlite3.Connection:
    """SQLite's file, which has to be there: a path that leads nowhere on this machine is no empty database."""
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=rw", patience_seconds, isolation_level=None, uri=True, check_same_thread=False
    )
    # Acknowledged writes outlive a power cut.
    connection.execute("PRAGMA synchronous = EXTRA")
    # What is deleted, such as a dead letter that was erased, is overwritten in the file.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def asked(
    where: Database,
    ask: Callable[[sa.Connection], T],
    tables: Sequence[str],
    question_seconds: float,
    patience_seconds: float,
    rights: str = _RIGHTS,
) -> T:
    """Repeat a question until it is answered. Raises Unreachable when the patience is at its end, and what `check` raises."""
    from sqlalchemy.exc import DBAPIError

    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            with engine(where, question_seconds).connect() as connection:
                return ask(connection)
        except DBAPIError as problem:
            check(where, problem, tables, rights)
            if time.monotonic() > deadline:
                raise unanswered(where, problem) from problem
            time.sleep(PAUSE_SECONDS)


def unanswered(where: Database, problem: Any) -> Unreachable:
    """The error for a request that `check` lets be repeated, when the patience is at its end."""
    words = describe_problem(problem)
    if code(problem) in _TAKES_NO_WRITES:
        return Unreachable(
            f"{where} takes no writes, as a standby does, and any server during a switchover: {words}. If this stays so, name "
            "the server that takes the writes in the connection"
        )
    return Unreachable(f"{where} did not answer: {words}")


def check(where: Database, problem: Any, tables: Sequence[str], rights: str = _RIGHTS) -> None:
    """Raises what a repetition does not mend. The server has refused the request: nothing was changed."""
    words, first = describe_problem(problem), tables[0]
    if code(problem) in _NO_ROOM:
        raise DiskFull.of(str(where)) from problem
    if where.kind == "sqlite":
        if "no such table" in words or ("unable to open" in words and _could_be(Path(where.host))):
            raise NothingPrepared(f"{where} has no table {first} yet")
        if "readonly" in words:
            raise NotAuthorized(f"{where}: this user may not write it: {words}") from problem
        _check_understood(where, problem, tables)
        return
    state = code(problem)
    if state in _MISSING:
        raise NothingPrepared(f"{where} has no table {first} yet")
    if state in _NO_RIGHTS:
        raise NotAuthorized(
            f"{where}: {words}. The user needs the right to create tables once, and then to {rights} {' and '.join(tables)}"
        ) from problem
    if remedy := _NEVER_TAKEN.get(state) or _said_while_connecting(words):
        raise WrongUse(f"{where} does not take it: {words}. {remedy}") from problem
    _check_understood(where, problem, tables)
    if state in _NOT_LET_IN or any(word in words for word in _REFUSED):
        raise AuthenticationFailed(f"{where}: {words}") from problem


def _said_while_connecting(words: str) -> str | None:
    """The remedy for what PostgreSQL says before psycopg knows a state."""
    if _NO_OPTIONS in words:
        return _POOLER
    return _NO_DATABASE if _NO_SUCH_DATABASE.search(words) else None


def _check_understood(where: Database, problem: Any, tables: Sequence[str]) -> None:
    """Raises WrongUse for a statement that the database has read, and refuses whenever it is repeated.

    Not for a server that is away or busy, nor for a table that somebody else has created first.
    """
    from sqlalchemy.exc import DataError, NotSupportedError, ProgrammingError

    words, state = describe_problem(problem), code(problem)
    if state in _ALREADY_THERE or (where.kind == "sqlite" and "already exists" in words):
        return
    if isinstance(problem, DataError | NotSupportedError | ProgrammingError) or state in _NEVER_READ:
        raise WrongUse(
            f"{where} refuses what it is asked: {words}. Tidemark expects its own tables in {' and '.join(tables)}, as this "
            "version makes them. If another program has made or changed one of them, name another table"
        ) from problem


def code(problem: Any) -> object:
    """The number that MySQL names, the state of SQL that PostgreSQL names, or SQLite's word; None without an answer."""
    number = next(iter(problem.orig.args), None)
    if isinstance(number, int):
        return number
    return getattr(problem.orig, "sqlstate", None) or getattr(problem.orig, "sqlite_errorname", None)


def taken_back(where: Database, problem: Any) -> bool:
    """Whether the server has done nothing of the request, and may soon do it: a lock was in the way, or it takes no writes."""
    return code(problem) in (*LOCKED[where.kind], *_TAKES_NO_WRITES)


def check_server(where: Database, connection: sa.Connection, tables: Sequence[str]) -> None:
    """Check what MySQL may be set up without, and what the ledger relies on. Raises WrongUse."""
    if where.kind != "mysql":
        return
    if (packet := int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())) < _LEAST_PACKET:
        raise WrongUse(
            f"{where} takes statements of {packet} bytes; Tidemark needs {_LEAST_PACKET} or more: raise max_allowed_packet"
        )
    engines = connection.exec_driver_sql(
        "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE()"
    )
    for table, kind in engines.all():
        if table in tables and str(kind).lower() != "innodb":
            raise WrongUse(
                f"{where}: the table {table} is kept by {kind}, which has no transactions: make it of InnoDB"
            )


def make_file(where: Database) -> None:
    """Create SQLite's file, if it is not there. Raises what `disks.refusal` returns."""
    if where.kind == "sqlite":
        try:
            Path(where.host).touch()
        except OSError as problem:
            raise refusal(str(where), "the file cannot be made", problem) from problem


def make_view(where: Database, question_seconds: float, name: str, query: str, helpers: Sequence[str] = ()) -> None:
    """Create a view for people, or replace its query; before that, its `helpers`.

    A stream goes on without a view that its user may not create or change.
    """
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

    # The database keeps a query in words of its own, so its digest stands in it.
    marker = hashlib.sha256("".join((*helpers, query)).encode()).hexdigest()[:16]
    text = f"SELECT * FROM ({query}) AS made WHERE '{marker}' <> ''"  # noqa: S608
    try:
        with engine(where, question_seconds).connect() as connection:
            inspector = sa.inspect(connection)
            there = inspector.has_table(name)
            if there and marker in str(inspector.get_view_definition(name)):
                return
            for helper in helpers:
                connection.exec_driver_sql(helper)
            _put_view(where, connection, name, text, there=there)
    except SQLAlchemyError as problem:
        _LOG.info(
            "the view %s was not made: %s", name, describe_problem(problem) if hasattr(problem, "orig") else problem
        )


def _put_view(where: Database, connection: sa.Connection, name: str, text: str, *, there: bool) -> None:
    from sqlalchemy.exc import DBAPIError

    if where.kind != "sqlite":
        try:
            # Whoever may read it still may.
            connection.exec_driver_sql(f"CREATE OR REPLACE VIEW {name} AS {text}")
        except DBAPIError as problem:
            # PostgreSQL puts no other columns in the place of those that are there.
            if not there or code(problem) != "42P16":
                raise
        else:
            return
    readers = _readers(connection, name) if where.kind == "postgresql" else []
    connection.exec_driver_sql(BEGIN[where.kind])
    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
    connection.exec_driver_sql(f"CREATE VIEW {name} AS {text}")
    for reader in readers:
        connection.exec_driver_sql(f"GRANT SELECT ON {name} TO {reader}")
    connection.exec_driver_sql("COMMIT")


def _readers(connection: sa.Connection, name: str) -> Sequence[str]:
    """Who may read a view of PostgreSQL, as SQL names them."""
    import sqlalchemy as sa

    question = sa.text(
        "SELECT DISTINCT CASE grantee WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(grantee) END "
        "FROM information_schema.role_table_grants WHERE table_name = :name AND table_schema = current_schema() "
        "AND privilege_type = 'SELECT'"
    )
    return [str(column) for column in connection.execute(question, {"name": name}).scalars()]


class NothingPrepared(WrongUse):
    """Raised when the tables are not there yet: they have no values."""


# What the servers answer: texts are states of PostgreSQL, or words of SQLite; numbers are MySQL's.
_NO_ROOM: tuple[object, ...] = ("SQLITE_FULL", "53100", 1021, 1114)
_MISSING: tuple[object, ...] = ("42P01", 1146)
_NO_RIGHTS: tuple[object, ...] = ("42501", 1142, 1143, 1227)
# What a standby says, and a server from which others take over, for as long as that takes.
_TAKES_NO_WRITES: tuple[object, ...] = ("25006", 1290, 1792, 1836)
_NOT_LET_IN: tuple[object, ...] = ("28P01", "28000", 1044, 1045, 1130, 1698, 3118, 3159, 4151, 4166)
# Another has made the same table a moment before.
_ALREADY_THERE: tuple[object, ...] = ("42P07", "42710", 1050)
# What drivers do not tell from trouble on the way: an unknown column, function or table in a statement, too many or too few
# values, a key or a row that is too large; and for SQLite, a statement that is none, and a file of another program.
_NEVER_READ: tuple[object, ...] = (
    *(1054, 1060, 1061, 1071, 1074, 1101, 1109, 1118, 1136, 1305),
    *("SQLITE_ERROR", "SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_MISMATCH", "SQLITE_TOOBIG"),
)
_PACKET = "Raise the server's max_allowed_packet to twice the largest message of the topic, and some more"
# What a pooler says of limits that a connection brings, and what PostgreSQL says of what another client left in one.
_NO_OPTIONS = "unsupported startup parameter"
_POOLER = (
    "A pooler such as PgBouncer stands in between, and Tidemark's limits of time do not get through: name PostgreSQL itself "
    "in the connection"
)
_NO_DATABASE = "Create the database, or correct the schema of the connection"
# What PostgreSQL says of a row: `DETAIL:  Failing row contains (...)`. These lines come last.
_WITH_VALUES = re.compile(r"^(?:LINE \d+|DETAIL|CONTEXT): .*", re.MULTILINE | re.DOTALL)
# What both servers quote in the error itself: `Duplicate entry 'a-1' for key 'PRIMARY'`, `invalid input syntax for type uuid:
# "a"`. A value may have any quotes and ends of lines, so it goes up to the last of the words that follow it.
_QUOTED = re.compile(
    r"(Duplicate entry) .*(?= for key )|(ncorrect [^:'\n]*value:) .*(?= for (?:column|function) )|( near) .*(?= at line \d)"
    r"|(Duplicate entry|ncorrect [^:'\n]*value:|Illegal [^:'\n]*?|invalid input [^:\n]*:|field value out of range:) ['\"\\].*",
    re.DOTALL,
)
_NO_SUCH_DATABASE = re.compile(r'database ".*" does not exist')
_NEVER_TAKEN: dict[object, str] = {
    "3D000": _NO_DATABASE,
    1049: _NO_DATABASE,
    "42P05": _POOLER,
    "26000": _POOLER,
    1153: _PACKET,
    1301: _PACKET,
    1406: "The name is too long for its column",
    1665: "Set its binlog_format to MIXED or ROW",
}
# What PostgreSQL says to whom it does not let in. A server with messages in another language seems unreachable instead.
_REFUSED = (
    "password authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
    "certificate verify failed",
    "server does not support SSL",
)


def _could_be(file: Path) -> bool:
    """Whether the file is not made yet. Its folder is there: this is no other machine."""
    return file.parent.is_dir() and not file.exists()


def describe_problem(problem: Any) -> str:
    """The driver's own words in one line, without the statement and the details, which may hold values of messages."""
    said = _WITH_VALUES.sub("", str(problem.orig))
    return " ".join(_QUOTED.sub(lambda found: f"{found[found.lastindex or 0]} ...", said).split())
