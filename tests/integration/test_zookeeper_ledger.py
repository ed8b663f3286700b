"""What is ZooKeeper's own in the ledger, on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl, make_digest_acl

from services.site import Site
from tests.playground import Make
from tests.stores import Stores, new_stream
from tidemark.errors import LedgerContradiction, TooLarge, WrongUse
from tidemark.ledger.store import sortable
from tidemark.ledger.zookeeper import OffsetLayouts, ZooKeeperLedgerStore

HEAD = ("head", "ingest")
FIRST = ("history", "ingest", sortable(1))


@pytest.fixture
def stores(site: Site) -> Stores:
    return Stores("zookeeper", site)


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
    play = make(ledger={"type": "zookeeper", "consumers": "/consumers", "storm": "/storm"})
    play.produce(100)
    play.ingest()
    for round_ in range(2):
        for (topic, partition), offset in play.positions().items():
            stored, _ = stranger.get(f"/consumers/{play.name}/offsets/{topic}/{partition}")
            assert stored == str(offset).encode()
            state = json.loads(stranger.get(f"/storm/{play.name}/partition_{partition}")[0])
            assert (state["topic"], state["partition"], state["offset"]) == (topic, partition, offset)
            assert state["topology"] == {"id": play.name, "name": play.name}
        if round_ == 0:
            # A node that is further than the commit, as another tool may have put it, is left alone.
            play.produce(40)
            play.ingest()
    play.assert_exactly_what_was_read()


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


def test_with_several_topics_storms_nodes_have_a_folder_for_each(stores: Stores) -> None:
    layouts = OffsetLayouts("s", None, "/storm")
    nodes = dict(layouts.nodes({"a": {0: 1}, "b": {0: 2}}))
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
    from tidemark.connections import ZooKeeperEndpoint
    from tidemark.zookeeper import ZooKeeper

    stream = new_stream()
    store = stores.make(stream)
    assert store.swap(HEAD, None, b"first")
    other = ZooKeeper(ZooKeeperEndpoint(site.address("zookeeper"), "somebody", "else"))
    with pytest.raises(WrongUse, match="the nodes belong to another one"):
        ZooKeeperLedgerStore(other, "/tidemark", stream).read(HEAD)


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


def test_an_expired_session_is_followed_by_another(stores: Stores, site: Site) -> None:
    store = stores.new()
    assert store.swap(HEAD, None, b"first")
    client = store._zookeeper.client  # type: ignore[attr-defined]
    session = client.client_id
    # Whoever knows a session's number and password may end it: for the client, it has expired.
    thief = KazooClient(hosts=site.address("zookeeper"), client_id=session)
    thief.start()
    thief.stop()
    thief.close()
    assert store.read(HEAD) == b"first"
    assert store.swap(HEAD, b"first", b"second")
    assert store._zookeeper.client.client_id != session  # type: ignore[attr-defined]
