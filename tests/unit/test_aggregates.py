"""Aggregates: states that merge, their bytes in HBase, and the blocks that they belong to."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.compactions import committed
from tidemark.errors import LedgerContradiction, ProcessingFailed, WrongUse
from tidemark.ledger.book import Committed
from tidemark.ledger.records import LaneKind, SinkReceipt
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.first_reads import FirstWindows
from tidemark.sinks.hbase.aggregates.columns import BlockColumns
from tidemark.sinks.hbase.aggregates.rows import (
    Contribution,
    block_of,
    block_qualifier,
    decode,
    encode,
    key_of,
    row_key,
)
from tidemark.sinks.hbase.aggregates.states import Aggregate, Function, merged
from tidemark.sinks.hbase.aggregates.table import Layout, counting, place_of
from tidemark.sinks.hbase.keyed_rows import mark_of
from tidemark.sinks.stored_rows import Mark

AT = TopicPartition("logs", 0)


def of(function: Function, kind: str) -> Aggregate:
    return Aggregate("x", function, None if function == "count" else "field", kind)


@pytest.mark.parametrize(
    ("function", "kind", "states", "total"),
    [
        ("count", "integer", [b"3", b"4"], b"7"),
        # More than 64 bits.
        ("sum", "integer", [b"9223372036854775807", b"9223372036854775807", b"-1"], b"18446744073709551613"),
        ("sum", "double", [b"0.5", b"1.0E10"], b"1.00000000005E10"),
        ("sum", "double", [b"NaN", b"1.0"], b"NaN"),
        ("sum", "double", [b"Infinity", b"1.0"], b"Infinity"),
        # Which of them comes first is chance.
        ("max", "double", [b"-0.0", b"0.0"], b"0.0"),
        ("max", "double", [b"0.0", b"-0.0"], b"0.0"),
        ("min", "double", [b"-0.0"], b"0.0"),
        ("min", "integer", [b"10", b"9", b"-3"], b"-3"),
        ("max", "integer", [b"10", b"9"], b"10"),
        # As Spark: NaN is larger than all numbers.
        ("min", "double", [b"NaN", b"Infinity", b"2.0"], b"2.0"),
        ("max", "double", [b"1.0", b"NaN", b"Infinity"], b"NaN"),
        ("max", "string", [b"z", "é".encode()], "é".encode()),
        ("max", "timestamp", [b"2026-11-21 07:10:00", b"2026-11-21 07:10:00.5"], b"2026-11-21 07:10:00.5"),
        ("max", "timestamp", [b"2026-11-21 07:10:00.45", b"2026-11-21 07:10:00.5"], b"2026-11-21 07:10:00.5"),
        ("max", "timestamp", [b"+10000-01-01 00:00:00", b"9999-12-31 23:59:59"], b"+10000-01-01 00:00:00"),
        ("min", "timestamp", [b"-0044-03-15 00:00:00", b"0001-01-01 00:00:00"], b"-0044-03-15 00:00:00"),
        ("sum", "integer", [], None),
    ],
)  # fmt: skip
def test_states_merge(function: Function, kind: str, states: list[bytes], total: bytes | None) -> None:
    assert of(function, kind).merged(states) == total


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), min_size=1))
def test_the_total_of_contributions_is_that_of_the_rows(windows: list[list[int]]) -> None:
    aggregates = [
        Aggregate(name, name, None if name == "count" else "f", "integer") for name in ("count", "sum", "max")
    ]  # type: ignore[arg-type]
    states = [
        {"count": b"%d" % len(rows), "sum": b"%d" % sum(rows), "max": b"%d" % max(rows)} for rows in windows
    ]  # fmt: skip
    rows = [row for window in windows for row in window]
    assert merged(aggregates, states) == {
        "count": b"%d" % len(rows),
        "sum": b"%d" % sum(rows),
        "max": b"%d" % max(rows),
    }


def test_nulls_are_passed_over() -> None:
    aggregates = [of("max", "integer")]
    assert merged(aggregates, [{}, {"x": b"3"}, {}]) == {"x": b"3"}
    assert merged(aggregates, [{}, {}]) == {}


# bytes


def test_a_key_to_the_byte() -> None:
    body = b"\x01\x00\x00\x00\x09a.example" + b"\x00" + b"\x01\x00\x00\x00\x00"
    row = row_key([b"a.example", None, b""])
    assert row == bytes([xxhash.xxh64_intdigest(body) % 16]) + body
    assert key_of(row) == (b"a.example", None, b"")


def test_a_contribution_to_the_byte() -> None:
    cell = encode(7, "replay-1", 2, 3, -1, [("requests", b"3"), ("none", None), ("bytes", b"999")])
    packed = b"5:_rows1:34:_ack16:ffffffffffffffff8:requests1:35:bytes3:999"
    mark = struct.pack(">BBQQQ", 1, 0, 7, xxhash.xxh64_intdigest(packed), 2) + b"replay-1"
    assert cell == struct.pack(">H", len(mark)) + mark + packed
    assert block_qualifier(TopicPartition("logs", 7), 12_000) == b"logs/7/0000000000000012000"
    assert block_qualifier(TopicPartition("logs", 7, 2), 0) == b"logs#2/7/0000000000000000000"
    states = {"requests": b"3", "bytes": b"999"}
    assert decode(cell) == Contribution(mark_of(cell), 3, "f" * 16, states)
    assert mark_of(cell) == Mark(7, xxhash.xxh64_intdigest(packed), "replay-1", 2)


def test_a_damaged_contribution_is_seen() -> None:
    cell = encode(7, "ingest", 2, 3, 5, [("bytes", b"999")])
    assert decode(cell).whole
    assert not decode(cell.replace(b"3:999", b"3:998")).whole
    assert not decode(cell[:-2]).whole


@given(st.lists(st.none() | st.binary(max_size=6), min_size=1, max_size=4))
def test_keys_come_back_as_they_were(key: list[bytes | None]) -> None:
    assert key_of(row_key(key)) == tuple(key)


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True),
    st.integers(0, 2**31),
    st.integers(1, 99),
    st.integers(0, MAX_OFFSET),
)
def test_blocks_come_back_as_they_were(topic: str, partition: int, incarnation: int, start: int) -> None:
    at = TopicPartition(topic, partition, incarnation)
    assert block_of(block_qualifier(at, start)) == (at, start)


def test_other_columns_are_no_blocks() -> None:
    for name in (
        b"ingest/0000000000000000012",
        b"",
        b"logs/0/12",
        b"logs/0/0000000000000012000x",
        b"a/b/0/0000000000000012000",
    ):
        assert block_of(name) is None


def test_keys_that_are_none_are_refused() -> None:
    with pytest.raises(ProcessingFailed, match="a key takes 20005 bytes, and 16384 is the most"):
        row_key([b"x" * 20_000])
    for row in (row_key([b"abc"])[:-1], row_key([b"abc"]) + b"\x07", b"\x00\x01\x00"):
        with pytest.raises(ValueError, match="not a row of this layout"):
            key_of(row)


def test_a_table_keeps_its_key_and_its_values() -> None:
    made = Layout(["host"], [of("sum", "integer")], 1000)
    made.check("t", made.marked())
    with pytest.raises(WrongUse, match=r't was made with key \["host"\], the stream file says \["path"\]'):
        Layout(["path"], made.aggregates, 1000).check("t", made.marked())
    with pytest.raises(WrongUse, match=r"t was made with values .*Name another table"):
        Layout(["host"], [of("max", "integer")], 1000).check("t", made.marked())


def test_a_table_keeps_its_blocks() -> None:
    made, other = (Layout(["host"], [of("sum", "integer")], block) for block in (1000, 100))
    assert made.marked() == {"key": ["host"], "values": {"x": ["sum", "field", "integer"]}, "block_offsets": 1000}
    with pytest.raises(
        WrongUse, match=r"t was made with block_offsets 1000, .* says 100.* Write block_offsets: 1000, or"
    ):
        other.check("t", made.marked())


# windows


def window(seq: int, offsets: range, *, lane: str = "ingest", generation: int | None = None) -> Committed:
    found = committed("/lake", seq, offsets, lane=lane, generation=generation)
    return Committed(structs.replace(found.record, kind=LaneKind(lane.partition("-")[0])), found.covers)


def ranges(*intervals: tuple[int, int]) -> RangeSet:
    return RangeSet(OffsetRange(AT, start, until) for start, until in intervals)


# The backfill fills a hole between two windows of the ingest.
WINDOWS = [
    window(1, range(10)),
    window(2, range(10, 30)),
    window(1, range(30, 40), lane="backfill-1", generation=7),
    window(3, range(40, 60)),
]


def test_each_offset_belongs_to_the_window_that_read_it_first() -> None:
    first = FirstWindows([window(1, range(60), lane="replay-1", generation=99), *WINDOWS])
    assert first.covers == tuple(one.covers for one in WINDOWS)
    assert [first.at(AT, offset) for offset in (0, 9, 10, 35, 59, 60)] == [0, 0, 1, 2, 3, None]
    assert first.at(TopicPartition("logs", 1), 0) is None
    assert first.touched(ranges((5, 6), (29, 31))).covers == first.covers[:3]
    assert first.whole(ranges((12, 13), (70, 71)), [100]) == ranges((10, 30), (70, 71))


def test_a_replay_takes_whole_blocks_and_all_below_them() -> None:
    closed = partial(FirstWindows(WINDOWS).closed, because="sums are made of whole blocks", blocks=[100])
    left = ranges((0, 10), (30, 60))
    assert closed(ranges((0, 3)), left) == ranges((0, 10))
    assert closed(ranges((0, 10), (30, 41)), left) == left
    # Nothing below is left for later, where the lane's position would have passed it.
    assert closed(ranges((41, 42)), left) == left
    with pytest.raises(WrongUse, match=r"^sums are made of whole blocks.* without logs/0@10-12"):
        closed(ranges((12, 13)), ranges((12, 30)))


def counted(*more: Committed) -> list[int | None]:
    """The generation that counts of each window, in a table with one block."""
    counts = counting([with_place(one, 100) for one in [*WINDOWS, *more]], "t", 100)
    return [counts(block_qualifier(AT, start)) for start in (0, 10, 30, 40)]


def test_the_newest_window_over_a_block_counts() -> None:
    assert counted() == [1, 2, 7, 3]
    assert counted(window(1, range(10, 40), lane="replay-1", generation=20)) == [1, 20, 20, 3]


def test_windows_without_the_sink_do_not_count() -> None:
    windows = [*WINDOWS, window(1, range(60), lane="replay-1", generation=30)]
    for wrote, found in (({1, 3, 30}, [30, 30, 30, 30]), ({1, 3}, [1, None, None, 3])):
        counts = counting([with_place(one, 100) if one.generation in wrote else one for one in windows], "t", 100)
        assert [counts(block_qualifier(AT, start)) for start in (0, 10, 30, 40)] == found


# blocks


def units_of(windows: list[Committed], block: int) -> list[set[int]]:
    """Each unit by its offsets, one by one."""
    found: dict[tuple[int, int], set[int]] = {}
    for number, one in enumerate(windows):
        for offset in offsets_of(one.covers):
            found.setdefault((number, offset // block), set()).add(offset)
    return list(found.values())


def offsets_of(found: RangeSet) -> set[int]:
    return {offset for one in found for offset in range(one.start, one.until)}


def set_of(offsets: Iterable[int]) -> RangeSet:
    return RangeSet(OffsetRange(AT, offset, offset + 1) for offset in offsets)


@st.composite
def first_windows(draw: st.DrawFn) -> list[Committed]:
    """Windows of an ingest, and one or two backfills that have read some of what lies between and beside them."""
    lane = st.sampled_from(["ingest", "backfill-1", "backfill-2", ""])
    parts = draw(st.lists(st.tuples(lane, st.integers(1, 20)), max_size=10))
    owners = [owner for owner, length in parts for _ in range(length)][:60]
    numbered: dict[tuple[str, int], set[int]] = {}
    seq = 0
    for offset, owner in enumerate(owners):
        # A window of the ingest is one range, one of a backfill may be any offsets.
        seq += owner == "ingest" and (offset == 0 or owners[offset - 1] != "ingest" or draw(st.booleans()))
        if owner:
            numbered.setdefault((owner, seq if owner == "ingest" else 1), set()).add(offset)
    return [
        Committed(window(number, range(1), lane=lane, generation=generation).record, set_of(offsets))
        for generation, ((lane, number), offsets) in enumerate(numbered.items(), start=1)
    ]


blocks = st.sampled_from([1, 2, 3, 4, 7, 100])
chosen = st.sets(st.integers(0, 70), max_size=6)


@given(first_windows(), chosen, blocks)
def test_a_selection_is_widened_to_its_units_and_no_further(
    windows: list[Committed], some: set[int], block: int
) -> None:
    wanted = set(some)
    for unit in units_of(windows, block):
        if unit & some:
            wanted |= unit
    first = FirstWindows(windows)
    assert offsets_of(first.whole(set_of(some), [block])) == wanted
    if block == 1:
        assert wanted == some


@given(first_windows(), chosen, blocks, blocks)
def test_a_selection_is_widened_for_several_sinks(windows: list[Committed], some: set[int], one: int, two: int) -> None:
    wanted: set[int] = set()
    wider = set(some)
    while wider != wanted:
        wanted = set(wider)
        for unit in [*units_of(windows, one), *units_of(windows, two)]:
            if unit & wanted:
                wider |= unit
    assert offsets_of(FirstWindows(windows).whole(set_of(some), [one, two])) == wanted


def test_blocks_of_two_sinks_lead_on_to_each_other() -> None:
    # [0, 3), [0, 4), [0, 6), [0, 8), [0, 9), [0, 12).
    assert FirstWindows([window(1, range(100))]).whole(ranges((2, 3)), [3, 4]) == ranges((0, 12))


@given(first_windows(), st.sets(st.integers(0, 70)), blocks)
def test_intact_units_are_those_that_are_held_as_a_whole(windows: list[Committed], held: set[int], block: int) -> None:
    intact = FirstWindows(windows).intact(set_of(held), block)
    wanted = {offset for unit in units_of(windows, block) if unit <= held for offset in unit}
    assert {offset for covers in intact.covers for offset in offsets_of(covers)} == wanted
    assert {offset for offset in range(70) if intact.at(AT, offset) is not None} == wanted


@pytest.mark.slow
@given(first_windows(), st.sampled_from([1, 2, 3, 4, 7, 100]))
def test_a_unit_is_named_by_its_first_offset(windows: list[Committed], size: int) -> None:
    first = FirstWindows(windows)
    lowest = {offset: min(unit) for unit in units_of(windows, size) for offset in unit}
    assert {offset: first.start(AT, offset, size) for offset in range(70)} == {
        offset: lowest.get(offset) for offset in range(70)
    }
    # What the writer makes of the first offset of the block, with the offsets of one window.
    for one in windows:
        for offset in offsets_of(one.covers):
            assert one.covers.at_or_above(AT, offset - offset % size) == lowest[offset]


@given(first_windows(), st.lists(chosen, max_size=4), st.sampled_from([1, 2, 3, 4, 7, 100]))
def test_the_newest_replay_of_a_block_counts(windows: list[Committed], replays: list[set[int]], size: int) -> None:
    first = FirstWindows(windows)
    lately = [
        Committed(window(1, range(1), lane=f"replay-{number}", generation=100 + number).record, wide)
        for number, some in enumerate(replays)
        if (wide := first.whole(set_of(some), [size]))
    ]
    counts = counting([with_place(one, size) for one in [*windows, *lately]], "t", size)
    for unit in units_of(windows, size):
        over = [one.generation for one in [*windows, *lately] if unit <= offsets_of(one.covers)]
        assert counts(block_qualifier(AT, min(unit))) == max(over)
    assert counts(b"no block") is None
    assert counts(block_qualifier(AT, 99)) is None


def with_place(one: Committed, block: int, table: str = "t") -> Committed:
    receipt = one.record.receipt
    assert receipt is not None
    sink = SinkReceipt(name="sums", type="hbase_aggregates", place=place_of("hbase_default", table, block))
    return Committed(structs.replace(one.record, receipt=structs.replace(receipt, sinks=(sink,))), one.covers)


def test_what_was_written_to_another_table_or_in_other_blocks_does_not_count() -> None:
    again = window(1, range(4, 8), lane="replay-1", generation=20)
    name = block_qualifier(AT, 4)
    windows = [with_place(one, 4) for one in WINDOWS]
    assert counting([*windows, with_place(again, 4)], "t", 4)(name) == 20
    # The table was dropped, and made again with other blocks.
    for other in (with_place(again, 2), with_place(again, 4, "u")):
        assert counting([*windows, other], "t", 4)(name) == 1


def test_a_row_that_the_window_of_the_ledger_does_not_have_is_refused() -> None:
    at = TopicPartition("t", 0)
    columns = BlockColumns(RangeSet([OffsetRange(at, 5, 8)]))
    assert columns.column(at, 4) == block_qualifier(at, 5)
    # Spark gives no block to a row that no window has read first: somebody has changed the window meanwhile.
    with pytest.raises(LedgerContradiction, match=r"that the window has not read, .* changed while it was worked on"):
        columns.column(at, None)
    with pytest.raises(LedgerContradiction, match=r"in the block from 8 on, .* changed while it was worked on"):
        columns.column(at, 8)
