"""A row's fields in one cell. Each field that is not null is two netstrings, name and bytes: `4:host9:a.example`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def pack_columns(names: Sequence[str], contents: Sequence[pa.Array]) -> pa.Array:
    """The packed fields of many rows, in the order of the stream file."""
    # Arrow takes a third of a second to load, and readers do not need it.
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.scalar(b"", pa.binary())
    fields = []
    for name, values in zip(names, contents, strict=True):
        sizes = pc.binary_length(values).cast(pa.string()).cast(pa.binary())
        begin = f"{len(name.encode())}:{name}".encode()
        fields.append(pc.binary_join_element_wise(begin, sizes, b":", values, nothing))
    return pc.binary_join_element_wise(*fields, nothing, null_handling="replace", null_replacement=b"")


def unpack(packed: bytes) -> dict[str, bytes]:
    """The fields that are not null. Raises ValueError for other bytes than packed fields."""
    parts = []
    at = 0
    while at < len(packed):
        colon = packed.index(b":", at)
        behind = colon + 1 + int(packed[at:colon])
        parts.append(packed[colon + 1 : behind])
        at = behind
    if at != len(packed) or len(parts) % 2:
        raise ValueError(f"not packed fields: {packed[:40]!r}")
    return {name.decode(): value for name, value in zip(parts[::2], parts[1::2], strict=True)}
