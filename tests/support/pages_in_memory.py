"""The app behind the pages over ledgers in memory, of each kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.support import streams_in_memory
from tests.support.memory import TransactionalStore
from tests.support.streams_in_memory import StreamInMemory
from tidemark.clients.connections import Connections
from tidemark.plugin import streams
from tidemark.runs.live.open_stream import OpenStream


@pytest.fixture(autouse=True)
def page_ledger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A full run takes the tests of the pages through each kind of ledger: with another store, and with another connection."""
    kind: str = request.param
    if kind != "hbase":
        monkeypatch.setattr(streams_in_memory, "MemoryStore", TransactionalStore)
        monkeypatch.setattr(streams_in_memory, "LEDGER", f"ledger: {{type: {kind}}}\n")
    return kind


def opened_by_pages(monkeypatch: pytest.MonkeyPatch, made: StreamInMemory) -> None:
    """The pages open the stream as they always do, with the connections that they ask Airflow for."""

    def opened(path: Path, connections: Connections, **_: object) -> OpenStream:
        return replace(made.opened, connections=connections)

    monkeypatch.setattr(streams, "from_airflow", streams_in_memory.nowhere)
    monkeypatch.setattr(streams, "open_stream", opened)


def routes(app: FastAPI) -> list[APIRoute]:
    # A route of another class, such as FastAPI's own for its description, would not ask who is there.
    assert all(isinstance(route, APIRoute) for route in app.routes)
    return [route for route in app.routes if isinstance(route, APIRoute)]
