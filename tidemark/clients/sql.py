"""Databases that SQLAlchemy speaks with: where an Airflow connection leads, and one connection for each question."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from tidemark.clients.connections import Connection
from tidemark.errors import SQL_PACKAGES, AuthenticationFailed, NotAuthorized, PackageMissing, Unreachable, WrongUse

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")

_PAUSE_SECONDS = 0.3
# What a user needs for tables of ours, unless it is said otherwise.
_RIGHTS = "select, insert and update"
# libpq's own words: which of its modes of TLS check the server's certificate.
_CHECKED = ("verify-ca", "verify-full")
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")


@dataclass(frozen=True)
class Database:
    """One database. `kind` is `postgresql` or `sqlite`. Its password is never shown."""

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
        return f"the database {self.name} of PostgreSQL at {self.host}:{self.port}"


def database(connection: Connection) -> Database:
    """The database of an Airflow connection of the type `postgres` or `sqlite`. Raises WrongUse."""
    match connection.kind:
        case "sqlite":
            connection.only("SQLite", "host")
            path = connection.required("host, which is the path of SQLite's file", connection.host)
            if not Path(path).is_absolute():
                raise WrongUse(
                    f"connection {connection.name}: {path} is no absolute path: each program would mean another file"
                )
            return Database("sqlite", path)
        case "postgres" | "postgresql":
            return _postgresql(connection)
    raise WrongUse(
        f"connection {connection.name} has the type {connection.kind or 'generic'}; a database has the type postgres or "
        'sqlite, as in {"conn_type": "postgres", "host": ..., "schema": ..., "login": ..., "password": ...}'
    )


def _postgresql(connection: Connection) -> Database:
    connection.only("PostgreSQL", "host", "port", "schema", "login", "password", extras=("allow_insecure", *_TLS))
    host = connection.required("host", connection.host)
    given = {name: text for name in _TLS if (text := connection.text(name)) is not None}
    if given.get("sslmode") not in _CHECKED:
        connection.allow_in_the_clear(
            [host],
            "its line to PostgreSQL is not encrypted, or nobody checks who answers, and others could read and change it",
            'say "sslmode": "verify-full" and name the authority as "sslrootcert"',
            secret=connection.password is not None,
        )
    for name in _TLS[1:]:
        if name in given and given[name] != "system" and not Path(given[name]).is_file():
            raise WrongUse(f"connection {connection.name}: there is no file {given[name]}, the {name} among its extras")
    return Database(
        "postgresql",
        host,
        connection.port or 5432,
        connection.required("schema, which is the name of the database", connection.schema),
        connection.required("login", connection.login),
        connection.password,
        tuple(sorted(given.items())),
    )


@lru_cache(maxsize=64)
def engine(where: Database, question_seconds: float) -> sa.Engine:
    """What opens connections to a database; each ends with its question. One question takes `question_seconds` at most.

    Raises PackageMissing.
    """
    try:
        import sqlalchemy as sa

        if where.kind == "postgresql":
            import psycopg  # noqa: F401
    except ImportError as problem:
        raise PackageMissing(
            f"SQL needs the package {problem.name}: pip install {' '.join(map(repr, SQL_PACKAGES))}"
        ) from None
    # A connection that is kept would have to be given back by each thread and each fork.
    given: dict[str, Any] = {"poolclass": sa.NullPool, "isolation_level": "AUTOCOMMIT", "hide_parameters": True}
    if where.kind == "sqlite":
        return sa.create_engine("sqlite://", creator=lambda: _file(where.host, question_seconds), **given)
    url = sa.URL.create(
        "postgresql+psycopg", where.login, where.password, where.host, where.port, where.name, dict(where.tls)
    )
    return sa.create_engine(url, connect_args=_limits(question_seconds), **given)


def _limits(question_seconds: float) -> Mapping[str, Any]:
    """A server that is stuck is like one that is away; a client that is, holds up nobody: libpq's and PostgreSQL's settings."""
    milliseconds = round(question_seconds * 1000)
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    options = " ".join(f"-c {name}={milliseconds}" for name in names)
    seconds = max(2, round(question_seconds))
    return {
        "connect_timeout": seconds,
        "tcp_user_timeout": milliseconds,
        "options": options,
        "application_name": "tidemark",
    }


def _file(path: str, patience_seconds: float) -> sqlite3.Connection:
    """SQLite's file, which has to be there: a path that leads nowhere on this machine is no empty database."""
    found = sqlite3.connect(
        f"file:{quote(path)}?mode=rw", patience_seconds, isolation_level=None, uri=True, check_same_thread=False
    )
    # What was answered for outlives a power cut.
    found.execute("PRAGMA synchronous = EXTRA")
    return found


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
                raise Unreachable(f"{where} did not answer: {said(problem)}") from problem
            time.sleep(_PAUSE_SECONDS)


def check(where: Database, problem: Any, tables: Sequence[str], rights: str = _RIGHTS) -> None:
    """Raises what a repetition does not mend. The server has refused the request: nothing was changed."""
    words, first = said(problem), tables[0]
    if where.kind == "sqlite":
        if "no such table" in words or ("unable to open" in words and _could_be(Path(where.host))):
            raise NothingPrepared(f"{where} has no table {first} yet")
        if "readonly" in words:
            raise NotAuthorized(f"{where}: this user may not write it: {words}") from problem
        return
    match getattr(problem.orig, "sqlstate", None):
        case "42P01":
            raise NothingPrepared(f"{where} has no table {first} yet")
        case "42501" | "25006":
            raise NotAuthorized(
                f"{where}: {words}. The user needs the right to create tables once, and then to {rights} "
                f"{' and '.join(tables)}"
            ) from problem
        case "28P01" | "28000" | "3D000":
            raise AuthenticationFailed(f"{where}: {words}") from problem
    # While it connects, the driver knows no state.
    if any(one in words for one in _REFUSED):
        raise AuthenticationFailed(f"{where}: {words}") from problem


def make_file(where: Database) -> None:
    """Create SQLite's file, if it is not there. Raises WrongUse."""
    if where.kind == "sqlite":
        try:
            Path(where.host).touch()
        except OSError as problem:
            raise WrongUse(f"{where}: the file cannot be made: {problem.strerror}") from problem


class NothingPrepared(WrongUse):
    """Raised when the tables are not there yet: they have no values."""


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


def said(problem: Any) -> str:
    """The driver's own words in one line, without the statement, which may hold values."""
    return " ".join(str(problem.orig).split())
