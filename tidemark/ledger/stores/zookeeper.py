"""The ledger in ZooKeeper: each value is a node, and a write names the version that was read.

    ROOT/STREAM/register
    ROOT/STREAM/head/LANE
    ROOT/STREAM/history/LANE/0000000000000012/0000000000000012345    a thousand windows in each folder

A commit is one transaction: the head, the history record, and the offset nodes that other tools read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import make_acl

from tidemark.clients.connections import Connections
from tidemark.clients.zookeeper import TROUBLE, ZooKeeper, reason, zookeeper_endpoint
from tidemark.errors import LedgerContradiction, TidemarkError, TooLarge, WrongUse
from tidemark.ledger.stores.contract import CLOCK_KEY, Key, Leaders, Offsets, ResetOffset, WriteInDoubt
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.ledger.stores.settings import ZooKeeperLedger

log = logging.getLogger(__name__)

# ZooKeeper takes requests of up to 1 MiB (jute.maxbuffer). The rest, about 47 KiB, is for the protocol.
MAX_REQUEST_BYTES = 1_000_000
# A commit carries the head with the record, the record once more, and up to two offset nodes for each partition.
_MAX_VALUE_BYTES = 320 * 1024
# Each operation of a transaction has these bytes besides its path and value: header, lengths, ACL, version.
_OPERATION_BYTES = 200

# Sortable numbers have 19 digits. A thousand of them share a folder; its name is their first 16 digits.
_NUMBER = 19
_FOLDER = 16
_READ_AT_ONCE = 200


@dataclass(frozen=True)
class OffsetLayouts:
    """Which offset nodes a commit writes for other tools; None for none.

    `consumers` is the root of `/consumers/GROUP/offsets/TOPIC/PARTITION`. `storm` is the root of Storm's
    `ZKROOT/ID/partition_N` (with several topics `ZKROOT/ID/TOPIC/partition_N`); `storm_id` is `group` unless given.
    """

    group: str
    consumers: str | None = None
    storm: str | None = None
    storm_id: str | None = None

    def nodes(self, offsets: Offsets, leaders: Leaders) -> Iterator[tuple[str, bytes]]:
        return ((path, value) for path, value, _ in self.placed(offsets, leaders))

    def placed(self, offsets: Offsets, leaders: Leaders) -> Iterator[tuple[str, bytes, int]]:
        """The nodes with their values, and the offset of each."""
        for topic, partitions in sorted(offsets.items()):
            for partition, offset in sorted(partitions.items()):
                if self.consumers is not None:
                    yield f"{self.consumers}/{self.group}/offsets/{topic}/{partition}", str(offset).encode(), offset
                if self.storm is not None:
                    identity = self.storm_id or self.group
                    place = f"{self.storm}/{identity}" + (f"/{topic}" if len(offsets) > 1 else "")
                    host, port = leaders.get((topic, partition), ("", 0))
                    state = {
                        "topology": {"id": identity, "name": identity},
                        "offset": offset,
                        "partition": partition,
                        "broker": {"host": host, "port": port},
                        "topic": topic,
                    }
                    # As `PartitionManager.commit` of storm-kafka writes it.
                    yield f"{place}/partition_{partition}", json.dumps(state, separators=(",", ":")).encode(), offset

    def offset_in(self, path: str, value: bytes) -> int | None:
        """The offset that such a node holds; None when its value has neither layout."""
        with suppress(ValueError, TypeError, KeyError):
            return int(json.loads(value)["offset"]) if "/partition_" in path else int(value)
        return None


def open_store(
    settings: ZooKeeperLedger, stream: str, connections: Connections, waits: RequestTimeouts | None
) -> ZooKeeperLedgerStore:
    """Open the store by its settings; `LedgerType` names this function. Raises ConnectionMissing, WrongUse."""
    endpoint = zookeeper_endpoint(connections(settings.zookeeper))
    zookeeper = (
        ZooKeeper(endpoint, timeout_seconds=waits.question_seconds, patience=waits.patience_seconds)
        if waits
        else ZooKeeper(endpoint)
    )
    storm = settings.storm
    layouts = OffsetLayouts(
        settings.group or stream,
        settings.consumers,
        storm.zk_root if storm else None,
        (storm.id or stream) if storm else None,
    )
    return ZooKeeperLedgerStore(zookeeper, settings.path, stream, layouts)


class ZooKeeperLedgerStore:
    """The ledger of one stream in ZooKeeper; see `LedgerStore` for the contract."""

    max_value_bytes = _MAX_VALUE_BYTES
    commits_records = True

    def __init__(self, zookeeper: ZooKeeper, root: str, stream: str, layouts: OffsetLayouts | None = None) -> None:
        self._zookeeper = zookeeper
        self._base = f"{root.rstrip('/')}/{stream}"
        self._layouts = layouts or OffsetLayouts(stream)
        self._leaders: Callable[[Iterable[str]], Leaders] | None = None

    def name_leaders(self, leaders: Callable[[Iterable[str]], Leaders]) -> None:
        self._leaders = leaders

    def streams(self) -> list[str]:
        root = self._base.rpartition("/")[0]
        try:
            children: list[str] = self._zookeeper.repeated(
                "read",
                lambda client: client.sync_async(root or "/"),
                lambda client: client.get_children_async(root or "/"),
            )
        except NoNodeError:
            return []
        return sorted(children)

    def of_stream(self, name: str) -> ZooKeeperLedgerStore:
        return ZooKeeperLedgerStore(self._zookeeper, self._base.rpartition("/")[0], name)

    def prepare(self) -> None:
        """Create the stream's folder."""
        self._make_folder(self._base)

    def read(self, key: Key) -> bytes | None:
        node = self._get(self._path(key))
        return node[0] if node and node[0] else None

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        yield from self._below(self._path(prefix), descending=False)

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        pairs = self._below(self._path(prefix), descending=True, at_once=max(1, min(limit, _READ_AT_ONCE)))
        return [pair for pair, _ in zip(pairs, range(limit), strict=False)]

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        # Folders hold nothing themselves.
        return [value or None for value in self._values([self._path(key) for key in keys])]

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        path = self._path(key)
        _check_request(path, [len(value)])
        if expected is None:
            return self._create(path, value)
        node = self._get(path)
        if node is None or node[0] != expected:
            return False
        version = node[1].version
        return self._written(lambda client: client.set_async(path, value, version))

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        path, history = self._path(head), self._path(record)
        held = self._get(path)
        if held is None or held[0] != expected:
            return False
        placed = list(self._layouts.placed(offsets, self._leaders_of(offsets))) if offsets else []
        nodes = {node: text for node, text, _ in placed}
        # Of another incarnation of the topic: what was shown of the one before says nothing.
        anew = {node for node, _, offset in placed if isinstance(offset, ResetOffset)}
        _check_request(path, [len(value), len(history) + len(recorded), *(len(p) + len(v) for p, v in nodes.items())])
        known = self._known(nodes)
        self._make_folder(_parent(history))
        for parent in sorted({_parent(node) for node in nodes}):
            self._make_folder(parent, shown=True)

        def transaction(client: KazooClient) -> Any:
            request = client.transaction()
            request.set_data(path, value, version=held[1].version)
            request.create(history, recorded)
            for node, text in nodes.items():
                if node not in known:
                    request.create(node, text, acl=shown_acl(client))
                elif node in anew or (known[node][0] or 0) < (self._layouts.offset_in(node, text) or 0):
                    request.set_data(node, text, version=known[node][1])
            return request.commit_async()

        try:
            results: Sequence[Any] = self._zookeeper.once(transaction)
        except TROUBLE as problem:
            raise WriteInDoubt(f"ZooKeeper at {self._zookeeper.endpoint}: {reason(problem)}") from problem
        return _won((path, history, *nodes), results)

    def put(self, key: Key, value: bytes) -> None:
        path = self._path(key)
        _check_request(path, [len(value)])
        while True:
            try:
                self._zookeeper.repeated("write", lambda client: client.set_async(path, value))
                return
            except NoNodeError:
                with suppress(WriteInDoubt):
                    if self._create(path, value):
                        return

    def time(self) -> int | None:
        # The leader gives each node the time of its write.
        self.put(CLOCK_KEY, b"-")
        node = self._get(self._path(CLOCK_KEY))
        return int(node[1].mtime) if node else None

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        """Nothing: the offset nodes are part of the commit."""

    def show(self, offsets: Offsets) -> None:
        for node, text, _ in self._layouts.placed(offsets, self._leaders_of(offsets)):
            self._make_folder(_parent(node), shown=True)
            try:
                self._zookeeper.repeated("write", partial(_set, node, text))
            except NoNodeError:
                with suppress(NodeExistsError):
                    self._zookeeper.repeated("write", partial(_create, node, text))

    # nodes

    def _get(self, path: str) -> tuple[bytes, Any] | None:
        """The newest value with its version. `sync` first: the server of this session may lag behind the others."""
        try:
            node: tuple[bytes, Any] = self._zookeeper.repeated(
                "read", lambda client: client.sync_async(path), lambda client: client.get_async(path)
            )
        except NoNodeError:
            return None
        return node

    def _create(self, path: str, value: bytes) -> bool:
        try:
            return self._written(lambda client: client.create_async(path, value))
        except NoNodeError:
            self._make_folder(_parent(path))
            return self._written(lambda client: client.create_async(path, value))

    def _make_folder(self, path: str, *, shown: bool = False) -> None:
        """Create a folder. Other tools can list a `shown` folder, and create folders of their own in it."""
        self._zookeeper.repeated(
            "write",
            lambda client: client.ensure_path_async(path, acl=shown_acl(client, create=True) if shown else None),
        )

    def _written(self, write: Any) -> bool:
        try:
            self._zookeeper.once(write)
        except (BadVersionError, NodeExistsError):
            return False
        except TROUBLE as problem:
            raise WriteInDoubt(f"ZooKeeper at {self._zookeeper.endpoint}: {reason(problem)}") from problem
        return True

    def _below(self, path: str, *, descending: bool, at_once: int = _READ_AT_ONCE) -> Iterator[tuple[Key, bytes]]:
        """Every value below a node, by name. Folders hold nothing themselves."""
        try:
            names = self._zookeeper.repeated(
                "read", lambda client: client.sync_async(path), lambda client: client.get_children_async(path)
            )
        except NoNodeError:
            return
        # Sort by the unquoted names, which is the order of keys.
        names = sorted(names, key=unquote, reverse=descending)
        for first in range(0, len(names), at_once):
            children = [f"{path}/{name}" for name in names[first : first + at_once]]
            for child, value in zip(children, self._values(children), strict=True):
                if value:
                    yield self._key(child), value
                else:
                    yield from self._below(child, descending=descending, at_once=at_once)

    def _values(self, paths: Sequence[str]) -> list[bytes | None]:
        """The newest values of some nodes, requested together; None for a node that does not exist."""

        def ask(client: KazooClient) -> Any:
            return _Together([client.get_async(path) for path in paths])

        values: list[bytes | None] = self._zookeeper.repeated("read", lambda client: client.sync_async(self._base), ask)
        return values

    def _leaders_of(self, offsets: Offsets) -> Leaders:
        """The leaders of the partitions; empty when no node names one, or when Kafka does not answer."""
        if self._layouts.storm is None or self._leaders is None:
            return {}
        try:
            return self._leaders([topic for topic, partitions in offsets.items() if partitions])
        except TidemarkError as problem:
            # A commit does not fail for the sake of a field that no reader needs for its offsets.
            log.warning("Storm's nodes name no broker this time: %s", problem)
            return {}

    def _known(self, nodes: Mapping[str, bytes]) -> dict[str, tuple[int | None, int]]:
        """The offset nodes that exist, each with its offset and version."""
        values = {path: self._get(path) for path in nodes}
        return {path: (self._layouts.offset_in(path, at[0]), at[1].version) for path, at in values.items() if at}

    # paths

    def _path(self, key: Key) -> str:
        return "/".join((self._base, *(part for word in key for part in _parts(word))))

    def _key(self, path: str) -> Key:
        parts = path.removeprefix(f"{self._base}/").split("/")
        # Leave out the folder of a number: the next part begins with its name.
        words = [
            unquote(part)
            for part, following in zip(parts, [*parts[1:], ""], strict=True)
            if not (len(part) == _FOLDER and len(following) == _NUMBER and following.startswith(part))
        ]
        return tuple(words)


def _set(node: str, text: bytes, client: KazooClient) -> Any:
    return client.set_async(node, text)


def _create(node: str, text: bytes, client: KazooClient) -> Any:
    return client.create_async(node, text, acl=shown_acl(client))


class _Together:
    """The values of several nodes as one answer; None for a node that does not exist."""

    def __init__(self, waiting: Sequence[Any]) -> None:
        self._waiting = waiting

    def get(self, timeout: float) -> list[bytes | None]:
        return [self._value(reply, timeout) for reply in self._waiting]

    def _value(self, reply: Any, timeout: float) -> bytes | None:
        try:
            value: bytes = reply.get(timeout=timeout)[0]
        except NoNodeError:
            return None
        return value


def _parts(word: str) -> tuple[str, ...]:
    """A word of a key as node names. A word that ZooKeeper refuses is quoted; a number gets its folder before it."""
    if len(word) == _NUMBER and word.isdecimal():
        return word[:_FOLDER], word
    quoted = quote(word, safe="")
    return (quoted.replace(".", "%2E") if set(quoted) == {"."} else quoted,)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _won(places: Sequence[str], results: Sequence[Any]) -> bool:
    """Whether a transaction was applied. Its operations change the head, then the history, then other nodes."""
    # An error in the second result means that the first operation succeeded: the head is still as expected.
    if isinstance(results[1], NodeExistsError):
        raise LedgerContradiction(
            f"{places[1]} is there already, and {places[0]} does not know it. Both were left as they are."
        )
    for place, result in zip(places, results, strict=False):
        if isinstance(result, NoAuthError):
            raise WrongUse(
                f"{place}, or one of the nodes that a commit writes with it, belongs to another login. "
                "Nothing was committed: name another root in the stream file, or use that login."
            )
    return not any(isinstance(result, Exception) for result in results)


def _check_request(path: str, parts: Sequence[int]) -> None:
    """Check the size of a request before it is sent: ZooKeeper closes the connection after a request that is too large."""
    size = len(path) + sum(parts) + _OPERATION_BYTES * len(parts)
    if size > MAX_REQUEST_BYTES:
        raise TooLarge(f"a write to {path} takes {size} bytes; ZooKeeper takes up to {MAX_REQUEST_BYTES}")


def shown_acl(client: KazooClient, *, create: bool = False) -> Any:
    """The access list of nodes for other tools: they can read, only our login can write. None when all nodes are open."""
    if client.default_acl is None:
        return None
    return [*client.default_acl, make_acl("world", "anyone", read=True, create=create)]
