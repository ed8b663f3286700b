"""Every route of the pages, with Airflow's own auth manager: who is nobody gets nothing, and no route changes anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from tests.support.stream_text import MINIMAL
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory
from tidemark_plugin import viewing
from tidemark_plugin.access import get_user
from tidemark_plugin.app import build_app
from tidemark_plugin.streams import Servers

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The app, with a stream whose DAG Airflow does not know: so nobody may see it."""
    create_auth_manager()
    folder = tmp_path / "streams"
    folder.mkdir()
    (folder / "orders.yaml").write_text(MINIMAL)
    monkeypatch.setenv("TIDEMARK_STREAMS", str(folder))
    return build_app()


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    """Somebody who is logged in, and may see no DAG."""
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
    with TestClient(app) as found:
        yield found


def routes(app: FastAPI) -> list[APIRoute]:
    # A route of another class, such as FastAPI's own for its description, would not ask who is there.
    assert all(isinstance(route, APIRoute) for route in app.routes)
    return [route for route in app.routes if isinstance(route, APIRoute)]


def address(route: APIRoute) -> str:
    """An address of a route, with something for each of its parameters."""
    given = {"name": "orders", "lane": "ingest", "seq": "1"}
    path = re.sub(r"\{(\w+)\}", lambda found: given.get(found[1], "1"), route.path)
    asked = "&".join(f"{one.alias}={given.get(one.alias, '1')}" for one in route.dependant.query_params)
    return f"{path}?{asked}"


@pytest.mark.covers("Q11", "Q13", "U4")
def test_every_route_asks_who_is_there_and_only_looks(app: FastAPI) -> None:
    found = routes(app)
    assert {"/", "/streams/{name}", "/api/streams/{name}/coverage", "/api/openapi.json"} <= {one.path for one in found}
    for route in found:
        assert get_user in [one.call for one in route.dependant.dependencies], route.path
        assert route.methods == {"GET"}
    with TestClient(app) as stranger:
        for route in found:
            answer = stranger.get(address(route))
            assert (answer.status_code, "orders" in answer.text.replace(str(answer.url), "")) == (401, False), (
                route.path
            )
            assert answer.headers["content-security-policy"].startswith("default-src 'self'")


@pytest.mark.covers("Q11")
def test_every_route_of_a_stream_asks_for_the_right_to_see_it(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_streams = [route for route in routes(app) if "{name}" in route.path and "/files/" not in route.path]
    assert len(of_streams) >= 6
    for route in of_streams:
        answer = client.get(address(route))
        assert answer.status_code == 404, route.path
        # Nothing tells a stream that somebody may not see from one that there is not.
        other = client.get(address(route).replace("orders", "nowhere"))
        assert (other.status_code, other.text) == (404, answer.text)
    # The stream is there, for those who may see it.
    monkeypatch.setattr(viewing, "may_see", lambda _, dags: set(dags))
    assert client.get("/api/streams").json()["streams"] == ["orders"]
    assert client.get("/streams/orders").status_code == 200


@pytest.mark.covers("U4")
def test_what_is_asked_is_answered_with_exact_offsets(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a ledger and a Kafka in memory."""
    far = 2**53
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    orders.ends((far + 1, far + 11))
    orders.ingest("orders__ingest/first")
    orders.ends((far + 1, far + 12))
    monkeypatch.setattr(viewing, "may_see", lambda _, dags: set(dags))
    monkeypatch.setattr(Servers, "open", lambda *_: orders.opened)

    def asked(path: str) -> Any:
        answer = client.get(f"/api/streams/orders{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert asked("")["partitions"][0]["position"] == str(far + 11)
    line = asked("/line")
    assert (line["lag"], line["last_commit"]["run"]) == ("1", "orders__ingest/first")
    assert line["unread_since"] == (far + 11) * 1000
    (bar,) = asked("/coverage")["bars"]
    assert [(one["state"], one["from"], one["until"]) for one in bar["blocks"]] == [
        ("ingest", str(far + 1), str(far + 11)),
        ("unread", str(far + 11), str(far + 12)),
    ]
    (zoomed,) = asked(f"/coverage?partition=orders/0&from={far + 10}")["bars"]
    assert (zoomed["from"], zoomed["pixels"]) == (str(far + 10), 2)
    assert [(one["window"], one["lag"]) for one in asked("/trend")["windows"]] == [(1, "0")]
    # What is asked for and is not there is a mistake of who asks, in words.
    answer = client.get("/api/streams/orders/coverage?partition=orders/7")
    assert (answer.status_code, answer.json()) == (
        400,
        {"detail": "partition: the stream has no partition orders/7 now"},
    )


@pytest.mark.covers("U4")
def test_the_description_names_what_there_is_to_ask(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    paths = set(described["paths"])
    assert {"/api/streams", "/api/streams/{name}", "/api/streams/{name}/line", "/api/streams/{name}/coverage"} <= paths
    # Pages are no part of it, and every question says what it answers.
    assert not any(path in paths for path in ("/", "/streams/{name}", "/files/{name}"))
    for path, methods in described["paths"].items():
        assert methods["get"]["description"], path
    names = {one["name"] for one in described["paths"]["/api/streams/{name}/coverage"]["get"]["parameters"]}
    assert {"name", "width", "first", "count", "partition", "from", "until"} == names


@pytest.mark.covers("U4")
@pytest.mark.parametrize("asked", ["width=0", "width=9999999", "count=51", "from=-1", "until=9223372036854775808"])
def test_a_question_out_of_bounds_is_refused_by_its_name(client: TestClient, asked: str) -> None:
    answer = client.get(f"/api/streams/orders/coverage?{asked}")
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", asked.partition("=")[0]]


def test_only_the_files_of_the_pages_are_served(client: TestClient) -> None:
    assert client.get("/files/shared.js").headers["content-type"] == "text/javascript; charset=utf-8"
    for name in ("..%2Fapp.py", "nothing.js", "%2e%2e", "app.py"):
        assert client.get(f"/files/{name}").status_code == 404


def test_the_pages_name_only_files_that_there_are(client: TestClient, app: FastAPI) -> None:
    folder = Path(viewing.__file__).parent / "page"
    for path in folder.iterdir():
        for named in re.findall(r"""(?:src|href)="(?:\.\./)*files/([^"]+)"|from "\./([^"]+)\"""", path.read_text()):
            assert (folder / (named[0] or named[1])).exists(), (path.name, named)
