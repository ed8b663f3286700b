"""Aggregates: states that merge, their bytes in HBase, and the windows that they belong to."""

from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.compactions import committed
from tidemark.errors import ProcessingFailed, WrongUse
from tidemark.ledger.book import Committed
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.aggregates.computed import Aggregate, Function, merged
from tidemark.sinks.aggregates.rows import Contribution, decode, encode, key_of, qualifier, row_key
from tidemark.sinks.aggregates.table import Layout
from tidemark.sinks.first_reads import FirstWindows
from tidemark.sinks.hbase.keyed_rows import mark_of
from tidemark.sinks.hbase.rows import Mark

AT = TopicPartition("logs", 0)


def of(function: Function, kind: str) -> Aggregate:
    return Aggregate("x", function, None if function == "count" else "field", kind)


@pytest.mark.parametrize(
    ("function", "kind", "states", "total"),
    [
        ("count", "integer", [b"3", b"4"], b"7"),
        # More than 64 bits.
        ("sum", "integer", [b"9223372036854775807", b"9223372036854775807", b"-1"], b"18446744073709551613"),
        ("sum", "double", [b"0.5", b"1.0E10"], b"10000000000.5"),
        ("sum", "double", [b"NaN", b"1.0"], b"nan"),
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
    assert qualifier("ingest", 12) == b"ingest/0000000000000000012"
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


def test_keys_that_are_none_are_refused() -> None:
    with pytest.raises(ProcessingFailed, match="a key takes 20005 bytes, and 16384 is the most"):
        row_key([b"x" * 20_000])
    for row in (row_key([b"abc"])[:-1], row_key([b"abc"]) + b"\x07", b"\x00\x01\x00"):
        with pytest.raises(ValueError, match="not a row of this layout"):
            key_of(row)


def test_a_table_keeps_its_key_and_its_values() -> None:
    made = Layout(["host"], [of("sum", "integer")])
    made.check("t", made.marked())
    with pytest.raises(WrongUse, match=r't was made with key \["host"\], the stream file says \["path"\]'):
        Layout(["path"], made.aggregates).check("t", made.marked())
    with pytest.raises(WrongUse, match=r"t was made with values .*Name another table"):
        Layout(["host"], [of("max", "integer")]).check("t", made.marked())


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
    assert first.names == (("ingest", 1), ("ingest", 2), ("backfill-1", 1), ("ingest", 3))
    assert [first.at(AT, offset) for offset in (0, 9, 10, 35, 59, 60)] == [0, 0, 1, 2, 3, None]
    assert first.at(TopicPartition("logs", 1), 0) is None
    assert first.touched(ranges((5, 6), (29, 31))) == [0, 1, 2]
    assert first.whole(ranges((12, 13), (70, 71))) == ranges((10, 30), (70, 71))


def test_a_replay_takes_whole_windows_and_all_below_them() -> None:
    first = FirstWindows(WINDOWS)
    left = ranges((0, 10), (30, 60))
    assert first.closed(ranges((0, 3)), left, made="sums") == ranges((0, 10))
    assert first.closed(ranges((0, 10), (30, 41)), left, made="sums") == left
    # Nothing below is left for later, where the lane's position would have passed it.
    assert first.closed(ranges((41, 42)), left, made="sums") == left
    with pytest.raises(WrongUse, match=r"^sums are made of whole windows.* without logs/0 \[10, 12\)"):
        first.closed(ranges((12, 13)), ranges((12, 30)), made="sums")


def recomputed(*more: Committed) -> dict[tuple[str, int], int]:
    windows = [*WINDOWS, *more]
    return FirstWindows(windows).recomputed(windows, lambda record: True)


def test_the_newest_window_over_all_of_its_offsets_counts() -> None:
    counts = {("ingest", 1): 1, ("ingest", 2): 2, ("backfill-1", 1): 7, ("ingest", 3): 3}
    assert recomputed() == counts
    again = window(1, range(10, 40), lane="replay-1", generation=20)
    assert recomputed(again) == {**counts, ("ingest", 2): 20, ("backfill-1", 1): 20}
    # One of before the sink, which has read only a part.
    part = window(1, range(10, 20), lane="replay-2", generation=30)
    assert recomputed(again, part) == recomputed(again)


def test_windows_without_the_sink_do_not_count() -> None:
    windows = [*WINDOWS, window(1, range(60), lane="replay-1", generation=30)]
    wrote = {1, 3, 30}
    found = FirstWindows(windows).recomputed(windows, lambda record: record.attempt.generation in wrote)
    assert found == {("ingest", 1): 30, ("ingest", 2): 30, ("backfill-1", 1): 30, ("ingest", 3): 30}
    found = FirstWindows(WINDOWS).recomputed(WINDOWS, lambda record: record.attempt.generation in wrote)
    assert found == {("ingest", 1): 1, ("ingest", 3): 3}
