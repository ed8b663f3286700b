"""The model of the ledger over stores in memory: many sequences in seconds. On real servers: test_ledger_model.py."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.memory import MemoryStore
from tests.model.machine import machine, sequences
from tidemark.ledger import doubt
from tidemark.ledger.store import Key, Offsets


class Transactional(MemoryStore):
    """As ZooKeeper: the record is put with the head."""

    commits_records = True

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        if record in self.values or not self.swap(head, expected, value):
            return False
        self.values[record] = recorded
        return True


@pytest.mark.parametrize("kind", [MemoryStore, Transactional])
def test_whatever_happens_the_ledger_keeps_its_promises(
    kind: type[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)
    run_state_machine_as_test(machine(kind), settings=sequences(300))
