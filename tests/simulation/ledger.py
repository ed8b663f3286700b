"""The ledger's servers: a store in memory, to which each actor has a way of its own that loses answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.model.transport import DEATHS, Mishap, Network, Transport
from tests.simulation.actors import AND_OTHERS, ANSWERS_AND_OTHERS, current, effect
from tests.simulation.older import as_older
from tests.support.memory import MemoryStore
from tidemark.errors import Unreachable
from tidemark.ledger.stores.contract import Key, Offsets

# Of all actors of one program.
_MAX_CALLS = 60_000


class Calls(Network):
    def tick(self) -> None:
        self.calls += 1
        assert self.calls < _MAX_CALLS, "an operation goes on for ever"
        while self.late and self.late[0][0] <= self.calls:
            self.late.popleft()[1]()


class SimulatedLedger:
    """The store that everybody shares. The oracle reads what is stored, without an effect."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.network = Calls()
        self.away = False

    @property
    def max_value_bytes(self) -> int:
        return self.store.max_value_bytes

    @property
    def commits_records(self) -> bool:
        return self.store.commits_records

    def prepare(self) -> None:
        effect()

    def read(self, key: Key) -> bytes | None:
        return self._asked(lambda way: way.read(key))

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        return self._asked(lambda way: way.scan(prefix))

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        return self._asked(lambda way: way.newest(prefix, limit))

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        return self._asked(lambda way: way.read_several(keys))

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        if is_older():
            # It has in mind what it has written.
            expected, value = None if expected is None else as_older(key, expected), as_older(key, value)
        return self._asked(lambda way: way.swap(key, expected, value))

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        if is_older():
            expected, value, recorded = as_older(head, expected), as_older(head, value), as_older(record, recorded)
        return self._asked(lambda way: way.commit(head, expected, value, record, recorded, offsets))

    def put(self, key: Key, value: bytes) -> None:
        self._asked(lambda way: way.put(key, value))

    def time(self) -> int | None:
        return self._asked(lambda way: way.time())

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        self._asked(lambda way: way.publish(committed_at, offsets))

    def _asked(self, call: Callable[[Any], Any]) -> Any:
        actor = effect()
        if actor is None:
            return call(self.store)
        if self.away:
            raise Unreachable("the ledger's server did not answer")
        if actor.ledger is None:
            actor.ledger = Transport(self.store, self.network)
            if actor.loses_answers:
                at = actor.stop.at if isinstance(actor.stop.at, int) else 0
                actor.ledger.begin(Mishap(actor.stop.how.removesuffix(AND_OTHERS), at))
        if not actor.loses_answers:
            return call(actor.ledger)
        try:
            return call(actor.ledger)
        except BaseException:
            actor.died = actor.died or (actor.ledger.happened and actor.stop.how in DEATHS)
            raise
        finally:
            happened = actor.ledger.happened and not actor.stopped
            actor.waits = actor.waits or (happened and actor.stop.how in ANSWERS_AND_OTHERS)
            actor.stopped = actor.stopped or happened


def is_older() -> bool:
    """Whether the current actor runs an older version of the program."""
    actor = current()
    return actor is not None and actor.older


def writes() -> int:
    """How many writes to the ledger the current actor has made."""
    actor = current()
    return actor.ledger.writes if actor is not None and actor.ledger is not None else 0
