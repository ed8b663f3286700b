"""Rows encoded column by column: the very bytes that Thrift's library writes, and the keys and marks of single rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemark.clients.hbase.encoding import call_of, encode_rows
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.hbase.columns import RowPlaces, marks
from tidemark.sinks.hbase.rows import MARK, PartitionKeys
from tidemark.sinks.stored_rows import Mark

COLUMNS = (MARK, b"d:host", b"d:\xc3\xbc")
CELL = st.one_of(st.none(), st.binary(max_size=6), st.just(b"x" * 70_000))
ROWS = st.lists(st.tuples(st.binary(max_size=20), *[CELL] * len(COLUMNS)), max_size=6)
PLACES = st.lists(
    st.tuples(
        st.sampled_from(["a", "a-b", "ü"]),
        st.integers(1, 3),
        st.sampled_from([0, 7, 2**31 - 1]),
        # On both sides of the border between two salts.
        st.one_of(st.integers(65_530, 65_540), st.integers(0, 2**63 - 2)),
        st.integers(0, 2**31 - 1),
    ),
    max_size=12,
)
LONG = st.integers(-(2**63), 2**63 - 1)


def of_the_library(rows: list[Any], timestamp: int) -> bytes:
    from Hbase_thrift import Hbase
    from thriftpy2.protocol import TBinaryProtocol
    from thriftpy2.thrift import TClient
    from thriftpy2.transport import TMemoryBuffer

    buffer = TMemoryBuffer()
    client = TClient(Hbase, TBinaryProtocol(buffer))
    batches = [
        BatchMutation(
            row=key,
            mutations=[
                Mutation(isDelete=False, column=column, value=value, writeToWAL=True)
                for column, value in zip(COLUMNS, cells, strict=True)
                if value is not None
            ],
        )
        for key, *cells in rows
    ]
    client._send("mutateRowsTs", tableName=b"t", rowBatches=batches, timestamp=timestamp, attributes={})
    return bytes(buffer.getvalue())


def arrays(rows: list[Any], kinds: list[pa.DataType]) -> list[pa.Array]:
    columns = zip(*rows, strict=True) if rows else [[] for _ in kinds]
    # A slice, as a writer gets one of each batch.
    return [pa.array([None, *column], kind)[1:] for column, kind in zip(columns, kinds, strict=True)]


@given(ROWS, st.integers(0, 2**63 - 1))
def test_a_call_is_the_one_that_the_library_makes(rows: list[Any], timestamp: int) -> None:
    keys, *cells = arrays(rows, [pa.binary()] * (1 + len(COLUMNS)))
    call = call_of(b"t", encode_rows(keys, list(zip(COLUMNS, cells, strict=True))), timestamp)
    assert call == of_the_library(rows, timestamp)


@given(st.lists(st.tuples(st.binary(max_size=5), st.sampled_from(COLUMNS), st.binary(max_size=5)), max_size=5))
def test_each_row_may_have_a_column_of_its_own(cells: list[tuple[bytes, bytes, bytes]]) -> None:
    keys, columns, values = arrays(cells, [pa.binary()] * 3)
    rows = [(key, *(value if column == one else None for one in COLUMNS)) for key, column, value in cells]
    assert call_of(b"t", encode_rows(keys, [(columns, values)]), 7) == of_the_library(rows, 7)


@given(PLACES)
def test_keys_are_those_of_single_rows(places: list[tuple[str, int, int, int, int]]) -> None:
    kinds = [pa.string(), pa.int32(), pa.int32(), pa.int64(), pa.int32()]
    found = RowPlaces(*arrays(places, kinds)).keys().to_pylist()
    assert found == [
        PartitionKeys(TopicPartition(topic, partition, incarnation)).key(offset, index)
        for topic, incarnation, partition, offset, index in places
    ]


@given(PLACES)
def test_each_row_belongs_to_its_partition(places: list[tuple[str, int, int, int, int]]) -> None:
    kinds = [pa.string(), pa.int32(), pa.int32(), pa.int64(), pa.int32()]
    found = {at: mine.nonzero()[0].tolist() for at, mine in RowPlaces(*arrays(places, kinds)).partitions()}
    expected: dict[TopicPartition, list[int]] = {}
    for number, (topic, incarnation, partition, *_) in enumerate(places):
        expected.setdefault(TopicPartition(topic, partition, incarnation), []).append(number)
    assert found == expected


@given(st.lists(st.tuples(LONG, st.booleans()), max_size=5), st.integers(0, 2**63 - 1))
def test_marks_are_those_of_single_rows(rows: list[tuple[int, bool]], generation: int) -> None:
    digests, tombstones = arrays(rows, [pa.int64(), pa.bool_()])
    found = marks(generation, "replay-ab", 3, digests, tombstones).to_pylist()
    assert found == [Mark(generation, digest % 2**64, "replay-ab", 3, tombstone).encode() for digest, tombstone in rows]
