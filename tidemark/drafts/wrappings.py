"""What stands around or before a value: compression, frames of registries, container files, a byte order mark.

Each is recognised by its first bytes. What no scheme reads is kept as it is, and a note says the way on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.drafts.columns import share
from tidemark.streams.decompress import MAX_BYTES

# A value is compressed or wrapped so where most are.
MAJORITY = 0.5
MARK = b"\xef\xbb\xbf"
_ID_BYTES = 16


@dataclass(frozen=True)
class Wrapping:
    """What values are that no scheme reads, and what to do. `is_text`: the scheme string keeps them, and not raw."""

    what: str
    note: str
    is_text: bool = False


def _begins(*with_: bytes) -> Callable[[bytes], bool]:
    return lambda value: value.startswith(with_)


def _behind_id(*first: bytes) -> Callable[[bytes], bool]:
    """Whether a value begins with one of these, which are of one length, and has more than 16 bytes behind it."""
    return lambda value: value.startswith(first) and len(value) > len(first[0]) + _ID_BYTES


_FILES = (
    (_begins(b"Obj\x01"), "container files of Avro, each with its schema and many records"),
    (_begins(b"PAR1"), "files of Parquet"),
    (_begins(b"ORC"), "files of ORC"),
    (_begins(b"PK\x03\x04"), "ZIP files"),
)
_A_FUNCTION = "the scheme function takes them apart: docs/functions.md"


def wrapping_of(values: Sequence[bytes]) -> Wrapping | None:
    """The wrapping of most values that no scheme reads; None where there is none."""
    for begins, what in _FILES:
        if share(values, begins) > MAJORITY:
            return Wrapping(what, f"no scheme reads {what}: {_A_FUNCTION}")
    if share(values, _begins(b"\xc3\x01")) > MAJORITY and share(values, lambda value: len(value) > 10) > MAJORITY:
        what = "single objects of Avro, with a fingerprint of their schema"
        return Wrapping(
            what, f"the scheme avro reads records behind the number of a schema, and not {what}: {_A_FUNCTION}"
        )
    for first, what, way in (
        ((b"\x03\x00", b"\x03\x05"), "the frame of AWS Glue's registry", "AWS Glue"),
        ((b"\x01",), "the id (GUID) of a schema before them", "the newer serializers of Confluent"),
    ):
        if share(values, _behind_id(*first)) > MAJORITY and _few_ids(values, len(first[0])):
            return Wrapping(
                f"bytes with {what}",
                f"{way} writes a byte and an id of 16 bytes before each value, and the schemes read numbers of schemas in four "
                f"bytes: have the producer write those (Confluent's wire format), or {_A_FUNCTION}",
            )
    if share(values, _is_apicurio) > MAJORITY:
        return Wrapping(
            "bytes with the frame of Apicurio's registry, a number of eight bytes",
            "the schemes read numbers of schemas in four bytes: set apicurio.registry.use-id and id-handler of the producer to "
            f"Confluent's wire format, or {_A_FUNCTION}",
        )
    if share(values, _begins(MARK)) > MAJORITY:
        inner = (
            "JSON"
            if share(values, lambda value: value[len(MARK) :].lstrip()[:1] in (b"{", b"[")) > MAJORITY
            else "text"
        )
        return Wrapping(
            f"{inner} behind a byte order mark",
            f"the bytes EF BB BF of a byte order mark stand before the {inner}, and no scheme takes them for nothing: "
            "have the producer write UTF-8 without a mark (in .NET new UTF8Encoding(false)), or take it off in a function",
            is_text=True,
        )
    if share(values, _begins(b"\xff\xfe", b"\xfe\xff")) > MAJORITY:
        return Wrapping("text in UTF-16", f"the schemes read UTF-8: have the producer write that, or {_A_FUNCTION}")
    return None


def compression_of(values: Sequence[bytes]) -> str | None:
    """The name under `decompress` for most values; None where they are not compressed."""
    for name, begins in (
        ("gzip", _begins(b"\x1f\x8b\x08")),
        ("zstd", _begins(b"\x28\xb5\x2f\xfd")),
        ("snappy", _begins(b"\xff\x06\x00\x00sNaPpY", b"\x82SNAPPY\x00")),
    ):
        if share(values, begins) > MAJORITY:
            return name
    return None


def decompressed(value: bytes, name: str) -> bytes | None:
    """A value as it is decompressed; None for one that is not compressed so, or becomes too long."""
    try:
        if name == "gzip":
            reader = zlib.decompressobj(wbits=31)
            found = reader.decompress(value, MAX_BYTES)
            return found if reader.eof and not reader.unused_data else None
        import pyarrow as pa

        with pa.CompressedInputStream(pa.py_buffer(value), name) as stream:
            found = stream.read(MAX_BYTES + 1)
    except (zlib.error, OSError):
        return None
    return found if len(found) <= MAX_BYTES else None


def _few_ids(values: Sequence[bytes], at: int) -> bool:
    """Whether the 16 bytes there are those of a few schemas."""
    ids = {value[at : at + _ID_BYTES] for value in values}
    return len(ids) <= max(1, len(values) // 3)


def _is_apicurio(value: bytes) -> bool:
    """Whether a byte 0 and a number of eight bytes stand before a value: as four bytes, the number would be 0."""
    return len(value) > 9 and value[:5] == bytes(5) and value[5:9] != bytes(4)
