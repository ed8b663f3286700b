"""The HBase ledger store on a real HBase: the contract that everything else is built on."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator

import pytest

from services import control, processes
from services.site import Site
from tests.playground import Make
from tests.proxy import LossyProxy, lossy
from tidemark.connections import HBaseEndpoint
from tidemark.errors import OwnedByAnother, Unreachable, WrongUse
from tidemark.hbase.gateway import Gateway
from tidemark.hbase.tables import check_families, ensure_table
from tidemark.hbase.thrift import ColumnDescriptor
from tidemark.ledger.doubt import NotMine, swap_surely
from tidemark.ledger.hbase import HBaseLedgerStore
from tidemark.ledger.store import InDoubt, sortable

KEY = ("head", "ingest")


@pytest.fixture
def gateway(site: Site) -> Gateway:
    return Gateway(HBaseEndpoint("127.0.0.1", site.port("thrift")))


@pytest.fixture
def store(gateway: Gateway) -> HBaseLedgerStore:
    made = HBaseLedgerStore(gateway, "ledger", f"s_{secrets.token_hex(4)}")
    made.prepare()
    return made


@pytest.mark.covers("O9", "A39")
def test_a_value_is_changed_only_if_it_is_still_the_expected_one(store: HBaseLedgerStore) -> None:
    assert store.read(KEY) is None
    assert not store.swap(KEY, b"something", b"first")
    assert store.swap(KEY, None, b"first")
    assert not store.swap(KEY, None, b"again")
    assert not store.swap(KEY, b"First", b"second")
    assert store.swap(KEY, b"first", b"second")
    assert store.read(KEY) == b"second"


@pytest.mark.covers("E39")
def test_four_threads_increment_one_value(store: HBaseLedgerStore) -> None:
    assert store.swap(KEY, None, b"0")

    def increment() -> None:
        left = 100
        while left:
            before = store.read(KEY)
            assert before is not None
            left -= store.swap(KEY, before, str(int(before) + 1).encode())

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.read(KEY) == b"400"


def test_keys_are_scanned_in_their_order_and_streams_do_not_mix(gateway: Gateway, store: HBaseLedgerStore) -> None:
    other = HBaseLedgerStore(gateway, "ledger", store._stream + "_b")
    for number in (10, 9, 2):
        store.put(("history", "ingest", sortable(number)), str(number).encode())
    store.put(("history", "ingest-2", sortable(1)), b"another lane")
    other.put(("history", "ingest", sortable(5)), b"another stream")
    found = list(store.scan(("history", "ingest")))
    assert [value for _, value in found] == [b"2", b"9", b"10"]
    assert found[0][0] == ("history", "ingest", sortable(2))
    assert len(list(store.scan(("history",)))) == 4
    newest = store.newest(("history", "ingest"), 2)
    assert [value for _, value in newest] == [b"10", b"9"]


def test_a_ledger_that_is_not_there_is_empty_and_not_made_by_reading(gateway: Gateway) -> None:
    nowhere = HBaseLedgerStore(gateway, f"nowhere_{secrets.token_hex(3)}", "s")
    assert nowhere.read(KEY) is None
    assert list(nowhere.scan(("history",))) == []
    assert nowhere.newest(("history",), 5) == []
    tables = gateway.repeated("list tables", lambda client: client.getTableNames())
    assert nowhere._table.encode() not in tables


def test_a_large_value_survives(store: HBaseLedgerStore) -> None:
    value = b"x" * (store.max_value_bytes - 1)
    assert store.swap(KEY, None, value)
    assert store.read(KEY) == value


@pytest.mark.covers("E44")
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
    play = make()
    table = play.opened.result_table("hbase_default", play.name)
    table.prepare("orders", "ledger 1")
    table.prepare("orders", "ledger 1")
    for stream, ledger in (("orders", "ledger 2"), ("other", "ledger 1")):
        with pytest.raises(OwnedByAnother, match="belongs to stream orders with ledger ledger 1"):
            table.prepare(stream, ledger)
    assert table.owner() == {"stream": "orders", "ledger": "ledger 1"}


@pytest.fixture
def proxy(site: Site) -> Iterator[LossyProxy]:
    with lossy(site.port("thrift")) as made:
        yield made


@pytest.mark.covers("F2", "E38", "F15")
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_lost_answer_is_in_doubt_and_then_found_out(
    store: HBaseLedgerStore, proxy: LossyProxy, applied: bool
) -> None:
    behind = HBaseLedgerStore(
        Gateway(HBaseEndpoint("127.0.0.1", proxy.port), timeout_ms=5_000), "ledger", store._stream
    )
    assert behind.swap(KEY, None, b"first")
    proxy.lose_next(b"checkAndPut", applied=applied)
    with pytest.raises(InDoubt):
        behind.swap(KEY, b"first", b"second")
    assert store.read(KEY) == (b"second" if applied else b"first")
    proxy.lose_next(b"checkAndPut", applied=applied)
    before = store.read(KEY)
    swap_surely(behind, KEY, before, b"third", lambda stored: stored == b"third")
    assert store.read(KEY) == b"third"
    proxy.lose_next(b"checkAndPut", applied=applied)
    with pytest.raises(NotMine):
        swap_surely(behind, KEY, b"first", b"fourth", lambda stored: stored == b"fourth")
    assert proxy.lost == 3


@pytest.mark.covers("A54")
def test_what_was_written_half_is_written_again_whole(store: HBaseLedgerStore, proxy: LossyProxy, make: Make) -> None:
    """A batch whose answer was lost is sent again as a whole, with the same timestamp: nothing doubles."""
    from tidemark.ranges import TopicPartition
    from tidemark.results.hbase_rows import Mark, PartitionKeys
    from tidemark.results.hbase_table import ResultTable, cells_of

    play = make()
    direct = play.opened.result_table("hbase_default", play.name)
    direct.prepare("s", "l")
    lossy_table = ResultTable(Gateway(HBaseEndpoint("127.0.0.1", proxy.port), timeout_ms=5_000), play.name)
    keys = PartitionKeys(TopicPartition("a", 0))
    rows = [(keys.key(offset, 0), cells_of(Mark(9, 1, "ingest", 1), [])) for offset in range(50)]
    proxy.lose_next(b"mutateRowsTs", applied=True)
    lossy_table.write(rows, 9)
    assert proxy.lost == 1
    found = list(direct._gateway.scan(play.name, b"", b"\xff"))
    assert len(found) == 50


@pytest.mark.covers("F15")
def test_an_idle_connection_is_not_trusted(store: HBaseLedgerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.hbase.gateway._IDLE_SECONDS", 0.2)
    store.put(KEY, b"first")
    before = store._gateway._connection()
    time.sleep(0.3)
    assert store.read(KEY) == b"first"
    assert store._gateway._connection() is not before


@pytest.mark.covers("F15", "A02")
def test_a_gateway_that_is_away_is_named_in_bounded_time() -> None:
    store = HBaseLedgerStore(Gateway(HBaseEndpoint("127.0.0.1", 1), patience=1.0), "ledger", "s")
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"HBase at 127\.0\.0\.1:1 did not read"):
        store.read(KEY)
    assert time.monotonic() - began < 5


@pytest.mark.covers("F14", "F15")
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
