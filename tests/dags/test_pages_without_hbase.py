"""The pages of a stream that has nothing in HBase: each answers, and none asks for a connection of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient

from tests.support.known_streams import KnownStream, Rows
from tests.support.letter_files import write_file
from tests.support.pages_in_memory import opened_by_pages
from tests.support.streams_in_memory import TEXT
from tidemark.clients.connections import Connection
from tidemark.errors import ConnectionMissing
from tidemark.ledger.records import Attempt, Window
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.sql.letters import letters_in
from tidemark.sinks.parquet import files
from tidemark.sinks.stored import StoredRow
from tidemark.views.messages.fates import Fate
from tidemark_plugin import streams, viewing
from tidemark_plugin.access import get_user
from tidemark_plugin.app import build_app
from tidemark_plugin.routes import messages as messages_routes

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.filterwarnings("ignore")]

HBASE = "sinks:\n  - type: hbase\n    table: orders\ndead_letters:\n  table: orders_dead\n"
STORES = {"sql": "{type: sql, sql: sqlite_default}", "parquet": "{type: parquet, folder: dead}"}


class Kept(Rows):
    """Dead letters that are also kept in a real store."""

    keep: Callable[[StoredRow], None]

    def put(self, window: Window, lane: str, attempt: Attempt, offset: int) -> None:
        super().put(window, lane, attempt, offset)
        self.keep(self.held[offset])


@pytest.fixture(params=["sql", "parquet"])
def client(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A page over twelve dead letters and a row. Of connections, there are Kafka, a file of SQLite and a folder."""

    def connections(name: str) -> Connection:
        match name:
            case "kafka_default":
                return Connection(name, extra={"bootstrap.servers": "nowhere:1", "allow_insecure": True})
            case "sqlite_default":
                return Connection(name, kind="sqlite", host=str(tmp_path / "dead.db"))
            case "lake_default":
                return Connection(name, extra={"path": str(tmp_path)})
        raise ConnectionMissing(f"there is no connection {name}")

    letters = letters_in(connections, "sqlite_default", "tidemark_dead_letters", "orders")
    letters.prepare("orders", "ledger 1")
    files.own(f"file://{tmp_path}/dead", "orders", "ledger 1", "dead_letters")

    def keep(row: StoredRow) -> None:
        at, offset, mark = row.place.partition, row.place.offset, row.mark
        letters.write([letters.row(at, offset, mark, [row.fields.get(name) for name in FIELDS])])
        said = {name: one if name == "value" else one.decode() for name, one in row.fields.items()}
        base, where = f"file://{tmp_path}/dead", {"lane": mark.lane, "seq": mark.seq}
        write_file(base, mark.generation, offset, at=at, part=offset, **where, **said)  # type: ignore[arg-type]

    assert HBASE in TEXT
    text = TEXT.replace(HBASE, f"sinks:\n  - {{type: parquet, folder: rows}}\ndead_letters: {STORES[request.param]}\n")
    monkeypatch.setattr("tests.support.known_streams.TEXT", f"{text}ledger: {{type: sql, sql: sqlite_default}}\n")
    made = KnownStream(tmp_path, [*[Fate.DEAD_LETTER] * 12, Fate.STORED], by_coordinate=False)
    made.dead = Kept()
    made.dead.keep = keep
    made.ends((0, 13))
    while made.ingest("orders__ingest/first") is not None:
        pass
    monkeypatch.setattr(viewing, "may_see", lambda _, dags: set(dags))
    monkeypatch.setattr(messages_routes, "may_trigger", lambda *_: False)
    opened_by_pages(monkeypatch, made)
    monkeypatch.setattr(streams, "from_airflow", connections)
    create_auth_manager()
    monkeypatch.setenv("TIDEMARK_STREAMS", str(tmp_path))
    app = build_app()
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
    return TestClient(app)


@pytest.mark.covers("O11", "U8")
def test_pages_answer_without_hbase(client: TestClient) -> None:
    def asked(path: str, **query: Any) -> Any:
        answer = client.get(f"/api/streams/orders{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    found = asked("/dead-letters")
    assert (found["counted"], {one["reason"]: one["number"] for one in found["groups"]}) == (
        12,
        {"bad 0": 6, "bad 1": 6},
    )
    assert (
        asked("/dead-letters", window="ingest/2")["counted"],
        asked("/dead-letters", reason="bad 0")["counted"],
    ) == (5, 6)
    assert asked("/messages/orders/0/3")["fate"] == "dead letter"
    assert asked("/messages/orders/0/12")["fate"] == "stored"
    assert asked("/windows/ingest/1")["messages"]["dead_letters"] == 5
    assert asked("")["stream"] == "orders"
