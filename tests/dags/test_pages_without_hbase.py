"""The pages of a stream that has nothing in HBase: each answers, and none asks for a connection of it.

Its ledger is a real one in a file of SQLite, with windows, dead letters, a replay, an erasure, an audit and an open lane.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.support import streams_in_memory
from tests.support.claiming import claim_lane
from tests.support.known_streams import KnownStream, Rows
from tests.support.letter_files import write_file
from tests.support.pages_in_memory import opened_by_pages, routes
from tests.support.stores import stores_of
from tests.support.streams_in_memory import TEXT, offsets
from tests.support.waiting import until
from tidemark.audit.levels import Level
from tidemark.clients.connections import Connection
from tidemark.errors import ConnectionMissing
from tidemark.ledger.records import Attempt, LaneKind, Window
from tidemark.ledger.stores.kinds import ledger_store
from tidemark.plugin import stream_access, streams
from tidemark.plugin.access import get_user
from tidemark.plugin.app import build_app
from tidemark.plugin.routes import browse as browse_routes
from tidemark.plugin.routes import messages as messages_routes
from tidemark.plugin.routes import steering as steering_routes
from tidemark.runs.auditing import audit_without_spark
from tidemark.runs.windows import lanes
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.sql.letters import letters_in
from tidemark.sinks.parquet import files
from tidemark.sinks.stored_rows import StoredRow
from tidemark.views.messages.fates import Fate

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.filterwarnings("ignore")]

HBASE = "sinks:\n  - type: hbase\n    table: orders\ndead_letters:\n  type: hbase\n  table: orders_dead\n"
LEDGER = {"type": "sql", "sql": "sqlite_default"}
STORES = {"sql": "{type: sql, sql: sqlite_default}", "parquet": "{type: parquet, folder: dead}"}
AUDIT, OPEN = "orders__audit/first", "orders__replay/second"
# What every route is asked, beside its stream: a form of the address for each thing that the stream has.
STREAM = "/api/streams/{name}"
GETS: dict[str, list[str]] = {
    "/": ["/"],
    "/run": [f"/run?dag_id=orders__replay&run_id={OPEN}"],
    "/files/{version}/{name}": ["/files/0/shared.js"],
    "/api/openapi.json": ["/api/openapi.json"],
    "/api/streams": ["/api/streams", "/api/streams?topic=orders"],
    "/api/triage": ["/api/triage", "/api/triage?state=OK&sort=lag&down=true"],
    "/streams/{name}": ["/streams/orders"],
    "/streams/{name}/messages": ["/streams/orders/messages"],
    "/streams/{name}/browse": ["/streams/orders/browse"],
    "/streams/{name}/windows/{lane}/{seq}": ["/streams/orders/windows/ingest/1"],
    "/streams/{name}/dead-letters": ["/streams/orders/dead-letters"],
    "/streams/{name}/audits": ["/streams/orders/audits"],
    "/streams/{name}/completeness": ["/streams/orders/completeness"],
    "/streams/{name}/plan": ["/streams/orders/plan"],
    "/streams/{name}/audit": [f"/streams/orders/audit?run={AUDIT}"],
    STREAM: ["/api/streams/orders"],
    f"{STREAM}/line": ["/api/streams/orders/line"],
    f"{STREAM}/coverage": ["/api/streams/orders/coverage", "/api/streams/orders/coverage?partition=orders/0&from=3"],
    f"{STREAM}/coverage/times": [
        "/api/streams/orders/coverage/times",
        "/api/streams/orders/coverage/times?step=day&since=0&until=864000000&partition=orders/0",
    ],
    f"{STREAM}/browse/{{kind}}": [
        "/api/streams/orders/browse/messages?where=orders/0",
        "/api/streams/orders/browse/messages?payload=true&newest=true&filter=key is not null",
        "/api/streams/orders/browse/dead-letters?window=ingest/1",
    ],
    f"{STREAM}/browse/{{kind}}/file": [
        "/api/streams/orders/browse/messages/file?where=orders/0",
        "/api/streams/orders/browse/dead-letters/file?format=csv",
    ],
    f"{STREAM}/trend": ["/api/streams/orders/trend"],
    f"{STREAM}/windows/{{lane}}": [
        "/api/streams/orders/windows/ingest",
        "/api/streams/orders/windows/LANE?below=2&until=1&count=5",
    ],
    f"{STREAM}/windows/{{lane}}/{{seq}}": [
        "/api/streams/orders/windows/ingest/1",
        "/api/streams/orders/windows/LANE/1",
    ],
    f"{STREAM}/windows/{{lane}}/{{seq}}/newer": ["/api/streams/orders/windows/ingest/1/newer"],
    f"{STREAM}/messages/{{topic}}/{{partition}}/{{offset}}": [
        *(f"/api/streams/orders/messages/orders/0/{offset}" for offset in (0, 4, 7, 12, 99)),
        "/api/streams/orders/messages/orders/0/0?payload=true&whole=true",
    ],
    f"{STREAM}/dead-letters": [
        "/api/streams/orders/dead-letters",
        "/api/streams/orders/dead-letters?window=ingest/1",
        "/api/streams/orders/dead-letters?reason=bad 0",
    ],
    f"{STREAM}/audits": ["/api/streams/orders/audits"],
    f"{STREAM}/completeness": ["/api/streams/orders/completeness"],
    f"{STREAM}/completeness/{{hour}}": ["/api/streams/orders/completeness/1970-01-01T00Z"],
    f"{STREAM}/comparison": [f"/api/streams/orders/comparison?run={OPEN}"],
    f"{STREAM}/progress": [f"/api/streams/orders/progress?run={OPEN}"],
}
POSTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    f"{STREAM}/plan": [
        ("/api/streams/orders/plan", {"kind": kind, "fields": fields})
        for kind, fields in (
            ("replay", {"ranges": "orders/0@0-13"}),
            ("replay", {"dead_letters": "*"}),
            ("replay", {"window": "ingest/1"}),
            ("backfill", {"ranges": "orders/0@0-13", "mode": "reprocess"}),
        )
    ],
    f"{STREAM}/erasure": [("/api/streams/orders/erasure", {"fields": {"records": "orders/0@0"}})],
    f"{STREAM}/progress/{{action}}": [
        (f"/api/streams/orders/progress/{action}", {"run": OPEN, "reason": "a test"})
        for action in ("pause", "resume", "cancel")
    ],
}


class Kept(Rows):
    """Dead letters that are also kept in a real store."""

    keep: Callable[[StoredRow], None]

    def put(self, window: Window, lane: str, attempt: Attempt, offset: int) -> None:
        super().put(window, lane, attempt, offset)
        self.keep(self.held[offset])


@pytest.fixture(params=["sql", "parquet"])
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownStream:
    """Twelve dead letters and a row. Of connections, there are Kafka, a file of SQLite and a folder."""

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
    # The keys of a YAML file are there once: `ledger` comes with the store in memory, which is a real one here.
    monkeypatch.setattr("tests.support.known_streams.TEXT", text)
    monkeypatch.setattr(streams_in_memory, "LEDGER", f"ledger: {json.dumps(LEDGER)}\n")
    store = ledger_store(stores_of(LEDGER).settings, "orders", connections)
    store.prepare()
    monkeypatch.setattr(streams_in_memory, "MemoryStore", lambda: store)
    made = KnownStream(tmp_path, [*[Fate.DEAD_LETTER] * 12, Fate.STORED], by_coordinate=False)
    made.dead = Kept()
    made.dead.keep = keep
    made.ends((0, 13))
    while made.ingest("orders__ingest/first") is not None:
        pass
    opened_by_pages(monkeypatch, made)
    monkeypatch.setattr(streams, "from_airflow", connections)
    return made


@pytest.fixture
def client(made: KnownStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The pages, for somebody who may see and do everything."""
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    for module in (browse_routes, messages_routes):
        monkeypatch.setattr(module, "may_trigger", lambda *_: True)
        monkeypatch.setattr(module, "note_look", lambda *_: None)
    monkeypatch.setattr(steering_routes, "may_trigger", lambda *_: True)
    monkeypatch.setattr(steering_routes, "note_steering", lambda *_: None)
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


@pytest.mark.covers("O11", "U4")
def test_every_route_answers_of_a_stream_on_sql(client: TestClient, made: KnownStream) -> None:
    """A new route fails here until it is asked something."""
    made.replay("orders__replay/first", (4, 6))
    made.erase(offsets((0, 7, 8)), "orders__erase/first")
    audit_without_spark(made.opened, AUDIT, Level.LEDGER)
    lane = claim_lane(made.opened, LaneKind.REPLAY, OPEN, offsets((0, 1, 3)), "a better parser")
    lanes.plan_lane(made.opened, lane, OPEN)
    assert isinstance(client.app, FastAPI)
    there = {method: {one.path for one in routes(client.app) if method in one.methods} for method in ("GET", "POST")}
    assert there == {"GET": set(GETS), "POST": set(POSTS)}

    def answered(path: str, body: dict[str, Any] | None = None) -> None:
        path = path.replace("LANE", lane)

        def ask() -> Any:
            return client.get(path) if body is None else client.post(path, json=body)

        # 504 on a slow machine: the answer is being looked for, and there at a later look.
        answer = until(lambda: found if (found := ask()).status_code != 504 else None, f"{path} is not answered")
        assert answer.status_code == 200, (path, body, answer.text)

    for path in (path for paths in GETS.values() for path in paths):
        answered(path)
    for path, body in (one for several in POSTS.values() for one in several):
        answered(path, body)
