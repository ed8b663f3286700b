"""The differences between PostgreSQL, MySQL and SQLite, side by side: types, statements and words.

MySQL stands for MariaDB too. Everything else is SQL that all of them understand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlalchemy as sa

# Without IMMEDIATE, two transactions of SQLite could both read first, and one could never write.
BEGIN = {"postgresql": "BEGIN", "mysql": "BEGIN", "sqlite": "BEGIN IMMEDIATE"}
# Milliseconds since 1970. SQLite has none: all of it is one machine.
CLOCK = {
    "postgresql": "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "SELECT FLOOR(UNIX_TIMESTAMP(SYSDATE(3)) * 1000)",
}
# Another program's lock stood in the way, and the server has taken all of the request back: it may be sent again.
LOCKED: dict[str, tuple[object, ...]] = {
    "postgresql": ("40001", "40P01", "55P03"),
    # Lock wait timeout, and deadlock.
    "mysql": (1205, 1213),
    "sqlite": (),
}


def now(kind: str) -> Any:
    """The server's time, for a column of `moment`. In MySQL and SQLite it has no zone, and is UTC."""
    import sqlalchemy as sa

    return sa.func.utc_timestamp(sa.text("6")) if kind == "mysql" else sa.func.now()


def upsert(kind: str, table: sa.Table, others: Sequence[str]) -> Any:
    """An INSERT that changes the columns `others` where the row is there already."""
    from sqlalchemy.dialects import mysql, postgresql, sqlite

    if kind == "mysql":
        into = mysql.insert(table)
        return into.on_duplicate_key_update({name: into.inserted[name] for name in others})
    new = postgresql.insert(table) if kind == "postgresql" else sqlite.insert(table)
    key = list(table.primary_key.columns)
    return new.on_conflict_do_update(index_elements=key, set_={name: new.excluded[name] for name in others})


def quoted(kind: str, name: str) -> str:
    """A name that may be a word of SQL, as `partition` in MySQL. Behind a point, it needs no quotes."""
    return f"`{name}`" if kind == "mysql" else name


def shown(kind: str, column: str) -> str:
    """Bytes of a column as text for people, whatever they are."""
    match kind:
        case "postgresql":
            # No text of PostgreSQL holds a zero byte, nor what is no UTF-8: such bytes, and all that is not ASCII, are octal.
            return f"encode({column}, 'escape')"
        case "mysql":
            return f"CONVERT({column} USING utf8mb4)"
    return f"CAST({column} AS TEXT)"


# The types of columns. A key of InnoDB has 3,072 bytes at most, and its columns have to be bounded.


@cache
def word(most_bytes: int) -> Any:
    """Bytes in a key."""
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

    return sa.LargeBinary().with_variant(mysql.VARBINARY(most_bytes), "mysql")


@cache
def name() -> Any:
    """Text in a key: the name of a stream or of a topic, compared byte by byte."""
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

    return sa.Text().with_variant(mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql")


@cache
def text() -> Any:
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql")


@cache
def large() -> Any:
    """Bytes, as many as the server takes: BLOB would cut what is longer than 64 KiB."""
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql")


@cache
def moment() -> Any:
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

    return sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")


# Another engine has no transactions, and another format of rows has keys of 767 bytes.
TABLE: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_row_format": "DYNAMIC", "mysql_default_charset": "utf8mb4"}
