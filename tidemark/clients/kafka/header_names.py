"""Names of headers that are no UTF-8, which a producer may write: the library refuses the whole batch of messages for one.

So nobody could read past such a message, not even to look for what is to be erased. Kafka's own client, and so Spark, puts
U+FFFD where bytes are no UTF-8; so does this.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

from kafka.record.default_records import DefaultRecordBatch, decode_varint


class _AnyText(bytes):
    """Bytes of which each part is decoded, whatever it is."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        item = super().__getitem__(at)
        return _AnyText(item) if isinstance(item, bytes) else item

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "replace")


def take_any_names() -> None:
    """Let the library read all names of headers, in the whole program. Repeatable."""
    if DefaultRecordBatch._read_msg is not _read_msg:
        DefaultRecordBatch._read_msg = _read_msg


_strictly = DefaultRecordBatch._read_msg


def _read_msg(batch: Any) -> Any:
    """The next record of a batch, as the library reads it; else once more with any names."""
    try:
        return _strictly(batch)
    except UnicodeDecodeError:
        whole, start = batch._buffer, batch._pos
        length, begins = decode_varint(whole, start)
        # Of this record alone: a batch may have very many of them.
        part = _AnyText(whole[start : begins + length])
        batch._buffer, batch._pos = part, 0
        try:
            return _strictly(batch)
        finally:
            batch._buffer, batch._pos = whole, start + len(part)
