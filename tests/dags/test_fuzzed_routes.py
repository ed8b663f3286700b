"""Every route of the pages with hostile values: an answer in words, and never an internal error.

The app as Airflow mounts it, over a ledger and a Kafka in memory, for somebody who may see and do everything.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from tests.support.claiming import claim_lane
from tests.support.known_streams import KnownStream, tables
from tests.support.pages_in_memory import opened_by_pages, page_ledger, routes
from tests.support.stream_text import MINIMAL
from tidemark.ledger.records import LaneKind
from tidemark.plugin import stream_access
from tidemark.plugin.access import get_user
from tidemark.plugin.app import build_app
from tidemark.plugin.routes import messages as messages_routes
from tidemark.plugin.routes import plans as plans_routes
from tidemark.plugin.routes import steering as steering_routes
from tidemark.views.messages.fates import Fate

__all__ = ["page_ledger", "tables"]

pytestmark = [pytest.mark.usefixtures("airflow_home", "tables"), pytest.mark.filterwarnings("ignore")]

VALUES = [
    *("", "0", "1", "-1", "5", "10", "999999999", "1000000000000", "9223372036854775807", "9223372036854775808", "1e9"),
    *(
        "1.5",
        "nan",
        "inf",
        "0x10",
        "٣",
        "²",
        "\uff11",
        "true",
        "on",
        "null",
        "None",
        "[]",
        "{}",
        "a",
        "../..",
        "%00",
        "\0",
    ),
    *(
        "\u202e",
        "\ud7ff",
        "é",
        "\U0001f600",
        "orders",
        "orders/0",
        "orders#2",
        "orders#99999999999999999999",
        "orders#0",
    ),
    *("orders#-1", "orders#٣", "#", "orders/0/0", "orders/-1", "orders/99999999999", "__consumer_offsets", "ingest"),
    *("ingest/1", "ingest/0", "ingest/9999999999999999999", "replay-43c8ac0cc10c", "erase-x", "cli/x", "a" * 250),
    *("a" * 700, "a" * 5000, "' OR 1=1 --", "<script>", "2026-11-21T07:00:00Z", "2026-11-21T13Z", "9999-12-31T23Z"),
    *("2026-11-21T07:00:00+99:99", "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"),
    *("0001-01-01T00Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.997Z", "2026-11-21", "20261121T070000Z"),
    *("2026-W47-6T00Z", "2026-11-21T24:00:00Z", "2026-11-21T07:00:00.123456789Z", "T-:", "-:", "a-b:c", "+", "%"),
    *("%%%", "%zz", "\r\n", "\t", "*", "(a+)+$", ".*", "\\", "/", "//", "?", "&x=y", ";", "|", "$(id)", "{{7*7}}"),
    *("${jndi:ldap://x}", "\u0085", "\u2028", "\ufeff", "\U000e0001", "orders/0@0-5", "orders/0@1\norders/0@2"),
]
FIELDS = [
    *(
        "records",
        "ranges",
        "records_file",
        "window",
        "dead_letters",
        "dead_letters_window",
        "selection",
        "ignore_stored",
    ),
    *("sinks", "since", "until_time", "if_none", "rate", "lanes", "strict", "plan", "compare", "holes"),
    *("everything_before", "mode", "reason", "dry_run", "bogus", "__class__"),
]
RAW = [
    "",
    "{",
    "[]",
    "null",
    "1",
    '"x"',
    "[" * 5000,
    '{"run":1e999}',
    '{"kind":"replay","fields":{"lanes":1e400}}',
    '{"run":"\\ud800"}',
]


class Hostile:
    """Requests, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def value(self) -> str:
        chance = self._chance
        return chance.choice(VALUES) + (chance.choice(VALUES) if chance.random() < 0.1 else "")

    def address(self, route: APIRoute) -> str:
        chance, path = self._chance, route.path
        for one in route.dependant.path_params:
            usual = {"name": "orders", "topic": "orders", "partition": "0", "lane": "ingest", "action": "pause"}
            known = chance.random() < (0.95 if one.name == "name" else 0.6)
            value = usual[one.name] if known and one.name in usual else self.value()
            # A segment of a path is never empty, and no client sends dots.
            path = path.replace(f"{{{one.name}}}", quote("x" if value in ("", ".", "..") else value, safe=""))
        query = [
            (one.alias, self.value())
            for one in route.dependant.query_params
            if one.field_info.is_required() or chance.random() < 0.45
        ]
        return f"{path}?{urlencode(query)}"

    def body(self, route: APIRoute) -> str:
        chance = self._chance
        if chance.random() < 0.05:
            return chance.choice(RAW)
        if not route.path.endswith("/plan"):
            run = chance.choice([self.value(), "orders__replay/1", "\ud800"])
            return json.dumps({"run": run, "reason": chance.choice(["", "x", self.value(), "\ud800"])})
        fields = {name: self._field() for name in chance.sample(FIELDS, chance.randint(1, 5))}
        return json.dumps({"kind": chance.choice(["replay", "replay", "backfill", "erase"]), "fields": fields})

    def _field(self) -> Any:
        chance = self._chance
        usual: list[Any] = [
            True,
            False,
            None,
            chance.randint(-5, 10**20),
            ["hbase"],
            1.5,
            {},
            "orders/0@0-5",
            "orders,0,3",
        ]
        return chance.choice([*usual, self.value(), self.value(), [self.value()]])


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_ledger: str) -> Any:
    """Somebody who may see and do everything, with one stream: stored rows, dead letters, and a replay that is open."""
    create_auth_manager()
    folder = tmp_path / "streams"
    folder.mkdir()
    (folder / "orders.yaml").write_text(f"{MINIMAL}ledger: {{type: {page_ledger}}}\n")
    monkeypatch.setenv("TIDEMARK_STREAMS", str(folder))
    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(tmp_path))
    # A slow machine is late, and that is no finding.
    monkeypatch.setenv("AIRFLOW__TIDEMARK__PAGE_WAIT_SECONDS", "60")
    made = KnownStream(tmp_path, [Fate.DEAD_LETTER, Fate.STORED] * 6)
    made.ends((0, 12))
    while made.ingest("orders__ingest/first") is not None:
        pass
    claim_lane(made.opened, LaneKind.REPLAY, "orders__replay/1", made.opened.ledger.authority().covered(), "why")
    opened_by_pages(monkeypatch, made)
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    for where, name in (
        *((one, "may_trigger") for one in (messages_routes, plans_routes, steering_routes)),
        (stream_access, "may_see_files"),
    ):
        monkeypatch.setattr(where, name, lambda *_: True)
    monkeypatch.setattr(messages_routes, "note_look", lambda *_: None)
    monkeypatch.setattr(steering_routes, "note_steering", lambda *_: None)
    app = build_app()
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="admin")
    with TestClient(app, raise_server_exceptions=False) as found:
        yield found


@pytest.mark.covers("Q28", "U4")
@pytest.mark.parametrize(
    ("seed", "number"),
    [(1, 12), *(pytest.param(seed, 400, marks=pytest.mark.full, id=f"full-{seed}") for seed in (2, 3))],
)
def test_hostile_values_are_answered_in_words(client: TestClient, seed: int, number: int) -> None:
    """`number` requests to each route. The routes are those of the app itself: a new one is among them."""
    hostile, answered = Hostile(seed), Counter[int]()
    app: Any = client.app
    for route in routes(app):
        (method,) = route.methods
        for _ in range(number):
            address = hostile.address(route)
            body = hostile.body(route).encode() if method == "POST" else None
            headers = {"content-type": "application/json"} if body is not None else {}
            answer = client.request(method, address, content=body, headers=headers)
            said = f"{method} {address[:300]} {body!r:.300}: {answer.status_code} {answer.text[:300]}"
            answered[answer.status_code] += 1
            assert answer.status_code < 500 or answer.status_code == 503, said
            assert answer.headers["content-security-policy"].startswith("default-src 'self'"), said
            if answer.status_code >= 400 and "/api/" in route.path:
                assert isinstance(answer.json()["detail"], str), said
                assert len(answer.text) < 20_000, said
            assert len(answer.content) < 3_000_000, said
    # All kinds of answers are among them.
    assert {200, 400, 404, 422} <= set(answered)
