"""What is HBase's own in the ledger and the results, on a real HBase; the stores' contract: test_ledger_stores.py."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Iterator
from typing import Any

import happybase
import pytest

from services import control, processes
from services.site import Site
from tests.support.live_streams import Make
from tests.support.proxy import LossyProxy, lossy
from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.hbase.tables import check_families, ensure_table
from tidemark.clients.hbase.thrift import ColumnDescriptor
from tidemark.errors import LedgerContradiction, OwnedByAnother, Unreachable, WrongUse
from tidemark.ledger.stores.contract import sortable
from tidemark.ledger.stores.doubt import swap_surely
from tidemark.ledger.stores.hbase import HBaseLedgerStore
from tidemark.sinks.hbase.table import stream_table

KEY = ("head", "ingest")


@pytest.fixture
def gateway(site: Site) -> Gateway:
    return Gateway(HBaseEndpoint("127.0.0.1", site.port("thrift")))


@pytest.fixture
def store(gateway: Gateway) -> HBaseLedgerStore:
    made = HBaseLedgerStore(gateway, "ledger", f"s_{secrets.token_hex(4)}")
    made.prepare()
    return made


def test_a_ledger_that_is_not_there_is_empty_and_not_made_by_reading(gateway: Gateway) -> None:
    nowhere = HBaseLedgerStore(gateway, f"nowhere_{secrets.token_hex(3)}", "s")
    assert nowhere.read(KEY) is None
    assert list(nowhere.scan(("history",))) == []
    assert nowhere.newest(("history",), 5) == []
    tables = gateway.repeated("list tables", lambda client: client.getTableNames())
    assert nowhere._table.encode() not in tables


@pytest.mark.covers("O1", "E44")
def test_a_table_that_would_forget_values_is_refused(gateway: Gateway) -> None:
    table = f"forgetful_{secrets.token_hex(3)}"
    column = ColumnDescriptor(name=b"l:", timeToLive=3600)
    gateway.once(lambda client: client.createTable(table.encode(), [column]))
    with pytest.raises(WrongUse, match="timeToLive is 3600, expected 2147483647"):
        HBaseLedgerStore(gateway, table, "s").prepare()


def test_a_results_table_must_keep_all_versions(gateway: Gateway) -> None:
    table = f"few_{secrets.token_hex(3)}"
    ensure_table(gateway, table, {"d": {"maxVersions": 3}})
    with pytest.raises(WrongUse, match="maxVersions is 3, expected 2147483647"):
        check_families(gateway, table, {"d": {"maxVersions": 2**31 - 1}})
    with pytest.raises(WrongUse, match="has no column family 't'"):
        check_families(gateway, table, {"t": {}})


@pytest.mark.covers("E44")
def test_a_table_belongs_to_one_stream_and_one_ledger(make: Make) -> None:
    live = make()
    table = stream_table(live.opened, "hbase_default", live.name)
    table.prepare("orders", "ledger 1")
    table.prepare("orders", "ledger 1")
    with pytest.raises(OwnedByAnother, match="belongs to stream orders; this is stream other"):
        table.prepare("other", "ledger 1")
    with pytest.raises(LedgerContradiction, match="with ledger ledger 1, its ledger now is ledger 2"):
        table.prepare("orders", "ledger 2")
    assert table.owner() == {"stream": "orders", "ledger": "ledger 1"}


@pytest.mark.covers("N60")
def test_a_table_of_offsets_that_was_dropped_is_made_again(gateway: Gateway) -> None:
    """Offsets are shown after the commit, and no run goes on before that."""
    name = f"shown_{secrets.token_hex(3)}"
    # Writing to a table that is not there is tried again until the patience ends.
    hasty = Gateway(gateway.endpoint, patience=1)
    store = HBaseLedgerStore(hasty, f"ledger_{secrets.token_hex(3)}", "s", offsets_table=name)
    store.prepare()

    def drop(client: Any) -> None:
        client.disableTable(name.encode())
        client.deleteTable(name.encode())

    gateway.repeated("drop", drop)
    store.publish(1_000, {"orders": {0: 7}})
    (row,) = gateway.scan(name, b"", None)
    assert row[1] == {b"offsets:0": b"7"}


@pytest.fixture
def proxy(site: Site) -> Iterator[LossyProxy]:
    with lossy(site.port("thrift")) as made:
        yield made


@pytest.mark.covers("A54")
def test_what_was_written_half_is_written_again_whole(store: HBaseLedgerStore, proxy: LossyProxy, make: Make) -> None:
    """A batch whose answer was lost is sent again as a whole, with the same timestamp: nothing doubles."""
    from tidemark.offsets.ranges import TopicPartition
    from tidemark.sinks.hbase.rows import MARK, PartitionKeys
    from tidemark.sinks.hbase.table import Put, ResultTable
    from tidemark.sinks.stored_rows import Mark

    live = make()
    direct = stream_table(live.opened, "hbase_default", live.name)
    direct.prepare("s", "l")
    lossy_table = ResultTable(Gateway(HBaseEndpoint("127.0.0.1", proxy.port), timeout_ms=5_000), live.name)
    keys = PartitionKeys(TopicPartition("a", 0))
    rows = [(keys.key(offset, 0), MARK, Mark(9, 1, "ingest", 1).encode()) for offset in range(50)]
    proxy.lose_next(b"mutateRowsTs", applied=True)
    lossy_table.write_cells(rows, 9)
    assert proxy.lost == 1
    found = list(direct._gateway.scan(live.name, b"", b"\xff"))
    assert len(found) == 50

    def broken() -> Iterator[Put]:
        yield from rows
        raise RuntimeError("in the middle of the block")

    # Nothing of a block that an exception leaves is sent ...
    with pytest.raises(RuntimeError, match="in the middle"):
        direct.write_cells(broken(), 10)
    assert list(direct._gateway.scan(live.name, b"", b"\xff")) == found
    stamped = direct._gateway.scan(live.name, b"", b"\xff", include_timestamp=True)
    assert {stamp for _, cells in stamped for _, stamp in cells.values()} == {9}
    # ... while happybase's own batch sends what it holds.
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    table = connection.table(live.name)

    def broken_with_happybase() -> None:
        with table.batch() as batch:
            batch.put(b"a row", {b"d:field": b"sent all the same"})
            raise RuntimeError("in the middle of the block")

    with pytest.raises(RuntimeError, match="in the middle"):
        broken_with_happybase()
    assert table.row(b"a row") == {b"d:field": b"sent all the same"}
    connection.close()


@pytest.mark.covers("F15")
def test_no_connection_is_kept_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that notices how long its client keeps the connection: until it was idle for as long as it may be."""
    monkeypatch.setattr("tidemark.clients.hbase.gateway._IDLE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gateway = Gateway(HBaseEndpoint("127.0.0.1", listener.getsockname()[1]))
        assert gateway.once(lambda client: "done") == "done"
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(30)
            # Closed by the other side, without another call.
            assert peer.recv(1) == b""


@pytest.mark.covers("F15")
def test_the_next_gateway_is_asked_after_a_failure(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()[1]
    both = HBaseEndpoint("127.0.0.1", dead, (("127.0.0.1", site.port("thrift")),))
    for _ in range(8):
        # Whichever it begins with.
        assert isinstance(Gateway(both).repeated("list", lambda client: client.getTableNames()), list)
    with pytest.raises(Unreachable, match=f"HBase at 127.0.0.1:{dead} did not list"):
        Gateway(HBaseEndpoint("127.0.0.1", dead), patience=0).repeated("list", lambda client: client.getTableNames())


@pytest.mark.full
def test_gateway_and_region_server_die_and_come_back(site: Site, store: HBaseLedgerStore) -> None:
    for number in range(200):
        store.put(("history", "ingest", sortable(number)), json.dumps(number).encode())
    for server in ("thrift", "hbase-region"):
        processes.kill(site, server)
        restart = threading.Thread(target=control.start, args=(site, server))
        restart.start()
        # Reads wait for it; what was acknowledged is there.
        assert len(list(store.scan(("history", "ingest")))) == 200
        restart.join(120)
        swap_surely(store, ("head", server), None, b"after", lambda stored: stored == b"after")
