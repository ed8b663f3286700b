"""What is ZooKeeper's own in the ledger, on a real ZooKeeper."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl, make_digest_acl

from services import processes
from services.site import Site
from tests.support.live_streams import Make
from tests.support.oracle import LEDGERS
from tests.support.protocol_world import NoWork, Sweeps
from tests.support.stores import SETTINGS, Stores, new_stream, stores_of
from tests.support.waiting import until
from tidemark.commit import protocol
from tidemark.commit.protocol import Step
from tidemark.errors import LedgerContradiction, OutcomeUnknown, TooLarge, Unreachable, WrongUse
from tidemark.ledger.ledger import Ledger, StoredHead
from tidemark.ledger.records import INGEST, Head, LaneKind, Window, WindowRange, positions
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import open_lane
from tidemark.ledger.stores import doubt
from tidemark.ledger.stores.contract import LedgerStore, ResetOffset, sortable
from tidemark.ledger.stores.zookeeper import OffsetLayouts, ZooKeeperLedgerStore
from tidemark.offsets.ranges import TopicPartition
from tidemark.spark.jobs.window import process_windows

HEAD = ("head", "ingest")
FIRST = ("history", "ingest", sortable(1))


@pytest.fixture
def stores(site: Site) -> Stores:
    return stores_of(SETTINGS["zookeeper"])


@pytest.fixture
def stranger(site: Site) -> Iterator[KazooClient]:
    """Another tool, which has no login."""
    client = KazooClient(hosts=site.address("zookeeper"))
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.mark.covers("O3", "S11")
@pytest.mark.usefixtures("spark")
def test_a_commit_shows_its_offsets_to_other_tools(make: Make, stranger: KazooClient) -> None:
    """The nodes that consumers of old and Storm's spout read, in the transaction of the commit; they never fall."""
    live = make(ledger={"type": "zookeeper", "consumers": "/consumers", "storm": "/storm"})
    live.produce(100)
    live.ingest()
    for round_ in range(2):
        for (topic, partition), offset in live.positions().items():
            stored, _ = stranger.get(f"/consumers/{live.name}/offsets/{topic}/{partition}")
            assert stored == str(offset).encode()
            state = json.loads(stranger.get(f"/storm/{live.name}/partition_{partition}")[0])
            assert (state["topic"], state["partition"], state["offset"]) == (topic, partition, offset)
            assert state["topology"] == {"id": live.name, "name": live.name}
        if round_ == 0:
            # A node that is further than the commit, as another tool may have put it, is left alone.
            live.produce(40)
            live.ingest()
    live.assert_exactly_what_was_read()


@pytest.mark.covers("O3")
def test_an_offset_node_never_falls(stores: Stores, site: Site) -> None:
    stream = new_stream()
    store = stores.make(stream)
    store.prepare()
    assert store.swap(HEAD, None, b"pinned 1")
    assert store.commit(HEAD, b"pinned 1", b"pinned 2", FIRST, b"{}", {"logs": {0: 10, 10: 7}})
    second = ("history", "ingest", sortable(2))
    assert store.commit(HEAD, b"pinned 2", b"done", second, b"{}", {"logs": {0: 9, 10: 8}})
    client = store._zookeeper.client  # type: ignore[attr-defined]
    assert client.get(f"/consumers/{stream}/offsets/logs/0")[0] == b"10"
    assert client.get(f"/consumers/{stream}/offsets/logs/10")[0] == b"8"
    # Of a topic that was recreated, what was shown of the one before says nothing.
    assert store.swap(HEAD, b"done", b"pinned 3")
    third = ("history", "ingest", sortable(3))
    assert store.commit(HEAD, b"pinned 3", b"done 3", third, b"{}", {"logs": {0: ResetOffset(2), 10: 3}})
    assert client.get(f"/consumers/{stream}/offsets/logs/0")[0] == b"2"
    assert client.get(f"/consumers/{stream}/offsets/logs/10")[0] == b"8"


def test_with_several_topics_storms_nodes_have_a_folder_for_each(stores: Stores) -> None:
    layouts = OffsetLayouts("s", None, "/storm")
    nodes = dict(layouts.nodes({"a": {0: 1}, "b": {0: 2}}, {}))
    assert list(nodes) == ["/storm/s/a/partition_0", "/storm/s/b/partition_0"]


def test_only_its_login_reads_and_changes_the_ledger(stores: Stores, stranger: KazooClient) -> None:
    stream = new_stream()
    store = stores.make(stream)
    store.prepare()
    assert store.swap(HEAD, None, b"pinned")
    assert store.commit(HEAD, b"pinned", b"done", FIRST, b"{}", {"logs": {0: 10}})
    for path in ("head/ingest", "history/ingest/0000000000000000/0000000000000000001"):
        with pytest.raises(NoAuthError):
            stranger.get(f"/tidemark/{stream}/{path}")
    node = f"/consumers/{stream}/offsets/logs/0"
    assert stranger.get(node)[0] == b"10"
    # Others can list the offsets, and keep theirs beside them.
    assert stranger.get_children(f"/consumers/{stream}/offsets") == ["logs"]
    stranger.create(f"/consumers/{stream}-other/offsets/logs/0", b"3", makepath=True)
    with pytest.raises(NoAuthError):
        stranger.set(node, b"0")
    stranger.add_auth("digest", "somebody:else")
    with pytest.raises(NoAuthError):
        stranger.set(f"/tidemark/{stream}/head/ingest", b"{}")


def test_another_login_is_told_so(stores: Stores, site: Site) -> None:
    from tidemark.clients.zookeeper import ZooKeeper, ZooKeeperEndpoint

    stream = new_stream()
    store = stores.make(stream)
    assert store.swap(HEAD, None, b"first")
    other = ZooKeeper(ZooKeeperEndpoint(site.address("zookeeper"), "somebody", "else"))
    with pytest.raises(WrongUse, match="the nodes belong to another one"):
        ZooKeeperLedgerStore(other, "/tidemark", stream).read(HEAD)


@pytest.mark.covers("F6")
@pytest.mark.usefixtures("spark")
def test_an_attempt_that_may_not_take_its_window_reads_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    live = make(ledger=LEDGERS["zookeeper"])
    live.produce(40)
    run = live.new_run()
    live.pin(run)
    before = live.head()
    connection = json.loads(os.environ["AIRFLOW_CONN_ZOOKEEPER_DEFAULT"])
    monkeypatch.setenv("AIRFLOW_CONN_ZOOKEEPER_DEFAULT", json.dumps({**connection, "password": "another"}))
    steps: list[Step] = []
    with pytest.raises(WrongUse, match="the nodes belong to another one") as refused:
        process_windows(live.opened, INGEST, 1, run, on_step=steps.append)
    assert (refused.value.exit_code, steps) == (2, [])
    monkeypatch.undo()
    assert live.head() == before
    live.ingest(run)
    live.assert_exactly_what_was_read()


def test_offset_nodes_of_another_login_stop_a_commit_by_name(stores: Stores, stranger: KazooClient) -> None:
    stream = new_stream()
    store = stores.make(stream)
    store.prepare()
    node = f"/consumers/{stream}/offsets/logs/0"
    stranger.add_auth("digest", "somebody:else")
    theirs = [make_digest_acl("somebody", "else", all=True), make_acl("world", "anyone", read=True, create=True)]
    stranger.create(node, b"3", acl=theirs, makepath=True)
    assert store.swap(HEAD, None, b"pinned")
    with pytest.raises(WrongUse, match=f"{node}.*belongs to another login. Nothing was committed"):
        store.commit(HEAD, b"pinned", b"done", FIRST, b"{}", {"logs": {0: 10}})
    assert store.read(HEAD) == b"pinned"


@pytest.mark.covers("F17")
def test_what_is_too_large_is_refused_before_it_is_sent(stores: Stores) -> None:
    store = stores.new()
    assert store.swap(HEAD, None, b"pinned")
    half = b"x" * 500_000
    with pytest.raises(TooLarge, match=r"takes 1\d{6} bytes; ZooKeeper takes up to 1000000"):
        store.commit(HEAD, b"pinned", half, FIRST, half, None)
    assert store.read(HEAD) == b"pinned"


def test_a_record_that_the_head_does_not_know_is_a_contradiction(stores: Stores) -> None:
    store = stores.new()
    assert store.swap(HEAD, None, b"pinned")
    assert store.swap(FIRST, None, b"a record of nobody")
    with pytest.raises(LedgerContradiction, match="is there already"):
        store.commit(HEAD, b"pinned", b"done", FIRST, b"record", None)
    assert store.read(HEAD) == b"pinned"


def expire(store: LedgerStore, site: Site) -> None:
    """Whoever knows a session's number and password may end it: for its client, it has expired."""
    assert isinstance(store, ZooKeeperLedgerStore)
    thief = KazooClient(hosts=site.address("zookeeper"), client_id=store._zookeeper.client.client_id)
    thief.start()
    thief.stop()
    thief.close()


def test_an_expired_session_is_followed_by_another(stores: Stores, site: Site) -> None:
    store = stores.new()
    assert store.swap(HEAD, None, b"first")
    session = store._zookeeper.client.client_id  # type: ignore[attr-defined]
    expire(store, site)
    assert store.read(HEAD) == b"first"
    assert store.swap(HEAD, b"first", b"second")
    assert store._zookeeper.client.client_id != session  # type: ignore[attr-defined]


@pytest.mark.covers("F16")
def test_no_commit_is_claimed_without_a_session_or_a_quorum(
    stores: Stores, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(doubt.swap_surely.__kwdefaults__ or {}, "patience", 2.0)
    store = stores.make(new_stream(), timeout=2.0, patience=2.0)
    store.prepare()
    ledger = Ledger(store, "s")
    at = TopicPartition("logs", 0)
    open_lane(ledger, INGEST, LaneKind.INGEST, run="run", start=positions({at: 0}))

    def plan(head: Head) -> Window:
        start = head.offsets()[at]
        one = WindowRange(
            topic="logs", incarnation=1, partition=0, start=start, until=start + 10, log_start=0, log_end=99
        )
        return Window(
            seq=head.seq + 1, ranges=(one,), topic_ids={"logs": "i"}, isolation="read_committed", pinned_at=1, run="run"
        )

    def taken() -> protocol.HeldWindow:
        pending = protocol.pin(ledger, Sweeps(), INGEST, plan)
        assert pending is not None
        return protocol.take(ledger, INGEST, pending.window.seq, protocol.Run("run", "v", "d"))

    # The session expires between the last look at the ledger and the commit.
    first = taken()
    expire(store, site)
    record = protocol.commit(ledger, first, NoWork().verify())
    found = ledger.head(INGEST)
    assert found is not None
    assert found.head.last == record

    # No server answers: the commit is in doubt, and nobody is told that it was done.
    second = taken()
    before = ledger.head(INGEST)
    stopped = processes.running(site, "zookeeper")
    processes.send(stopped, signal.SIGSTOP)
    try:
        with pytest.raises((OutcomeUnknown, Unreachable)) as told:
            protocol.commit(ledger, second, NoWork().verify())
    finally:
        processes.send(stopped, signal.SIGCONT)
    assert told.value.exit_code == 5
    # What was sent may be applied late. A new attempt ends in one commit of the window, whoever's it is.
    after = until(lambda: _answered(ledger), "ZooKeeper does not answer")
    if after == before:
        protocol.commit(ledger, taken(), NoWork().verify())
    assert [record.seq for record in ledger.records_of(INGEST)] == [1, 2]
    assert verify(ledger) == []


def _answered(ledger: Ledger) -> StoredHead | None:
    try:
        return ledger.head(INGEST)
    except Unreachable:
        return None
