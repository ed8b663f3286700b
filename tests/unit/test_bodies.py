"""What people send in a body: read apart from Airflow's own work, and refused before it costs anything."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient

from tidemark.plugin import bodies, serving
from tidemark.plugin.access import get_user
from tidemark.plugin.bodies import MAX_BESIDE_TEXTS, beside_texts, read_body
from tidemark.plugin.cached_queries import Answer, CachedQueries
from tidemark.plugin.routes.plans import RequestToPlan
from tidemark.plugin.settings import Settings
from tidemark.runs.requests.forms import MAX_TEXT


def plan(value: str) -> bytes:
    return f'{{"kind":"replay","fields":{{"sinks":{value}}}}}'.encode()


def many(value: str, number: int = 600_000) -> str:
    return f"[{','.join([value] * number)}]"


@pytest.mark.covers("Q28")
@pytest.mark.parametrize(
    "raw",
    [
        plan(many("[]")),
        plan(many("{}")),
        plan(many('""')),
        plan("9" * 1_000_000),
        b"[" * 1_000_000,
        b'{"kind":"replay","fields":{' + b",".join(b'"%x":1' % number for number in range(200_000)) + b"}}",
        b'"' * 1_000_000,
    ],
    ids=["lists", "maps", "texts", "a number", "depth", "keys", "quotes"],
)
def test_many_small_values_are_refused_unread(raw: bytes) -> None:
    """Reading the first one would hold all of Airflow's API for ten seconds, in whatever thread."""
    answer = read_body(RequestToPlan, raw)
    assert isinstance(answer, Answer)
    assert answer.status == 413
    assert f"more than {MAX_BESIDE_TEXTS} bytes besides its texts" in answer.detail


@pytest.mark.covers("Q28")
@pytest.mark.parametrize("line", ["orders/0@1\n", '["orders", 0, 1]\n', "\\\n"])
def test_a_text_as_long_as_may_be_is_read(line: str) -> None:
    records = (line * (MAX_TEXT // len(line) + 1))[:MAX_TEXT]
    raw = json.dumps({"kind": "replay", "fields": {"records": records, "lanes": 2}}).encode()
    assert len(raw) < serving.MAX_BYTES
    assert beside_texts(raw) < 100
    read = read_body(RequestToPlan, raw)
    assert isinstance(read, RequestToPlan)
    assert read.fields == {"records": records, "lanes": 2}


@pytest.mark.parametrize(
    ("raw", "beside"),
    [(b"", 0), (b"[1]", 3), (b'"a"', 1), (b'["a\\"b", 1]', 6), (b'"a', 1), (b'"a\\', 1), (b'"a\\\\"1', 2)],
)
def test_what_lies_beside_texts_is_counted(raw: bytes, beside: int) -> None:
    assert beside_texts(raw) == beside


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b"[" * 4_000, b'{"kind":"replay","fields":{"a":"\\ud800"}}', b"1e"]
)
def test_what_is_no_json_says_so(raw: bytes) -> None:
    answer = read_body(RequestToPlan, raw)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.detail.startswith("the body is no JSON: ")) == (422, True)


def test_what_is_wrong_in_json_is_named() -> None:
    answer = read_body(RequestToPlan, b'{"kind":"erase","fields":{}}')
    assert isinstance(answer, RequestValidationError)
    assert [one["loc"] for one in answer.errors()] == [("body", "kind")]


@pytest.mark.covers("Q25")
def test_no_body_is_read_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    app, readers = FastAPI(), []
    app.exception_handler(RequestValidationError)(serving.wrong_value)
    app.dependency_overrides[get_user] = lambda: SimpleNamespace(get_name=lambda: "ann")
    app.state.asking = CachedQueries(lambda _: {}, Settings())

    @app.post("/")
    async def kind(asked: Annotated[RequestToPlan, Depends(bodies.body(RequestToPlan))]) -> str:
        return asked.kind

    def noted(model: Any, raw: bytes) -> Any:
        readers.append(threading.current_thread().name)
        return read_body(model, raw)

    monkeypatch.setattr(bodies, "read_body", noted)
    with TestClient(app) as client:
        answers = [
            client.post("/", content=raw)
            for raw in (b'{"kind":"replay","fields":{}}', b"{", b'{"kind":1}', b"9" * 9_999)
        ]
    assert [one.status_code for one in answers] == [200, 422, 422, 413]
    # Of many errors, some.
    assert "; and " in said(app, plan(many("1", 2_000)))
    assert {one.rpartition("_")[0] for one in readers} == {"tidemark page apart"}


def said(app: FastAPI, raw: bytes) -> str:
    with TestClient(app) as client:
        answer = client.post("/", content=raw)
    assert answer.status_code == 422
    found: str = answer.json()["detail"]
    assert len(found) < 2_000
    return found
