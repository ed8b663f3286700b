"""Keys and marks of many rows at once, column by column: the bytes of `rows.PartitionKeys` and of `rows.Mark`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.clients.hbase.encoding import fixed
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.hbase.rows import BLOCK_BITS, PartitionKeys
from tidemark.sinks.stored_rows import FLAG_TOMBSTONE, MARK_FORMAT

_PLACE = np.dtype([("offset", ">u8"), ("index", ">u4")])
_MARK = np.dtype([("format", "u1"), ("flags", "u1"), ("generation", ">u8"), ("digest", ">u8"), ("seq", ">u8")])
# Partitions have 31 bits, and incarnations 16.
_PARTITION_BITS, _TOPIC_BITS = 31, 47
_NOTHING = pa.scalar(b"", pa.binary())


class RowPlaces:
    """Where the rows of a batch are: topics, incarnations, partitions, offsets and indexes of rows, as Arrow's columns."""

    def __init__(
        self, topics: pa.Array, incarnations: pa.Array, partitions: pa.Array, offsets: pa.Array, indexes: pa.Array
    ) -> None:
        self._offsets, self._indexes = _numbers(offsets), _numbers(indexes)
        named = topics.dictionary_encode()
        # One number for topic, incarnation and partition: numbers are sorted faster than three columns.
        ids = _numbers(named.indices).astype(np.int64)
        codes = (
            (ids << _TOPIC_BITS) | (_numbers(incarnations).astype(np.int64) << _PARTITION_BITS) | _numbers(partitions)
        )
        kinds, self._which = np.unique(codes, return_inverse=True)
        names = named.dictionary.to_pylist()
        self._kinds = [
            TopicPartition(
                names[code >> _TOPIC_BITS],
                code & (1 << _PARTITION_BITS) - 1,
                (code >> _PARTITION_BITS) & (1 << _TOPIC_BITS - _PARTITION_BITS) - 1,
            )
            for code in kinds.tolist()
        ]

    def partitions(self) -> Iterator[tuple[TopicPartition, np.ndarray]]:
        """Each partition of the batch, and which rows are its own."""
        return ((at, self._which == number) for number, at in enumerate(self._kinds))

    def keys(self) -> pa.Array:
        """The rows' keys."""
        blocks = self._offsets >> BLOCK_BITS
        prefixes: list[bytes] = []
        which = np.zeros(len(blocks), dtype=np.int32)
        for at, mine in self.partitions():
            keys = PartitionKeys(at)
            for block in dict.fromkeys(blocks[mine].tolist()):
                which[mine & (blocks == block)] = len(prefixes)
                prefixes.append(keys.prefix(block))
        places = np.empty(len(blocks), dtype=_PLACE)
        places["offset"], places["index"] = self._offsets, self._indexes
        beginnings = pa.array(prefixes, pa.binary()).take(pa.array(which))
        return pc.binary_join_element_wise(beginnings, fixed(places), _NOTHING)


def _numbers(column: pa.Array) -> np.ndarray:
    numbers: np.ndarray = column.to_numpy(zero_copy_only=False)
    return numbers


def marks(generation: int, lane: str, seq: int, digests: pa.Array, tombstones: pa.Array) -> pa.Array:
    """The rows' marks."""
    marks_ = np.empty(len(digests), dtype=_MARK)
    marks_["format"], marks_["generation"], marks_["seq"] = MARK_FORMAT, generation, seq
    marks_["digest"] = digests.to_numpy(zero_copy_only=False).view(np.uint64)
    marks_["flags"] = np.where(tombstones.to_numpy(zero_copy_only=False), FLAG_TOMBSTONE, 0)
    return pc.binary_join_element_wise(fixed(marks_), lane.encode(), _NOTHING)
