"""Rows of a history as the cells of a table in HBase, many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.clients.hbase.encoding import fixed
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.column_texts import with_texts
from tidemark.sinks.double_texts import double_text
from tidemark.sinks.hbase.keyed.rows import AT, FLAG_GONE, MARK, NULLS, EncodedCells, encode_place, key_text, row_key
from tidemark.sinks.hbase.rows import DATA_PREFIX
from tidemark.sinks.latest.rows import DELETED, GENERATION, KEY_HASH
from tidemark.sinks.stored_rows import FLAG_TOMBSTONE, MARK_FORMAT, Place
from tidemark.types.fields import FieldType

_MARK = np.dtype([("format", "u1"), ("flags", "u1"), ("generation", ">u8"), ("digest", ">u8"), ("key", ">i8")])


def encoded(
    rows: pa.Table, fields: Mapping[str, FieldType], key: Sequence[str], sink_type: str, *, by_topic: bool = True
) -> EncodedCells:
    """`rows`: with the columns of `latest.rows.columns`. `by_topic`: each topic has keys of its own.

    Raises ProcessingFailed for a key that is too long.
    """
    texts = {name: _texts(column) for name, column in zip(fields, _columns(rows, fields), strict=True)}
    topics = rows.column("_topic").to_pylist() if by_topic else [""] * rows.num_rows
    named = [[key_text(fields[name], one) for one in texts[name].to_pylist()] for name in key]
    keys = [row_key(topic, one, sink_type) for topic, *one in zip(topics, *named, strict=True)]
    gone = rows.column(DELETED).to_numpy()
    there = pa.array(~gone)
    nothing = pa.scalar(None, pa.binary())
    cells = [
        (DATA_PREFIX + name.encode(), pc.if_else(there, values.fill_null(b""), nothing))
        for name, values in texts.items()
    ]
    return EncodedCells(
        keys,
        [(AT, _places(rows)), (MARK, _marks(rows, gone)), (NULLS, _nulls(texts, rows.num_rows)), *cells],
        gone.tolist(),
    )


def _columns(rows: pa.Table, fields: Mapping[str, FieldType]) -> list[pa.Array]:
    return [one.combine_chunks() for one in with_texts(rows.select([*fields])).columns]


def _texts(values: pa.Array) -> pa.Array:
    """The texts that HBase has of values, in bytes; null for null."""
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return values.cast(pa.binary())
    if pa.types.is_floating(values.type):
        values = pa.array([None if one is None else double_text(one) for one in values.to_pylist()], pa.string())
    return values.cast(pa.string()).cast(pa.binary())


def _places(rows: pa.Table) -> pa.Array:
    columns = [rows.column(name).to_pylist() for name in ("_topic", "_partition", "_incarnation", "_offset", "_index")]
    places = (Place(TopicPartition(*at), offset, index) for *at, offset, index in zip(*columns, strict=True))
    return pa.array([encode_place(one) for one in places], pa.binary())


def _marks(rows: pa.Table, gone: np.ndarray) -> pa.Array:
    marks = np.empty(rows.num_rows, dtype=_MARK)
    tombstones = rows.column("_tombstone").to_numpy()
    marks["format"] = MARK_FORMAT
    marks["flags"] = np.where(tombstones, FLAG_TOMBSTONE, 0) | np.where(gone, FLAG_GONE, 0)
    marks["generation"] = rows.column(GENERATION).to_numpy()
    marks["digest"] = rows.column("_digest").to_numpy().view(np.uint64)
    marks["key"] = rows.column(KEY_HASH).to_numpy()
    return fixed(marks)


def _nulls(texts: Mapping[str, pa.Array], number: int) -> pa.Array:
    """The names of the null fields of each row."""
    named = [pc.if_else(values.is_null(), pa.scalar(name), pa.scalar("")) for name, values in texts.items()]
    if not named:
        return pa.array([b""] * number, pa.binary())
    joined = pc.binary_join_element_wise(*named, " ")
    return pc.utf8_trim(pc.replace_substring_regex(joined, " +", " "), " ").cast(pa.binary())
