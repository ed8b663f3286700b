"""A ledger store behind a transport that misbehaves: what a network, a gateway, a session and a kill do to requests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.errors import Unreachable
from tidemark.ledger.stores.contract import Key, LedgerStore, Offsets, WriteInDoubt

DIES_BEFORE = "dies before the write"
DIES_AFTER = "dies after the write, before its answer"
DIES_SENDING = "dies, and the write arrives some calls later"
LOST_APPLIED = "applied, and the answer lost"
LOST_NOT_APPLIED = "lost"
FALSE_THOUGH_APPLIED = "repeated by a gateway, which answers false"
LATE = "applied some calls later"
STALE = "read from a server that lags"
MEANWHILE = "another actor works before the call"

DEATHS = (DIES_BEFORE, DIES_AFTER, DIES_SENDING)
# After these the actor tries the write again, so another actor may work in between.
DOUBTS = (LOST_APPLIED, LOST_NOT_APPLIED, FALSE_THOUGH_APPLIED, LATE)

# How many calls of any actor a late write waits.
_LATE_BY = 4
# A sequence makes some hundreds.
_MAX_CALLS = 4_000


class Died(BaseException):
    """The actor was killed inside an operation. Nothing catches it."""


@dataclass(frozen=True)
class Mishap:
    """What goes wrong inside one operation: at its `at`-th write, read (STALE) or call (MEANWHILE), counted from 0.

    `between`: another actor works between this write and its repetition.
    """

    kind: str
    at: int = 0
    between: bool = False


@dataclass
class Network:
    """What all actors share: writes that are still on their way, and the log of what was applied.

    `applied` has one entry per change: the number of the call, the key, and the value. The checker reads it.
    """

    late: deque[tuple[int, Callable[[], object]]] = field(default_factory=deque)
    calls: int = 0
    applied: list[tuple[int, Key, Any]] = field(default_factory=list)
    values: dict[Key, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))

    def tick(self) -> None:
        self.calls += 1
        assert self.calls < _MAX_CALLS, "an operation goes on for ever"
        while self.late and self.late[0][0] <= self.calls:
            self.late.popleft()[1]()

    def wrote(self, *values: tuple[Key, bytes]) -> None:
        for key, value in values:
            self.applied.append((self.calls, key, value))
            self.values[key].append((len(self.applied), value))

    def showed(self, key: Key, offsets: Offsets) -> None:
        """Offsets were shown to other tools, which is no value of the ledger."""
        self.applied.append((self.calls, key, offsets))

    @property
    def state(self) -> int:
        return len(self.applied)

    def value_in(self, state: int, key: Key) -> bytes | None:
        return next((value for at, value in reversed(self.values.get(key, ())) if at <= state), None)


class Transport:
    """One actor's way to the servers. `begin` says what goes wrong inside the next operation.

    A server that lags is never in an older state than one which this actor has seen: a session promises that much.
    """

    def __init__(self, store: LedgerStore, network: Network) -> None:
        self._store = store
        self._network = network
        self._seen = 0
        self._mishap: Mishap | None = None
        self._left = 0
        self._others: Callable[[], None] | None = None
        self._before_next: Callable[[], None] | None = None
        # How many writes the operation has made, and whether its mishap has happened.
        self.writes = 0
        self.happened = False

    def begin(self, mishap: Mishap | None = None, others: Callable[[], None] | None = None) -> None:
        self._mishap, self._others, self._before_next = mishap, others, None
        self._left = mishap.at if mishap else 0
        self.writes, self.happened = 0, False

    @property
    def max_value_bytes(self) -> int:
        return self._store.max_value_bytes

    @property
    def commits_records(self) -> bool:
        return self._store.commits_records

    def prepare(self) -> None:
        self._store.prepare()

    def read(self, key: Key) -> bytes | None:
        if self._read():
            return self._network.value_in(self._seen, key)
        return self._store.read(key)

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        self._read(stale=False)
        return self._store.scan(prefix)

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        self._read(stale=False)
        return self._store.newest(prefix, limit)

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        self._read(stale=False)
        return self._store.read_several(keys)

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        def apply() -> bool:
            won = self._store.swap(key, expected, value)
            if won:
                self._network.wrote((key, value))
            return won

        return self._write(apply, WriteInDoubt)

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        def apply() -> bool:
            won = self._store.commit(head, expected, value, record, recorded, offsets)
            if won and self.commits_records:
                # The record first: by it the checker knows what the new head follows.
                self._network.wrote((record, recorded), (head, value))
                if offsets is not None:
                    self._network.showed(("offsets", head[1], ""), offsets)
            elif won:
                self._network.wrote((head, value))
            return won

        return self._write(apply, WriteInDoubt)

    def put(self, key: Key, value: bytes) -> None:
        def apply() -> None:
            self._store.put(key, value)
            self._network.wrote((key, value))

        self.send(apply)

    def time(self) -> int | None:
        return self._store.time()

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        def apply() -> None:
            self._store.publish(committed_at, offsets)
            if not self.commits_records:
                self._network.showed(("offsets", "", str(committed_at)), offsets)

        self.send(apply)

    def send(self, apply: Callable[[], object]) -> None:
        """Any other write, to a sink too. An answer in doubt ends the operation."""
        self._write(lambda: (apply(), True)[1], Unreachable)

    def _read(self, *, stale: bool = True) -> bool:
        """One read is made now; whether it comes from a server that lags."""
        self._call()
        if stale and self._is_due(STALE):
            return True
        self._seen = self._network.state
        return False

    def _call(self) -> None:
        self._network.tick()
        if self._is_due(MEANWHILE):
            self._let_others_work()

    def _let_others_work(self) -> None:
        others, self._others = self._others, None
        if others is not None:
            others()

    def _is_due(self, *kinds: str) -> bool:
        if self._mishap is None or self._mishap.kind not in kinds:
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self._mishap, self.happened = None, True
        return True

    def _write(self, apply: Callable[[], bool], in_doubt: type[Exception]) -> bool:
        self._call()
        self.writes += 1
        if self._before_next is not None:
            before, self._before_next = self._before_next, None
            before()
        mishap = self._mishap
        if mishap is None or not self._is_due(*DEATHS, *DOUBTS):
            won = apply()
            self._seen = self._network.state
            return won
        kind = mishap.kind
        if mishap.between:
            self._before_next = self._let_others_work
        if kind in (LATE, DIES_SENDING):
            self._network.late.append((self._network.calls + _LATE_BY, apply))
        elif kind in (DIES_AFTER, LOST_APPLIED, FALSE_THOUGH_APPLIED):
            apply()
        if kind in DEATHS:
            raise Died(kind)
        if kind == FALSE_THOUGH_APPLIED and in_doubt is WriteInDoubt:
            return False
        raise in_doubt(kind)
