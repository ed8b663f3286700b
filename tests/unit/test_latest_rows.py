"""The newest row of each key in HBase: keys and cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hbase_in_memory import CLUSTERS
from tests.support.latest_tables import Change, HBaseLatestInMemory
from tests.support.streams_in_memory import at, offsets
from tidemark.commit.protocol import Step
from tidemark.errors import ProcessingFailed, WrongUse
from tidemark.ledger.lookup import look_up
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.sinks.hbase.keyed import rows as latest
from tidemark.sinks.hbase.keyed.encoding import encoded
from tidemark.sinks.hbase.keyed.rows import (
    KeyedMark,
    decode_place,
    encode_place,
    key_text,
    places_within,
    row_key,
)
from tidemark.sinks.hbase.latest.settings import TYPE
from tidemark.sinks.hbase.netstrings import unpack
from tidemark.sinks.hbase.rows import split_keys
from tidemark.sinks.latest.rows import columns
from tidemark.sinks.stored_rows import Mark, Place, StoredRow
from tidemark.views.messages import trace


def test_a_key_and_a_place_to_the_byte() -> None:
    body = b"\x06orders" + b"\x01\x00\x00\x00\x01a" + b"\x00" + b"\x01\x00\x00\x00\x00"
    assert row_key("orders", [b"a", None, b""], TYPE)[1:] == body
    place = Place(TopicPartition("orders", 3, 2), 5, 1)
    assert encode_place(place) == b"\x06orders\x00\x02\x00\x00\x00\x03" + bytes(7) + b"\x05\x00\x00\x00\x01"
    assert KeyedMark(7, 2**64 - 1, -2, True, True).encode() == (
        b"\x01\x03" + bytes(7) + b"\x07" + b"\xff" * 8 + b"\xff" * 7 + b"\xfe"
    )


KEYS = st.tuples(
    st.sampled_from(["a", "a-b", "ab"]), st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=3)
)


@given(KEYS, KEYS)
def test_different_keys_are_different_rows(
    one: tuple[str, list[bytes | None]], other: tuple[str, list[bytes | None]]
) -> None:
    assert (row_key(*one, TYPE) == row_key(*other, TYPE)) == (one == other)
    named = [str(number) for number in range(len(one[1]))]
    found = latest.KeyedRow(row_key(*one, TYPE), {}).key_fields(named)
    assert [found.get(name) for name in named] == one[1]


PLACES = st.builds(
    Place,
    st.builds(TopicPartition, st.sampled_from(["a", "a-b", "ab"]), st.integers(0, 2**31 - 1), st.integers(1, 9)),
    st.integers(0, 2**62),
    st.integers(0, 9),
)


@given(PLACES, st.integers(0, 2**62), st.integers(1, 2**40))
def test_the_places_of_a_range_are_those_between_its_ends(place: Place, start: int, length: int) -> None:
    assert decode_place(encode_place(place)) == place
    least, below = places_within(OffsetRange(place.partition, start, start + length))
    assert (least <= encode_place(place) < below) == (start <= place.offset < start + length)


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x06orders", b"\x02ab" + bytes(19)])
def test_what_is_no_place_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match="not the place of a message"):
        decode_place(stored)
    with pytest.raises(ValueError, match="not a mark of format 1"):
        KeyedMark.decode(stored)


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(ProcessingFailed, match="a key of orders takes 16396 bytes, and 16384 is the most"):
        row_key("orders", [b"x" * 16_384], TYPE)


def test_the_cells_of_rows() -> None:
    """A null is an empty cell that `t:null` names; a key that is gone has no field; -0.0 is the key 0.0."""
    fields = {"id": "double", "text": "string", "more": "binary"}
    said = {"_topic": "orders", "_incarnation": 1, "_partition": 0, "_index": 0, "_tombstone": False, "_digest": -1}
    said |= {"_generation": 9, "_key_hash": -5, "_bucket": 1, "_deleted": False}
    rows = [
        {**said, "_offset": 1, "id": -0.0, "text": "", "more": None},
        {**said, "_offset": 2, "id": 1e7, "text": None, "more": None, "_tombstone": True, "_deleted": True},
        {**said, "_offset": 3, "id": None, "text": "é", "more": b"\xff"},
    ]
    made = encoded(pa.Table.from_pylist(rows, schema=columns(fields)), fields, ["id"], TYPE)
    first, gone, last = made.rows()
    assert first.key == row_key("orders", [key_text("double", b"-0.0")], TYPE) == row_key("orders", [b"0.0"], TYPE)
    assert (first.cells[b"d:more"], first.cells[b"t:null"]) == (b"", b"more")
    assert first.fields == {"id": b"-0.0", "text": b""}
    assert (gone.fields, gone.key_fields(["id"])) == ({}, {"id": b"1.0E7"})
    assert not any(column.startswith(b"d:") for column in gone.cells)
    assert gone.mark == KeyedMark(9, 2**64 - 1, -5, True, True)
    assert (last.fields, last.place.offset) == ({"text": "é".encode(), "more": b"\xff"}, 3)
    assert [row.key for row in made.only([0, 2]).rows()] == [first.key, last.key]


@pytest.mark.parametrize("packed", [b"x", b"4:host", b"4:host9:short", b"-1:a1:b"])
def test_what_is_not_packed_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"not packed|invalid literal|not found"):
        unpack(packed)


def test_regions_have_as_many_salts_each() -> None:
    assert split_keys(1) == []
    assert split_keys(4) == [b"\x04", b"\x08", b"\x0c"]


@pytest.fixture
def world(tmp_path: Path, hbase_in_memory: None) -> Iterator[HBaseLatestInMemory]:
    made = HBaseLatestInMemory(tmp_path, code=lambda partition, offset: [Change(offset % 2, f"{partition}@{offset}")])
    made.ends((0, 5), (0, 0))
    yield made
    CLUSTERS.clear()


@pytest.mark.covers("Q27")
def test_the_newest_row_of_a_key_is_none_that_another_stream_has_erased(world: HBaseLatestInMemory) -> None:
    """Messages 1 and 3 have the same key. Looked at is message 1, and 3 is erased in another stream."""
    world.ingest()
    (window,) = world.opened.ledger.committed()
    row = StoredRow(Place(at(0), 1, 0), Mark(window.generation, 0, "ingest", 1, False), {"id": b"1"})
    found = look_up(world.opened.ledger, Coordinate(at(0), 1))

    def newest(opened: object) -> tuple[str, bytes]:
        under_keys, problems = trace._under_keys(opened, found, {"hbase_latest": [row]})  # type: ignore[arg-type]
        assert problems == {}
        ((_, _, under),) = under_keys
        return under.said, under.fields["value"]

    assert newest(world.opened) == ("the newest row of its key, from orders/0@3", b"0@3")
    hiding = replace(world.opened, ledger=world.opened.ledger.hiding(offsets((0, 3, 4))))
    assert newest(hiding) == ("the newest row of its key, from this message", b"0@1")
    assert world.shown()[1][1] == "0@3"


@pytest.mark.covers("L1")
def test_a_publication_that_was_asleep_writes_below_those_that_came_later(
    world: HBaseLatestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its last look at the table and its write, a replay takes out the row that it found newer."""
    world.ingest()
    table = type(world.table)
    real, asleep = table.put, True

    def sleeping(*given: object) -> None:
        nonlocal asleep
        if asleep:
            asleep = False
            world.code = lambda partition, offset: []
            world.replay(offsets((0, 0, 5)), "replay 1")
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(table, "put", sleeping)
    (window,) = world.opened.ledger.committed()
    place = window.record.places[0].place
    world.admin.publish(world.opened.ledger, world.opened.connections, place, window.record)
    assert not asleep
    assert world.shown() == world.counting() == world.wanted() == {}


@pytest.mark.covers("L1")
def test_two_lanes_that_wait_are_published_together(world: HBaseLatestInMemory) -> None:
    """Whichever comes first knows the rows of the other one, whose publication has the lower number."""
    world.ingest()
    world.code = lambda partition, offset: [Change(offset % 2, f"again {offset}")]
    from tests.support.latest_tables import Killed

    with pytest.raises(Killed):
        world.replay(offsets((0, 3, 5)), "replay 1", until=Step.COMMITTED)
    first = world.opened.ledger.head("replay-1") or next(
        stored for lane, stored in world.opened.ledger.heads().items() if lane.startswith("replay")
    )
    assert first.head.last is not None
    (ingest,) = (one.record for one in world.opened.ledger.committed() if one.record.lane == "ingest")
    world.admin.publish(world.opened.ledger, world.opened.connections, ingest.places[0].place, ingest)
    assert world.shown() == world.counting() == world.wanted()


@pytest.mark.covers("L1", "L2")
def test_a_reader_begins_again_where_a_window_was_committed_meanwhile(
    world: HBaseLatestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read some rows of before, and would read others of after the replay and the erasure."""
    world.ingest()
    table = type(world.table)
    real, began = table.all_rows, []

    def beside(*given: object) -> Iterator[latest.KeyedRow]:
        for row in real(*given):  # type: ignore[arg-type]
            yield row
            if not began:
                began.append(row)
                world.code = lambda partition, offset: [Change(offset % 2, f"again {offset}")]
                world.replay(offsets((0, 0, 5)), "replay 1")
                world.erase(offsets((0, 4, 5)))

    monkeypatch.setattr(table, "all_rows", beside)
    assert world.counting() == world.wanted()
    assert began


@pytest.mark.covers("N13")
def test_what_a_worker_of_a_ledger_that_was_replaced_publishes_is_not_taken_for_what_this_one_forgot(
    world: HBaseLatestInMemory,
) -> None:
    record = world.ingest()
    assert record is not None
    place, ledger = record.places[0].place, world.opened.ledger

    def shown() -> list[tuple[str, int]]:
        return [*world.admin.shown(ledger, world.opened.connections, place)]

    assert shown() == [("ingest", record.attempt.generation)]
    world.table.begin("ingest", 10**14, "another restoration", world.now)
    assert shown() == []


def test_a_table_of_an_earlier_layout_is_refused(world: HBaseLatestInMemory) -> None:
    world.ingest()
    cluster = CLUSTERS[world._host]
    cluster.put("orders_latest", [(b"\xff\xfftidemark-owner", b"t:owner", _older(world))], cluster.now() + 10)
    with pytest.raises(WrongUse, match=r"made by an earlier version of Tidemark.*fill it by a replay of everything"):
        world.prepare()


def _older(world: HBaseLatestInMemory) -> bytes:
    return f'{{"stream": "orders", "ledger": "{world.ledger}", "key": ["id"]}}'.encode()
