"""A ledger that was changed or has lost something is found out, by what is stored alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.memory import MemoryStore
from tests.unit.test_protocol import World
from tidemark.ledger.book import head_key, record_key
from tidemark.ledger.verifying import verify


@pytest.fixture
def world() -> World:
    """Four windows; of the last one there is no history record yet."""
    made = World()
    made.open()
    for _ in range(4):
        made.process(made.pin())
    del made.store.values[record_key("ingest", 4)]
    return made


def forget(*key: str) -> Callable[[MemoryStore], None]:
    return lambda store: store.values.pop(key, None)  # type: ignore[return-value]


def change(key: tuple[str, ...], old: bytes, new: bytes) -> Callable[[MemoryStore], None]:
    def edit(store: MemoryStore) -> None:
        assert old in store.values[key]
        store.values[key] = store.values[key].replace(old, new)

    return edit


def test_a_whole_ledger_has_no_problems(world: World) -> None:
    assert verify(world.book) == []
    world.pin()
    assert verify(world.book) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (forget(*record_key("ingest", 1)), ["lane ingest: window 1 is missing in the history"]),
        (forget(*record_key("ingest", 2)), ["lane ingest: window 2 is missing in the history"]),
        (forget(*record_key("ingest", 3)), ["lane ingest: window 3 is missing in the history"]),
        (
            change(record_key("ingest", 2), b'"code_version":"v1"', b'"code_version":"v2"'),
            ["lane ingest: window 2 is not the one that window 3 followed: one was changed"],
        ),
        (
            change(record_key("ingest", 3), b'"code_version":"v1"', b'"code_version":"v2"'),
            ["lane ingest: window 3 is not the one that window 4 followed: one was changed"],
        ),
        (
            forget(*head_key("ingest")),
            [
                "lane ingest has 3 windows in the history, and no head",
                "lane ingest has no head, and the register says that it is open",
            ],
        ),
        (forget("register"), ["lane ingest has a head, and the register does not know it"]),
    ],
)
def test_damage_is_named(world: World, damage: Callable[[MemoryStore], None], said: list[str]) -> None:
    damage(world.store)
    assert verify(world.book) == said


def test_a_last_window_that_was_changed_is_named(world: World) -> None:
    world.process(world.pin())
    change(record_key("ingest", 5), b'"code_version":"v1"', b'"code_version":"v2"')(world.store)
    assert verify(world.book) == ["lane ingest: window 5 is another one in the head than in the history"]
