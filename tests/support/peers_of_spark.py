"""A program that speaks the protocol of Spark's ports without a login, and asks for what tasks are made of."""

from __future__ import annotations

import socket
import struct

_SECONDS = 3.0
_MAX_BYTES = 16 << 20
_CHUNK_REQUEST, _CHUNK, _RPC, _RPC_ANSWER = 0, 1, 3, 4
_OPEN_BLOCKS = b"\0"


def fetched(host: str, port: int, block: str) -> bytes | None:
    """A block of a Spark's block manager, as it is stored; None where the port gives nothing."""
    try:
        with socket.create_connection((host, port), _SECONDS) as connection:
            connection.settimeout(_SECONDS)
            body = _OPEN_BLOCKS + _text("anybody") + _text("anybody") + struct.pack(">i", 1) + _text(block)
            _send(connection, _RPC, struct.pack(">qi", 1, len(body)) + body)
            kind, got = _receive(connection)
            if kind != _RPC_ANSWER:
                return None
            (stream,) = struct.unpack(">q", got[13:21])
            _send(connection, _CHUNK_REQUEST, struct.pack(">qi", stream, 0))
            kind, got = _receive(connection)
            return got[12:] if kind == _CHUNK else None
    except (OSError, EOFError, struct.error):
        return None


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def _send(connection: socket.socket, kind: int, body: bytes) -> None:
    connection.sendall(struct.pack(">qb", 9 + len(body), kind) + body)


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    size, kind = struct.unpack(">qb", _take(connection, 9))
    if not 9 <= size <= _MAX_BYTES:
        # Another protocol.
        raise EOFError
    return kind, _take(connection, size - 9)


def _take(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
