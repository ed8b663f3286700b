"""The model of the ledger on real servers, and whether it would find a bug.

Several actors, two lanes, clocks that jump, answers that get lost, writes that arrive late, servers that lag behind: see
tests/model. `./run test full` runs ten times as many sequences.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.memory import MemoryStore
from tests.model.machine import machine, sequences
from tests.stores import Stores
from tidemark.errors import LedgerContradiction
from tidemark.ledger import doubt

QUICK, FULL = 30, 500


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)


def test_whatever_happens_the_ledger_keeps_its_promises(stores: Stores, request: pytest.FixtureRequest) -> None:
    number = FULL if request.config.getoption("--full") else QUICK
    run_state_machine_as_test(machine(stores.new), settings=sequences(number))


# What a bug is; what stands in the protocol, and what the bug would have in its place; what the checker says of it.
BUGS = {
    "a commit expects what is stored now, not what it took": (
        "    expected = taken.stored.bytes\n",
        "    expected = _required_head(book, head.lane).bytes\n",
        "an attempt committed although a newer one had been let in",
    ),
    "a lost answer is taken for a success": (
        "            write=lambda: book.store.commit(key, expected, value, history, recorded, offsets),\n",
        "            write=lambda: _hopeful(lambda: book.store.commit(key, expected, value, history, recorded, offsets)),\n",
        "an attempt was told that it was committed",
    ),
    "false is believed": (
        "            is_mine,\n            write=",
        "            lambda stored: False,\n            write=",
        "an attempt was told that it was not committed",
    ),
    "a take keeps the generation that it finds": (
        "        generation, token, ordinal = draw_generation(book, again=_writes_again(found.head))\n",
        "        generation, token, ordinal = draw_generation(book, again=_writes_again(found.head))\n"
        "        generation = pending.attempt.generation if pending.attempt else generation\n"
        "        pending = structs.replace(pending, attempt=None)\n",
        "two attempts were given the same generation",
    ),
    "a record does not name the one before it": (
        "previous=_digest_of_last(book, head))",
        "previous=None)",
        "does not name the record before it",
    ),
    "a retry pins anew": (
        "        if head.pending is not None:\n            return head.pending\n",
        "",
        "has pinned another window",
    ),
    "an abandon moves the position": (
        "given_up = structs.replace(head, pending=None, abandoned=abandoned)",
        "given_up = structs.replace(head, pending=None, abandoned=abandoned, positions=_moved(head, head.pending.window))",
        "has another position than its windows|its positions are not those that its last window left",
    ),
}

_HOPEFUL = """

def _hopeful(write):
    from tidemark.ledger.store import InDoubt
    try:
        return write()
    except InDoubt:
        return True
"""


def with_bug(old: str, new: str) -> ModuleType:
    """A copy of the protocol in which a bug was planted."""
    spec = find_spec("tidemark.protocol")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert source.count(old) == 1, "the place for this bug has changed: plant it anew"
    copy = sys.modules["planted"] = ModuleType("planted")
    exec(compile(source.replace(old, new) + _HOPEFUL, "planted", "exec"), copy.__dict__)
    return copy


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    old, new, said = BUGS[bug]
    found_by = settings(
        sequences(1_000), phases=[Phase.generate], derandomize=True, database=None, report_multiple_bugs=False
    )
    # Some are found by the ledger itself before the checker looks.
    with pytest.raises((AssertionError, LedgerContradiction), match=said):
        run_state_machine_as_test(machine(MemoryStore, with_bug(old, new)), settings=found_by)
