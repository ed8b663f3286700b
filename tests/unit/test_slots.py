"""What is at an offset of a log, told from the batches that Kafka sends, against a log whose every offset is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.clients.kafka.slots import Slot, at_offset
from tidemark.errors import Unreachable


@dataclass(frozen=True)
class Record:
    offset: int
    timestamp: int = 5
    timestamp_type: int = 0
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class Batch:
    """A batch as kafka-python shows it. A compacted one keeps its bounds, without some of its records."""

    base_offset: int
    last_offset: int
    records: list[Record] = field(default_factory=list)
    producer_id: int = -1
    is_transactional: bool = False
    is_control_batch: bool = False
    magic: int = 2
    whole: bool = True

    def validate_crc(self) -> bool:
        return self.whole

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


# Each step of a log: how many messages one producer writes (0 in no transaction), or that it ends its transaction.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(1, 3), st.just(1)),
    ),
    max_size=14,
)


@given(STEPS, st.data())
def test_every_offset_is_what_was_written_there(steps: list[tuple[str, int, int]], data: st.DataObject) -> None:
    batches: list[Batch] = []
    truth: dict[int, Slot] = {}
    first: dict[int, int] = {}
    transactions: list[tuple[int, int, int]] = []
    aborted: list[tuple[int, int, int]] = []
    end = 0
    for what, producer, number in steps:
        if what == "write":
            offsets = range(end, end + number)
            batches.append(Batch(end, end + number - 1, [Record(one) for one in offsets], producer, producer > 0))
            truth |= dict.fromkeys(offsets, Slot.HELD_BACK if producer else Slot.MESSAGE)
            if producer:
                first.setdefault(producer, end)
                transactions += [(producer, one, first[producer]) for one in offsets]
            end += number
        elif producer in first:
            start = first.pop(producer)
            for owner, offset, began in transactions:
                if owner == producer and began == start:
                    truth[offset] = Slot.MESSAGE if what == "commit" else Slot.ABORTED
            if what == "abort":
                aborted.append((producer, start, end))
            batches.append(Batch(end, end, [Record(end)], producer, is_transactional=True, is_control_batch=True))
            truth[end] = Slot.MARKER
            end += 1
    stable = min(first.values(), default=end)
    gone: set[int] = data.draw(st.sets(st.sampled_from(sorted(truth)))) if truth else set()
    # Kafka compacts no open transaction.
    gone = {one for one in gone if one < stable}
    for batch in batches:
        batch.records = [one for one in batch.records if one.offset not in gone]
    # Of a batch that became empty, Kafka may keep the bounds.
    stays = [data.draw(st.booleans()) for _ in batches]
    kept = [one for one, kept in zip(batches, stays, strict=True) if one.records or (kept and not one.is_control_batch)]
    for offset, slot in truth.items():
        # The broker begins with the batch that holds the offset, and names the transactions that end at or above it.
        sent = [one for one in kept if one.last_offset >= offset]
        named = [(producer, start) for producer, start, last in aborted if last >= offset and start < stable]
        found, message = at_offset(sent, offset, named, stable)
        held = offset >= stable and slot != Slot.MARKER
        expected = Slot.COMPACTED if offset in gone else Slot.HELD_BACK if held else slot
        assert found == expected, (offset, batches)
        assert (message is not None) == (expected in (Slot.MESSAGE, Slot.HELD_BACK, Slot.ABORTED))


def test_a_message_is_given_as_it_is() -> None:
    record = Record(7, -1, 1, b"k", None, (("h", b"\x00"), ("h", None)))
    _, message = at_offset([Batch(7, 7, [record])], 7, (), 8)
    assert message is not None
    assert (message.timestamp, message.appended) == (None, True)
    assert (message.key, message.value, message.headers) == (b"k", None, (("h", b"\x00"), ("h", None)))


def test_batches_of_the_oldest_formats_are_read_too() -> None:
    """They have no bounds of their own, and know no transactions."""
    batch = Batch(0, 0, [Record(3), Record(5)], magic=1)
    assert [at_offset([batch], one, (), 9)[0] for one in (3, 4, 5, 6)] == [
        Slot.MESSAGE,
        Slot.COMPACTED,
        Slot.MESSAGE,
        Slot.COMPACTED,
    ]


def test_a_batch_that_was_damaged_on_its_way_says_nothing() -> None:
    with pytest.raises(Unreachable, match="at offset 7 arrived damaged"):
        at_offset([Batch(7, 7, [Record(7)], whole=False)], 7, (), 8)


def test_another_producers_aborted_transaction_around_a_message_is_not_its_own() -> None:
    """Producer 2 begins at 0 and aborts at 2; producer 1 writes at 1, and commits at 3."""
    batches = [
        Batch(0, 0, [Record(0)], 2, is_transactional=True),
        Batch(1, 1, [Record(1)], 1, is_transactional=True),
    ]
    assert [at_offset(batches[one:], one, [(2, 0)], 4)[0] for one in (0, 1)] == [Slot.ABORTED, Slot.MESSAGE]
