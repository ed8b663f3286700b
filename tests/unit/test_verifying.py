"""A ledger that was changed or has lost something is found out, by what is stored alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.protocol_world import RUN, NoWork, World, hold, plan
from tidemark.commit import protocol
from tidemark.ledger.ledger import head_key, record_key
from tidemark.ledger.records import LaneKind, Record, positions
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import open_lane
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition


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
    assert verify(world.ledger) == []
    world.pin()
    assert verify(world.ledger) == []


@pytest.mark.covers("F19")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (forget(*record_key("ingest", 1)), ["lane ingest: window 1 is missing in the history"]),
        (forget(*record_key("ingest", 2)), ["lane ingest: window 2 is missing in the history"]),
        (forget(*record_key("ingest", 3)), ["lane ingest: window 3 is missing in the history"]),
        (
            lambda store: [forget(*record_key("ingest", seq))(store) for seq in (1, 3)],
            [f"lane ingest: window {seq} is missing in the history" for seq in (1, 3)],
        ),
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
    assert verify(world.ledger) == said


@pytest.mark.covers("F19")
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_where_a_commit_writes_the_history_its_last_record_is_missed_too(lost: int) -> None:
    world = World(TransactionalStore())
    world.open()
    for _ in range(3):
        world.process(world.pin())
    assert verify(world.ledger) == []
    del world.store.values[record_key("ingest", lost)]
    assert verify(world.ledger) == [f"lane ingest: window {lost} is missing in the history"]


@pytest.mark.covers("F19")
def test_a_first_window_that_names_one_before_it_is_named(world: World) -> None:
    change(record_key("ingest", 1), b'"previous":null', b'"previous":"x"')(world.store)
    assert verify(world.ledger) == [
        "lane ingest: window 1 says that there was one before it",
        "lane ingest: window 1 is not the one that window 2 followed: one was changed",
    ]


def test_a_lane_that_is_opened_meanwhile_is_no_damage(world: World) -> None:
    """Between reading the heads and reading the history, somebody opens a replay and commits a window in it."""
    whole = world.ledger.records_with_bytes

    def open_meanwhile() -> Iterator[tuple[bytes, Record]]:
        world.ledger.records_with_bytes = whole  # type: ignore[method-assign]
        at = TopicPartition("logs", 0)
        ref = world.ledger.store_selection(RangeSet([OffsetRange(at, 0, 10)]))
        start = positions({at: 0})
        open_lane(world.ledger, "replay-1", LaneKind.REPLAY, run="r", start=start, selection=ref, reason="a test")
        pending = protocol.pin(world.ledger, world.sweeps, "replay-1", plan)
        assert pending is not None
        protocol.process(world.ledger, world.sweeps, NoWork(), hold, "replay-1", 1, RUN)
        return whole()

    world.ledger.records_with_bytes = open_meanwhile  # type: ignore[method-assign]
    assert verify(world.ledger) == []


def test_a_last_window_that_was_changed_is_named(world: World) -> None:
    world.process(world.pin())
    change(record_key("ingest", 5), b'"code_version":"v1"', b'"code_version":"v2"')(world.store)
    assert verify(world.ledger) == ["lane ingest: window 5 is another one in the head than in the history"]
