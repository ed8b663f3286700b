"""Calls to Thrift gateways: a bounded wait, a new connection after any trouble, none kept idle.

A gateway closes connections that were idle for a minute. A connection that timed out in the middle of an answer would
give that answer to the next question. So both are thrown away. Where an Airflow connection names several gateways, one is
chosen, and the next one after any trouble.

`repeated` and `scan` make a call again after trouble. They are for calls that may be made twice: reads, puts of cells
with their own timestamps, deletes up to a timestamp. A `checkAndPut` may not be repeated: the second one is refused
although the first has won. It is made with `once`, and `tidemark.ledger.stores.doubt` finds out whether it was applied.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from thriftpy2.protocol.cybin import ProtocolError  # type: ignore[attr-defined]
from thriftpy2.thrift import TApplicationException, TException
from thriftpy2.transport import TTransportException

from tidemark.clients.hbase.endpoint import HBaseEndpoint, TableMissing
from tidemark.clients.hbase.paging import PageSize
from tidemark.clients.hbase.thrift import AlreadyExists, Connection, HBaseIOError, IllegalArgument
from tidemark.errors import AnotherServer, Unreachable
from tidemark.offsets import time_limit
from tidemark.offsets.counting import number_of

if TYPE_CHECKING:
    from tidemark.clients.hbase.encoding import EncodedRows

T = TypeVar("T")

# A region server under load answers a large batch in seconds. One that takes longer than this is stuck.
TIMEOUT_MS = 30_000
# Well below the gateway's read time-out (hbase.thrift.server.socket.read.timeout, 60 s).
_IDLE_SECONDS = 20.0
# How long reads are retried: a killed region server's regions are served again after 10 to 30 s.
PATIENCE_SECONDS = 60.0

# The errors when the gateway or its HBase is away or slow. All of them leave a write in doubt.
TROUBLE = (HBaseIOError, TTransportException, TException, OSError, EOFError)


# Mistakes in the call, which no retry mends.
MISTAKE = (IllegalArgument, AlreadyExists, TableMissing)


@dataclass(eq=False)
class _Held:
    """A connection, the gateway that it goes to, and when it was last used."""

    connection: Any
    at: int
    used: float


class Gateway:
    """The Thrift 1 gateways of one HBase, as seen by one program. Threads may share it: each call has its own connection."""

    _mistakes: tuple[type[Exception], ...] = MISTAKE
    # Which server answers it, and where a connection names that server.
    _server: ClassVar[str] = "HBase's Thrift server (`hbase thrift start`, port 9090 by default): host and port"

    def __init__(
        self, endpoint: HBaseEndpoint, *, timeout_ms: int = TIMEOUT_MS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self.endpoint = endpoint
        self._timeout_ms = timeout_ms
        self._patience = patience
        self._lock = threading.Lock()
        self._free: list[_Held] = []
        self._closing: threading.Timer | None = None
        # Programs begin with a random gateway, so that all gateways share the work.
        self._at = random.randrange(len(endpoint.gateways))  # noqa: S311

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the addresses travel to Spark's workers.
        return type(self), (self.endpoint,)

    def once(self, call: Callable[[Any], T]) -> T:
        """Make one call with the raw client. Raises what Thrift raises; see TROUBLE and MISTAKE."""
        with self._connection() as connection:
            return call(connection.client)

    def repeated(self, what: str, call: Callable[[Any], T]) -> T:
        """Make a call that may be made twice, and repeat it until an answer comes. Raises Unreachable, naming `what`."""
        return self._repeated(what, lambda connection: call(connection.client))

    def _repeated(self, what: str, call: Callable[[Any], T]) -> T:
        deadline = time.monotonic() + self._patience
        while True:
            time_limit.look()
            try:
                with self._connection() as connection:
                    return call(connection)
            except self._mistakes:
                raise
            except TROUBLE as problem:
                if time.monotonic() > deadline:
                    raise Unreachable(f"HBase at {self.endpoint} did not {what}: {reason(problem)}") from problem
                time.sleep(0.3)

    def put(self, table: str, rows: EncodedRows, timestamp: int) -> None:
        """Put many rows, with one timestamp for all cells. Returns when HBase has acknowledged them. Raises Unreachable."""
        # Arrow takes a third of a second to load, and readers do not need it.
        from tidemark.clients.hbase.encoding import CALL, call_of

        def put(connection: Any) -> None:
            connection.transport.write(call_of(table.encode(), rows, timestamp))
            connection.transport.flush()
            # Thrift's library reads the answer, and raises what it says.
            connection.client._recv(CALL)

        self._repeated(f"write {number_of(rows.number, 'row')} to {table}", put)

    def scan(
        self, table: str, start: bytes, stop: bytes | None, pages: PageSize | None = None, **options: Any
    ) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        """Rows of [start, stop), ascending, read in pages of about `paging.PAGE_BYTES`.

        `pages` is for many scans of rows of one kind: each begins with pages as large as the last one's. `options`: those
        of happybase's scan. Raises Unreachable, and TableMissing.
        """
        size = pages or PageSize()
        size.begin()

        # Each page has its own scanner: one held while the caller works on a page would lose its lease.
        def next_page(connection: Any) -> tuple[list[tuple[bytes, dict[bytes, Any]]], bool]:
            rows, there = size.rows, connection.table(table)
            try:
                page = list(there.scan(row_start=start, row_stop=stop, limit=rows, batch_size=rows, **options))
            except TROUBLE:
                size.failed()
                raise
            return page, len(page) < rows

        while True:
            batch, last = self._repeated(f"scan {table}", next_page)
            if batch:
                size.read(map(_weight, batch))
            # The caller may work on another scan with these pages, behind any row.
            yield from batch
            if last:
                return
            start = batch[-1][0] + b"\x00"

    def last_rows(
        self, table: str, start: bytes, stop: bytes, limit: int, **options: Any
    ) -> list[tuple[bytes, dict[bytes, Any]]]:
        """The last `limit` rows of [start, stop), descending. `stop` is a key that no row has."""

        def read(connection: Any) -> list[tuple[bytes, dict[bytes, Any]]]:
            # A reversed scan begins at `row_start`, inclusive.
            rows = connection.table(table)
            return list(rows.scan(row_start=stop, row_stop=start, reverse=True, limit=limit, **options))

        return self._repeated(f"scan {table}", read)

    def first_row(self, table: str, start: bytes) -> bytes | None:
        """The key of the first row at or after `start`, without its values. Raises Unreachable, and TableMissing."""

        def read(connection: Any) -> bytes | None:
            rows = connection.table(table).scan(row_start=start, limit=1, batch_size=1, filter=b"KeyOnlyFilter()")
            return next((row for row, _ in rows), None)

        return self._repeated(f"scan {table}", read)

    def close(self) -> None:
        """Close the open connections that are not in use."""
        with self._lock:
            free, self._free = self._free, []
        for held in free:
            held.connection.close()

    @staticmethod
    def _dial(host: str, port: int, timeout_ms: int) -> Any:
        """A connection with a `client`."""
        return Connection(host, port, timeout=timeout_ms)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """A connection for the caller alone; after any trouble it is thrown away."""
        held = self._take()
        try:
            yield held.connection
        except self._mistakes:
            self._give_back(held)
            raise
        except BaseException as problem:
            held.connection.close()
            if isinstance(problem, TROUBLE):
                self._turn_from(held.at)
            _raise_if_missing(problem)
            if _is_another_server(problem):
                host, port = self.endpoint.gateways[held.at]
                raise AnotherServer(
                    f"what answers at {host}:{port} is another server ({reason(problem)}). Expected is {self._server} of the "
                    "connection, without TLS, SASL or framed transport"
                ) from problem
            raise
        else:
            self._give_back(held)

    def _take(self) -> _Held:
        with self._lock:
            now = time.monotonic()
            # The gateway may have closed an older connection already.
            fresh = next((held for held in reversed(self._free) if now - held.used <= _IDLE_SECONDS), None)
            if fresh is not None:
                self._free.remove(fresh)
                return fresh
            at = self._at
        try:
            return _Held(self._dial(*self.endpoint.gateways[at], self._timeout_ms), at, 0)
        except TROUBLE:
            self._turn_from(at)
            raise

    def _give_back(self, held: _Held) -> None:
        held.used = time.monotonic()
        with self._lock:
            self._free.append(held)
            self._close_later()

    def _turn_from(self, at: int) -> None:
        """Go on with the next gateway: the one at `at` has just failed."""
        with self._lock:
            gone = [held for held in self._free if held.at == at]
            self._free = [held for held in self._free if held.at != at]
            if self._at == at:
                self._at = (at + 1) % len(self.endpoint.gateways)
        for held in gone:
            held.connection.close()

    def _close_later(self) -> None:
        if self._closing is None:
            self._closing = threading.Timer(_IDLE_SECONDS, self._close_idle)
            self._closing.daemon = True
            self._closing.start()

    def _close_idle(self) -> None:
        with self._lock:
            until = time.monotonic() - _IDLE_SECONDS
            idle = [held for held in self._free if held.used <= until]
            self._free = [held for held in self._free if held.used > until]
            self._closing = None
            if self._free:
                self._close_later()
        for held in idle:
            held.connection.close()


def _is_another_server(problem: BaseException) -> bool:
    """Whether an answer was not of the protocol that we speak, or of another service that speaks it."""
    if isinstance(problem, TApplicationException):
        return bool(problem.type == TApplicationException.UNKNOWN_METHOD)
    return isinstance(problem, ProtocolError)


def _raise_if_missing(problem: BaseException) -> None:
    if isinstance(problem, TException) and "TableNotFoundException" in str(getattr(problem, "message", "")):
        raise TableMissing(reason(problem)) from problem


def reason(problem: BaseException) -> str:
    """The first line of an error: HBase sends whole Java stack traces."""
    text = getattr(problem, "message", None) or str(problem) or type(problem).__name__
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return str(text).strip().splitlines()[0]


def _weight(row: tuple[bytes, dict[bytes, Any]]) -> int:
    # With its timestamp, a value comes as a pair.
    return sum(len(value[0] if type(value) is tuple else value) for value in row[1].values())
