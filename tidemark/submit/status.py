"""Asking a warm engine how it is, and telling it to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidemark.submit.client import EngineClosed, connected, receive, send

# An engine answers at once, also while it works.
_PATIENCE_SECONDS = 10.0


def ask(socket: Path, what: str, **more: object) -> dict[str, Any] | None:
    """The answer of the engine that listens there; None if none does."""
    connection = connected(str(socket))
    if connection is None:
        return None
    with connection:
        connection.settimeout(_PATIENCE_SECONDS)
        try:
            send(connection, {"do": what, **more})
            return receive(connection, bytearray())
        except (EngineClosed, OSError):
            return None
