"""Calls to a Thrift gateway: a bounded wait, a new connection after any trouble, none kept idle.

A gateway closes connections that were idle for a minute, and one that timed out in the middle of an answer would give
that answer to the next question; so a connection is thrown away after both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from thriftpy2.thrift import TException
from thriftpy2.transport import TTransportException

from tidemark.connections import HBaseEndpoint
from tidemark.errors import Unreachable
from tidemark.hbase.thrift import AlreadyExists, Connection, HBaseIOError, IllegalArgument

T = TypeVar("T")

# A region server under load answers a large batch in seconds; one that does not answer in this time is stuck.
TIMEOUT_MS = 30_000
# Well below the gateway's read time-out (hbase.thrift.server.socket.read.timeout, 60 s).
_IDLE_SECONDS = 20.0
# How long reads go on trying: a killed region server's regions are served again after 10 to 30 s.
PATIENCE_SECONDS = 60.0

# What happens when the gateway or HBase behind it is away or slow. All of them leave a write in doubt.
TROUBLE = (HBaseIOError, TTransportException, TException, OSError, EOFError)


class TableMissing(Exception):
    """Raised when HBase has no table of this name."""


# A mistake in the call, which no repetition mends.
MISTAKE = (IllegalArgument, AlreadyExists, TableMissing)


class Gateway:
    """One Thrift gateway, as seen by one program. Threads have connections of their own."""

    def __init__(
        self, endpoint: HBaseEndpoint, *, timeout_ms: int = TIMEOUT_MS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self.endpoint = endpoint
        self._timeout_ms = timeout_ms
        self._patience = patience
        self._mine = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        # To Spark's workers only the address travels.
        return Gateway, (self.endpoint,)

    def once(self, call: Callable[[Any], T]) -> T:
        """Make one call with happybase's raw client. Raises what Thrift raises; see TROUBLE and MISTAKE."""
        connection = self._connection()
        try:
            answer = call(connection.client)
        except MISTAKE:
            raise
        except BaseException as problem:
            self._drop()
            _raise_if_missing(problem)
            raise
        self._mine.used = time.monotonic()
        return answer

    def repeated(self, what: str, call: Callable[[Any], T]) -> T:
        """Make a call that may be made twice until it is answered. Raises Unreachable, naming `what`."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self.once(call)
            except MISTAKE:
                raise
            except TROUBLE as problem:
                if time.monotonic() > deadline:
                    raise Unreachable(f"HBase at {self.endpoint} did not {what}: {reason(problem)}") from problem
                time.sleep(0.3)

    def scan(
        self, table: str, start: bytes, stop: bytes | None, **options: Any
    ) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        """Rows from `start` up to but not `stop`, ascending; goes on behind the last row when the scanner is lost."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                rows = self._connection().table(table).scan(row_start=start, row_stop=stop, **options)
                for row, cells in rows:
                    self._mine.used = time.monotonic()
                    yield row, cells
                    start = row + b"\x00"
                    deadline = time.monotonic() + self._patience
            except MISTAKE:
                raise
            except TROUBLE as problem:
                self._drop()
                _raise_if_missing(problem)
                if time.monotonic() > deadline:
                    raise Unreachable(f"HBase at {self.endpoint} did not scan {table}: {reason(problem)}") from problem
                time.sleep(0.3)
            else:
                return

    def last_rows(
        self, table: str, start: bytes, stop: bytes, limit: int, **options: Any
    ) -> list[tuple[bytes, dict[bytes, Any]]]:
        """The last `limit` rows of [start, stop), descending. `stop` is a key that no row has."""

        def read(_: Any) -> list[tuple[bytes, dict[bytes, Any]]]:
            # Backwards, HBase begins at `row_start` and takes it in.
            rows = self._connection().table(table)
            return list(rows.scan(row_start=stop, row_stop=start, reverse=True, limit=limit, **options))

        return self.repeated(f"scan {table}", read)

    def close(self) -> None:
        """Close this thread's connection."""
        self._drop()

    def _connection(self) -> Connection:
        connection = getattr(self._mine, "connection", None)
        if connection is not None and time.monotonic() - self._mine.used > _IDLE_SECONDS:
            self._drop()
            connection = None
        if connection is None:
            connection = Connection(self.endpoint.host, self.endpoint.port, timeout=self._timeout_ms)
            self._mine.connection = connection
            self._mine.used = time.monotonic()
        return connection

    def _drop(self) -> None:
        connection = getattr(self._mine, "connection", None)
        if connection is not None:
            self._mine.connection = None
            connection.close()


def _raise_if_missing(problem: BaseException) -> None:
    if isinstance(problem, HBaseIOError) and "TableNotFoundException" in str(problem.message):
        raise TableMissing(reason(problem)) from problem


def reason(problem: BaseException) -> str:
    """The first line of what went wrong: HBase sends whole Java stack traces."""
    text = getattr(problem, "message", None) or str(problem) or type(problem).__name__
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return str(text).strip().splitlines()[0]
