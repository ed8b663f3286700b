"""What a ledger's values say together: heads, history, receipts and what is shown to other tools."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.compactions import committed
from tests.support.memory import LOST_APPLIED, MemoryStore, TransactionalStore
from tests.support.protocol_world import AT, LANE, RUN, NoWork, World
from tests.support.protocol_world import _no_pause as _no_pause
from tidemark.commit import protocol
from tidemark.errors import LedgerContradiction, TooLarge, Unreachable
from tidemark.ledger.codec import encode
from tidemark.ledger.ledger import Committed, Ledger, head_key, receipt_key, record_key
from tidemark.ledger.records import (
    BlockTallies,
    Gap,
    GapKind,
    Head,
    LaneState,
    Position,
    Selection,
    SinkReceipt,
    covers,
    next_offsets,
    positions,
)
from tidemark.ledger.stores.contract import Key, Offsets
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition


@pytest.fixture(params=[MemoryStore, TransactionalStore])
def world(request: pytest.FixtureRequest) -> World:
    made = World(request.param())
    made.open()
    made.process(made.pin())
    return made


def transactional(world: World) -> bool:
    return world.store.commits_records


def commit(world: World) -> None:
    """A window that is committed and not settled."""
    protocol.commit(world.ledger, protocol.take(world.ledger, LANE, world.pin(), RUN), NoWork().verify())


def test_what_is_settled_stays_so(world: World) -> None:
    """Who was asleep since the window before may mark that one as settled late, or ask for it."""
    before = world.head.last
    commit(world)
    last = world.head.last
    assert before is not None
    assert last is not None
    protocol.settle(world.ledger, world.sweeps, LANE)
    world.ledger.mark_settled(before)
    assert world.ledger.is_settled(last)
    assert world.ledger.is_settled(before)


def test_each_window_is_settled_by_itself(world: World) -> None:
    """A mark of the window before says nothing of this one."""
    commit(world)
    last = world.head.last
    assert last is not None
    assert not world.ledger.is_settled(last)
    published = len(world.store.published)
    protocol.settle(world.ledger, world.sweeps, LANE)
    assert world.ledger.is_settled(last)
    assert world.store.published[published:] == [(last.committed_at, {"logs": {0: 20}})]
    protocol.settle(world.ledger, world.sweeps, LANE)
    assert len(world.store.published) == published + 1


@pytest.mark.covers("F19")
def test_a_last_window_that_its_transaction_must_have_written_is_missed() -> None:
    world = World(TransactionalStore())
    world.open()
    commit(world)
    del world.store.values[record_key(LANE, 1)]
    with pytest.raises(
        LedgerContradiction, match="window 1 stands in the head and is missing in the history"
    ) as caught:
        world.pin()
    assert caught.value.exit_code == 7


@pytest.mark.covers("F19")
def test_a_last_window_that_is_another_one_in_the_history_is_refused(world: World) -> None:
    key = record_key(LANE, 1)
    world.store.values[key] = world.store.values[key].replace(b'"code_version":"v1"', b'"code_version":"v2"')
    for look in (world.pin, world.ledger.committed):
        with pytest.raises(LedgerContradiction, match=r"stands in the head as .*v1.* and in the history as .*v2"):
            look()


def test_a_record_that_another_one_has_put_meanwhile_is_refused() -> None:
    """Between looking whether the window is settled and putting its record."""
    world = World()
    world.open()
    commit(world)
    last = world.head.last
    assert last is not None

    def overtake(key: Key) -> None:
        world.store.values[key] = encode(structs.replace(last, committed_at=5))

    world.store.before_swap = overtake
    with pytest.raises(LedgerContradiction, match=r"stands in the head as .* and in the history as"):
        protocol.settle(world.ledger, world.sweeps, LANE)


def test_an_export_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    shown: list[Offsets] = []

    def export(offsets: Offsets) -> None:
        shown.append(offsets)
        raise Unreachable("Kafka is away")

    world = World()
    world.ledger = Ledger(world.store, "s", clock=lambda: world.now, export=export)
    world.open()
    with caplog.at_level(logging.WARNING):
        world.process(world.pin())
    assert shown == [{"logs": {0: 10}}]
    assert world.head.seq == 1
    assert "the offsets of s were not exported: Kafka is away" in caplog.text


@pytest.mark.covers("F19")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda head: structs.replace(head, seq=3), "its last one has number 1"),
        (lambda head: structs.replace(head, positions=positions({AT: 11})), "contradicts itself"),
        (
            lambda head: structs.replace(
                head, pending=structs.replace(head.pending, window=structs.replace(head.pending.window, seq=7))
            ),
            "its pending one has number 7",
        ),
        (
            lambda head: structs.replace(
                head, pending=structs.replace(head.pending, window=structs.replace(head.pending.window, seq=1))
            ),
            "its pending one has number 1",
        ),
        (lambda head: structs.replace(head, state=LaneState.CLOSED), "contradicts itself"),
        (lambda head: structs.replace(head, lane="replay-1"), "says that it is s/replay-1"),
        (lambda head: structs.replace(head, last=None), "its last one is missing"),
    ],
)
def test_a_head_that_was_edited_is_refused_and_left(world: World, change: Callable[[Head], Head], said: str) -> None:
    world.pin()
    assert world.ledger.head(LANE) is not None
    edited = encode(change(world.head))
    world.store.values[head_key(LANE)] = edited
    for look in (lambda: world.ledger.head(LANE), world.ledger.heads, lambda: world.ledger.heads_of([LANE])):
        with pytest.raises(LedgerContradiction, match=said):
            look()
    assert world.store.values[head_key(LANE)] == edited


def test_no_window_falls_between_the_heads_and_the_history(world: World) -> None:
    """Two windows are committed after the heads were read by whoever lists all windows."""
    read, done = world.store.read_several, []

    def meanwhile(keys: Sequence[Key]) -> list[bytes | None]:
        found = read(keys)
        if not done:
            done.append(keys)
            world.process(world.pin())
            world.process(world.pin())
        return found

    world.store.read_several = meanwhile  # type: ignore[method-assign]
    assert sorted(one.record.seq for one in world.ledger.committed()) == [1, 2, 3]


def test_windows_are_listed_before_and_after_they_are_settled(world: World) -> None:
    commit(world)
    before = world.ledger.committed()
    assert [(one.record.seq, one.covers) for one in before] == [
        (1, RangeSet([OffsetRange(AT, 0, 10)])),
        (2, RangeSet([OffsetRange(AT, 10, 20)])),
    ]
    view = world.ledger.view()
    assert (view.windows, view.seqs) == (before, {LANE: 2})
    protocol.settle(world.ledger, world.sweeps, LANE)
    assert not world.ledger.changed_since(view)
    commit(world)
    assert world.ledger.changed_since(view)


def test_some_windows_by_their_numbers(world: World) -> None:
    world.process(world.pin())
    first, second = world.ledger.records([(LANE, 1), (LANE, 2)])
    assert (first.seq, second.seq) == (1, 2)
    assert world.ledger.newest_records(LANE, 1) == [second]
    assert list(world.ledger.records_of(LANE)) == [first, second]
    world.store.values[record_key(LANE, 1)] = world.store.values[record_key(LANE, 2)]
    with pytest.raises(LedgerContradiction, match="holds window 2 of lane ingest"):
        world.ledger.records([(LANE, 1)])
    del world.store.values[record_key(LANE, 1)]
    with pytest.raises(LedgerContradiction, match="is missing, although the lane has committed that window"):
        world.ledger.records([(LANE, 1)])


def test_a_late_receipt_is_put_once(world: World) -> None:
    record = structs.replace(world.ledger.records([(LANE, 1)])[0], receipt=None)
    receipt = NoWork().verify()
    assert world.ledger.with_receipt(record).receipt is None
    world.store.faults = [LOST_APPLIED]
    world.ledger.store_receipt(record, receipt)
    assert world.ledger.with_receipt(record).receipt == receipt
    with pytest.raises(Exception, match="changed by somebody else"):
        world.ledger.store_receipt(record, structs.replace(receipt, started_at=9))
    assert world.ledger.with_receipt(record).receipt == receipt
    assert receipt_key(record) in world.store.values


def test_values_that_the_store_cannot_hold_are_refused(world: World) -> None:
    world.store.max_value_bytes = 60
    ranges = RangeSet(OffsetRange(AT, 2 * number, 2 * number + 1) for number in range(20))
    with pytest.raises(TooLarge, match="a selection of 20 offsets"):
        world.ledger.store_selection(ranges)
    attempt = world.ledger.records([(LANE, 1)])[0].attempt
    many = BlockTallies(size=5, partitions=tuple(("t" * 50, 1, number, ()) for number in range(3)))
    with pytest.raises(TooLarge, match="the tallies of window ingest/1 by blocks"):
        world.ledger.store_blocks(LANE, 1, attempt, many)
    assert not [key for key in world.store.values if key[0] in ("selection", "blocks")]


incarnations = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3), st.integers(0, 2), st.integers(0, 99)),
    unique_by=lambda one: one[:3],
)


@given(incarnations, st.randoms())
def test_other_tools_see_the_newest_incarnations_offsets(
    found: list[tuple[str, int, int, int]], chance: object
) -> None:
    chance.shuffle(found)  # type: ignore[attr-defined]
    newest = {topic: max(number for name, number, *_ in found if name == topic) for topic, *_ in found}
    expected: dict[str, dict[int, int]] = {}
    for topic, number, partition, offset in found:
        # A recreated topic may have fewer partitions; those that it had before are no longer its own.
        if number == newest[topic]:
            expected.setdefault(topic, {})[partition] = offset
    assert next_offsets(Position(*one) for one in found) == expected
    known = {TopicPartition(topic, partition, number): offset for topic, number, partition, offset in found}
    assert [one.at for one in positions(known)] == sorted(known)
    assert {one.at: one.offset for one in positions(known)} == known


@pytest.mark.parametrize(("start", "until"), [(5, 5), (6, 5), (-1, 5)])
def test_a_gap_has_at_least_one_offset(start: int, until: int) -> None:
    with pytest.raises(ValueError, match=f"from {start} until {until} is not a gap"):
        Gap(kind=GapKind.LOST, policy="p", topic="t", incarnation=1, partition=0, start=start, until=until)


def test_an_empty_range_of_a_selection_is_one() -> None:
    """Not an error: it names nothing. A range that ends before it starts is refused."""
    assert Selection(partitions=(("t", 1, 0, ((5, 5),)),)).as_ranges() == RangeSet()
    for start, until in ((6, 5), (-1, 5)):
        with pytest.raises(ValueError, match="is not a range of offsets"):
            Selection(partitions=(("t", 1, 0, ((start, until),)),))


def test_a_window_is_about_the_part_of_its_selection_that_its_ranges_hold() -> None:
    window = committed("/lake", 1, range(10, 20)).record.window
    selection = RangeSet([OffsetRange(AT, 0, 12), OffsetRange(AT, 18, 30)])
    assert covers(window, None) == RangeSet([OffsetRange(AT, 10, 20)])
    assert covers(window, selection) == RangeSet([OffsetRange(AT, 10, 12), OffsetRange(AT, 18, 20)])


def test_dead_letters_are_a_place_too() -> None:
    record = committed("/lake", 1, range(10)).record
    assert [place.name for place in record.places] == ["parquet"]
    assert record.receipt is not None
    dead = SinkReceipt(name="dead_letters", type="hbase", place={})
    both = structs.replace(record, receipt=structs.replace(record.receipt, dead_letters=dead))
    assert [place.name for place in both.places] == ["parquet", "dead_letters"]
    assert structs.replace(record, receipt=None).places == ()
    assert Committed(record, RangeSet()).generation == record.attempt.generation
