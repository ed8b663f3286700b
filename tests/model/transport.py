"""A ledger store behind a transport that misbehaves: what a network, a gateway and a session do to requests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tidemark.ledger.store import InDoubt, Key, LedgerStore, Offsets

LOST_APPLIED = "applied, and the answer lost"
LOST_NOT_APPLIED = "lost"
FALSE_THOUGH_APPLIED = "repeated by a gateway, which answers false"
LATE = "applied some calls later"
STALE = "read from a server that lags behind"
FAULTS = (LOST_APPLIED, LOST_NOT_APPLIED, FALSE_THOUGH_APPLIED, LATE, STALE)

# How many calls of anybody a late write waits.
_LATE_BY = 4


@dataclass
class Network:
    """What all actors share: the writes that are still on their way, and every state that the servers were in."""

    late: deque[tuple[int, Callable[[], bool]]] = field(default_factory=deque)
    calls: int = 0
    state: int = 0
    values: dict[Key, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))

    def tick(self) -> None:
        self.calls += 1
        while self.late and self.late[0][0] <= self.calls:
            self.late.popleft()[1]()

    def wrote(self, *values: tuple[Key, bytes]) -> None:
        self.state += 1
        for key, value in values:
            self.values[key].append((self.state, value))

    def value_in(self, state: int, key: Key) -> bytes | None:
        return next((value for at, value in reversed(self.values[key]) if at <= state), None)


class Transport:
    """One actor's way to the store. `faults` hit its next writes (STALE: its next read), in turn.

    `meanwhile` holds what others do right before its next writes: by it operations interleave in their middle. A server
    that lags behind is never in an older state than one which this actor has seen: a session promises that much.
    """

    def __init__(self, store: LedgerStore, network: Network) -> None:
        self._store = store
        self._network = network
        self._seen = 0
        self.faults: deque[str] = deque()
        self.meanwhile: deque[Callable[[], None]] = deque()

    @property
    def max_value_bytes(self) -> int:
        return self._store.max_value_bytes

    @property
    def commits_records(self) -> bool:
        return self._store.commits_records

    def prepare(self) -> None:
        self._store.prepare()

    def read(self, key: Key) -> bytes | None:
        self._network.tick()
        if STALE in self.faults:
            self.faults.remove(STALE)
            return self._network.value_in(self._seen, key)
        self._seen = self._network.state
        return self._store.read(key)

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        self._seen = self._network.state
        return self._store.scan(prefix)

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        self._seen = self._network.state
        return self._store.newest(prefix, limit)

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        self._seen = self._network.state
        return self._store.read_several(keys)

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        return self._sent(lambda: self._store.swap(key, expected, value), (key, value))

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        written = [(head, value), (record, recorded)] if self.commits_records else [(head, value)]
        return self._sent(lambda: self._store.commit(head, expected, value, record, recorded, offsets), *written)

    def put(self, key: Key, value: bytes) -> None:
        self._network.tick()
        self._store.put(key, value)
        self._network.wrote((key, value))
        self._seen = self._network.state

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        self._network.tick()
        self._store.publish(committed_at, offsets)

    def _sent(self, write: Callable[[], bool], *values: tuple[Key, bytes]) -> bool:
        self._network.tick()
        if self.meanwhile:
            self.meanwhile.popleft()()

        def arrive() -> bool:
            won = write()
            if won:
                self._network.wrote(*values)
            return won

        fault = next((fault for fault in self.faults if fault != STALE), None)
        if fault is None:
            won = arrive()
            self._seen = self._network.state
            return won
        self.faults.remove(fault)
        if fault == LATE:
            self._network.late.append((self._network.calls + _LATE_BY, arrive))
        elif fault != LOST_NOT_APPLIED:
            arrive()
        if fault == FALSE_THOUGH_APPLIED:
            return False
        raise InDoubt(fault)
