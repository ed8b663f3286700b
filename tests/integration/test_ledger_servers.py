"""What every ledger store on a server promises besides, where answers get lost and servers are away."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.proxy import LossyProxy, lossy
from tests.support.stores import Stores, new_stream
from tidemark.errors import Unreachable
from tidemark.ledger.stores.contract import WriteInDoubt, sortable
from tidemark.ledger.stores.doubt import CompareAndSetFailed, swap_surely

KEY = ("head", "ingest")


@pytest.fixture
def proxy(servers: Stores) -> Iterator[LossyProxy]:
    with lossy(servers.port) as made:
        yield made


@pytest.mark.covers("F2", "E38")
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_lost_answer_is_in_doubt_and_then_found_out(servers: Stores, proxy: LossyProxy, applied: bool) -> None:
    stream = new_stream()
    store, behind = servers.make(stream), servers.make(stream, port=proxy.port, timeout=5.0)
    store.prepare()
    assert behind.swap(KEY, None, b"first")
    proxy.lose_next(servers.sent(b"second"), applied=applied)
    with pytest.raises(WriteInDoubt):
        behind.swap(KEY, b"first", b"second")
    before = b"second" if applied else b"first"
    assert store.read(KEY) == before
    proxy.lose_next(servers.sent(b"third"), applied=applied)
    swap_surely(behind, KEY, before, b"third", lambda stored: stored == b"third")
    assert store.read(KEY) == b"third"
    with pytest.raises(CompareAndSetFailed):
        swap_surely(behind, KEY, b"first", b"fourth", lambda stored: stored == b"fourth")
    assert proxy.lost == 2


@pytest.mark.full
@pytest.mark.covers("F2", "E38")
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_the_answer_to_a_commit_is_lost(servers: Stores, proxy: LossyProxy, applied: bool) -> None:
    stream = new_stream()
    store, behind = servers.make(stream), servers.make(stream, port=proxy.port, timeout=5.0)
    store.prepare()
    history = ("history", "ingest", sortable(1))
    assert behind.swap(KEY, None, b"pinned")
    proxy.lose_next(servers.settling(b"committed"), applied=applied)
    with pytest.raises(WriteInDoubt):
        behind.commit(KEY, b"pinned", b"committed", history, b"record", {"logs": {0: 10}})
    assert (store.read(KEY) == b"committed") == applied
    # All of it or nothing of it.
    assert (store.read(history) == b"record") == (applied and store.commits_records)
    assert behind.commit(KEY, b"pinned", b"committed", history, b"record", {"logs": {0: 10}}) != applied


@pytest.mark.full
def test_a_server_that_is_away_is_named_in_bounded_time(servers: Stores) -> None:
    away = servers.make(new_stream(), port=1, timeout=1.0, patience=1.0)
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r" at 127\.0\.0\.1:1 did not (read|answer)"):
        away.read(KEY)
    with pytest.raises((Unreachable, WriteInDoubt)):
        away.swap(KEY, None, b"value")
    assert time.monotonic() - began < 20
