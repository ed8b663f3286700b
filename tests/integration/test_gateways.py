"""Thrift gateways and region servers that die or hang while they are needed."""

from __future__ import annotations

import random
import secrets
import signal
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services import control, processes
from services.site import Site
from tests.support.live_streams import LiveStream
from tidemark.clients.hbase.encoding import EncodedRows
from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.hbase.paging import PageSize
from tidemark.clients.hbase.tables import ensure_table
from tidemark.clients.hbase.thrift import Mutation
from tidemark.clients.hbase.thrift2 import Gateway2, thrift
from tidemark.errors import AnotherServer, Unreachable
from tidemark.sinks.hbase.table import ResultTable
from tidemark.types.renamed_fields import Names


class KillingTable(ResultTable):
    """Kills a server in the middle of the first piece that any of Spark's workers writes."""

    def __init__(self, site: Site, server: str, folder: Path, gateway: Gateway, table: str, was: Names) -> None:
        super().__init__(gateway, table, was)
        self._site = site
        self._server = server
        self._folder = folder

    def write(self, rows: EncodedRows, generation: int) -> None:
        super().write(rows, generation)
        try:
            (self._folder / "chosen").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            processes.kill(self._site, self._server)
            (self._folder / "killed").touch()
        # A part of them again, as where the answer to the first was lost.
        super().write(rows, generation)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "server",
    [
        pytest.param("thrift", marks=pytest.mark.covers("F15")),
        pytest.param("hbase-region", marks=pytest.mark.covers("F14")),
    ],
)
def test_a_server_dies_in_the_middle_of_a_write(
    live: LiveStream, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.produce(240)
    monkeypatch.setattr("tidemark.sinks.hbase.table.ResultTable", partial(KillingTable, live.site, server, tmp_path))
    over = threading.Event()

    def restart() -> None:
        while not (tmp_path / "killed").exists():
            if over.wait(0.1):
                return
        control.start(live.site, server)

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        (record,) = live.ingest()
    finally:
        over.set()
        thread.join()
    assert (tmp_path / "killed").exists()
    assert (record.seq, live.head().seq) == (1, 1)
    # One attempt: the writes waited for the server, and nothing was begun again.
    assert [one["attempt"]["token"] for one in live.independent.records()] == [record.attempt.token]
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("F15")
def test_a_region_server_that_hangs_costs_a_bounded_time(site: Site) -> None:
    gateway = Gateway(HBaseEndpoint("127.0.0.1", site.port("thrift")), timeout_ms=1_000, patience=0)

    def read(client: Any) -> Any:
        return client.getRow(b"hbase:meta", b"none", {})

    assert gateway.repeated("read", read) == []
    hung = processes.running(site, "hbase-region")
    processes.send(hung, signal.SIGSTOP)
    try:
        with pytest.raises(Unreachable, match="did not read") as caught:
            gateway.repeated("read", read)
    finally:
        processes.send(hung, signal.SIGCONT)
    # The client has given up, and not HBase, which takes a minute.
    assert isinstance(caught.value.__cause__, TimeoutError)
    # Its late answer belongs to a connection that is gone: the next question gets its own.
    patient = Gateway(gateway.endpoint)
    assert patient.repeated("read", read) == []


@pytest.mark.full
def test_rows_are_read_in_pages_of_a_few_megabytes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"weights_{secrets.token_hex(3)}"
    gateway = Gateway(HBaseEndpoint("127.0.0.1", site.port("thrift")))
    ensure_table(gateway, table, {"d": {}})
    large = [(b"a%04d" % number, random.Random(number).randbytes(1 << 20)) for number in range(20)]
    small = [(b"b%04d" % number, b"small") for number in range(700)]
    for key, value in (*large, *small):
        put = Mutation(isDelete=False, column=b"d:x", value=value, writeToWAL=True)
        gateway.repeated("put", lambda client, key=key, put=put: client.mutateRow(table.encode(), key, [put], {}))
    pages: list[int] = []
    read = PageSize.read

    def noted(self: PageSize, weights: Iterable[int]) -> None:
        each = list(weights)
        pages.append(len(each))
        read(self, each)

    monkeypatch.setattr(PageSize, "read", noted)

    def scan(start: bytes, size: PageSize | None = None) -> Iterator[tuple[bytes, bytes]]:
        return ((key, cells[b"d:x"]) for key, cells in gateway.scan(table, start, b"c", size))

    assert list(scan(b"a")) == [*large, *small]
    assert pages == [8, 4, 4, 4, 4, 32, 256, 408]

    # A scan goes on with the size of the one before, in its first page not with all of it: its rows may be larger.
    pages.clear()
    size = PageSize()
    assert [list(scan(start, size)) for start in (b"b", b"b0100", b"a")] == [small, small[100:], [*large, *small]]
    assert pages == [8, 64, 512, 116, 512, 88, 512, 102, 106]
    # Two at the same time, of which one asks for fewer rows than the other.
    some = [*large, *small][: len(small)]
    assert list(zip(scan(b"b", size), scan(b"a", size), strict=False)) == list(zip(small, some, strict=True))
    assert list(zip(scan(b"a", size), scan(b"b", size), strict=False)) == list(zip(some, small, strict=True))


def test_the_two_thrift_servers_are_not_taken_for_each_other(site: Site) -> None:
    """Their ports are mixed up easily, and each knows none of the other's methods."""
    control.up(site, ["thrift2"])
    first = Gateway(HBaseEndpoint("127.0.0.1", site.port("thrift2")))
    with pytest.raises(AnotherServer, match=r"Expected is HBase's Thrift server \(`hbase thrift start`"):
        first.repeated("list its tables", lambda client: client.getTableNames())
    second = Gateway2(HBaseEndpoint("127.0.0.1", site.port("thrift")))
    with pytest.raises(AnotherServer, match=r"Expected is HBase's second Thrift server \(`hbase thrift2 start`\)"):
        second.repeated("look", lambda client: client.exists(b"table", thrift.TGet(row=b"row")))
