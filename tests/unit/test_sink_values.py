"""Values that sinks keep in the ledger: beside the ledger's own, and by compare-and-set."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.memory import MemoryStore
from tidemark.errors import TooLarge
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.sink_values import RESERVED, SinkValues
from tidemark.ledger.stores.doubt import CompareAndSetFailed

LEDGER = Path(__file__).parents[2] / "tidemark" / "ledger"


@pytest.fixture
def values() -> SinkValues:
    return SinkValues(Ledger(MemoryStore(), "orders"), "indexed")


def nobodys(stored: bytes) -> bool:
    return False


def test_each_sink_has_a_value_of_its_own(values: SinkValues) -> None:
    assert values.find("one") is None
    values.swap("one", None, b"1", nobodys)
    values.swap("two", None, b"2", nobodys)
    SinkValues(values.ledger, "other").swap("one", None, b"3", nobodys)
    values.swap("one", b"1", b"11", nobodys)
    assert values.find("one") == b"11"
    assert list(values.of_all_sinks()) == [("one", b"11"), ("two", b"2")]
    assert values.name("one") == "orders/indexed/one"


def test_a_value_that_another_has_changed_is_left_alone(values: SinkValues) -> None:
    values.swap("one", None, b"theirs", nobodys)
    with pytest.raises(CompareAndSetFailed) as raised:
        values.swap("one", None, b"mine", nobodys)
    assert (raised.value.current, values.find("one")) == (b"theirs", b"theirs")
    # As after an answer that was lost.
    values.swap("one", None, b"mine", lambda stored: stored == b"theirs")


def test_a_value_that_the_ledger_could_not_hold_is_refused(values: SinkValues) -> None:
    most = values.ledger.store.max_value_bytes
    values.check_room(b"x" * most, "the index", "index less")
    with pytest.raises(TooLarge, match=r"the index takes .*: index less"):
        values.check_room(b"x" * (most + 1), "the index", "index less")


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_the_ledgers_own_words_are_refused(values: SinkValues, word: str) -> None:
    with pytest.raises(ValueError, match=f"'{word}' is a word of the ledger's own"):
        SinkValues(values.ledger, word)


def test_every_key_of_the_ledger_begins_with_such_a_word() -> None:
    """A key is a tuple that begins with a word: all that stand in the ledger's code."""
    tuples = [
        node.elts[0].value
        for path in LEDGER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant)
    ]
    assert {word for word in tuples if isinstance(word, str) and word.isalpha()} == RESERVED
