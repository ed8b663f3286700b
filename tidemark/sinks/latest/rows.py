"""Rows of a table with the newest row of each key, and which of several rows of a key is the newest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.types.fields import FieldType, arrow_type

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tidemark.ledger.ordering import Epochs

# Whether a row says that its key is gone.
DELETED = "_deleted"
# A hash of topic and key. Null for a row without a key, which no table has.
KEY_HASH = "_key_hash"
# The hash, modulo the number of buckets.
BUCKET = "_bucket"
GENERATION = "_generation"

# Arrow takes a third of a second to load, and stream files are read without it.


def history_of(base: str) -> str:
    """The folder with what the windows have written, below that of the table, whose readers and vacuums pass over it."""
    return f"{base}/_history"


def columns(fields: Mapping[str, FieldType]) -> pa.Schema:
    """The table's columns: Tidemark's, the stream's fields, and those by which a key is found and a row counts."""
    import pyarrow as pa

    ours = [("_topic", pa.string()), ("_incarnation", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64())]
    ours += [("_index", pa.int32()), ("_tombstone", pa.bool_()), ("_digest", pa.int64())]
    keyed = [(DELETED, pa.bool_()), (GENERATION, pa.int64()), (KEY_HASH, pa.int64()), (BUCKET, pa.int32())]
    return pa.schema([*ours, *((name, arrow_type(kind)) for name, kind in fields.items()), *keyed])


def newest(rows: pa.Table, key: Sequence[str], epochs: Epochs) -> np.ndarray:
    """The numbers of those rows that are the newest of their topic and key, ascending.

    Of two rows of one message and index, the first is taken. So rows that are there already are not written again.
    """
    import numpy as np
    import pyarrow as pa

    topics = rows.column("_topic").to_numpy()
    incarnations, partitions, offsets, indexes = (
        rows.column(name).to_numpy() for name in ("_incarnation", "_partition", "_offset", "_index")
    )
    numbers = np.arange(rows.num_rows)
    epoch = epochs.of_all(topics, incarnations, partitions, offsets)
    order = np.lexsort((-numbers, indexes, partitions, incarnations, offsets, epoch))
    ranks = np.empty_like(order)
    ranks[order] = numbers
    named = {f"key_{number}": as_key(rows.column(name)) for number, name in enumerate(["_topic", *key])}
    groups = pa.table({**named, "rank": ranks}).group_by([*named]).aggregate([("rank", "max")])
    return np.sort(order[groups.column("rank_max").to_numpy()])


def as_key(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column by whose values rows are of one key: of floats their texts, so that NaN is a key like any other.

    -0.0 is the key 0.0, as in every comparison and in the hash of a key.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(values.type):
        return values
    return pc.add(values, pa.scalar(0.0, values.type)).cast(pa.string())
