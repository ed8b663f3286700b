"""Connections to MySQL or MariaDB, which rely on no setting of the server that somebody could have changed."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, ER


class BoundedConnection(Connection):  # type: ignore[misc]
    """A connection that sends no statement larger than the server takes.

    The server hangs up in the middle of one, and its word on why is lost. To repeat it would be for nothing.
    """

    most_bytes = 1 << 20

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        if isinstance(sql, str):
            sql = sql.encode(self.encoding, "surrogateescape")
        # One byte says what the rest is.
        if len(sql) >= self.most_bytes:
            raise pymysql.err.DataError(
                ER.NET_PACKET_TOO_LARGE,
                f"a statement of {len(sql)} bytes, and max_allowed_packet is {self.most_bytes}",
            )
        return int(super().query(sql, unbuffered))


def connect(
    host: str,
    port: int,
    name: str,
    login: str,
    password: str,
    tls: Mapping[str, str],
    question_seconds: float,
) -> BoundedConnection:
    """Open a connection. One question takes `question_seconds` at most. Raises pymysql's errors."""
    seconds = max(1, round(question_seconds))
    connection = BoundedConnection(
        host=host,
        port=port,
        user=login,
        # As MySQL's own clients send it: the driver would take Latin-1 for text.
        password=password.encode(),
        database=name,
        charset="utf8mb4",
        # What is too long for its column is refused, and never cut.
        sql_mode="STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
        # An UPDATE counts the rows that it found: without this, one that leaves a value as it is would count none.
        client_flag=CLIENT.FOUND_ROWS,
        autocommit=True,
        connect_timeout=seconds,
        read_timeout=seconds,
        write_timeout=seconds,
        program_name="tidemark",
        **_tls(tls),
    )
    try:
        with connection.cursor() as cursor:
            # A read sees what was committed last, and nothing else.
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            # Who waits for a lock hears of it before it would hang up. A client that is away holds no lock for hours.
            cursor.execute(
                "SET SESSION time_zone = '+00:00', wait_timeout = %s, innodb_lock_wait_timeout = %s, lock_wait_timeout = %s",
                (2 * seconds, max(1, seconds // 2), max(1, seconds // 2)),
            )
            cursor.execute("SELECT @@max_allowed_packet")
            (connection.most_bytes,) = cursor.fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _tls(given: Mapping[str, str]) -> dict[str, Any]:
    mode = given.get("ssl_mode", "DISABLED")
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    context = ssl.create_default_context(cafile=given.get("ssl_ca"))
    context.check_hostname = mode == "VERIFY_IDENTITY"
    if mode == "REQUIRED":
        context.verify_mode = ssl.CERT_NONE
    if "ssl_cert" in given:
        context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"))
    return {"ssl": context}
