"""A REST catalog that answers otherwise than it should, or not at all, and how Tidemark logs in there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.serving import running
from tidemark.clients.connections import Connection
from tidemark.clients.iceberg_rest import rest_catalog
from tidemark.errors import AuthenticationFailed, NotAuthorized, TidemarkError, Unreachable, WrongUse
from tidemark.sinks.iceberg import rest
from tidemark.sinks.iceberg.catalog import CatalogTable, located, opened

TABLE = "/v1/namespaces/lake/tables/orders"
TOKENS = "/v1/oauth/tokens"
_NO_TABLE = {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}}


@dataclass
class Catalog:
    """What a server answers at each path; without an entry, that it has no such table."""

    url: str
    answers: dict[str, Callable[[], tuple[int, bytes]]] = field(default_factory=dict)
    # Each request: its path, and the login that it had.
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def says(self, path: str, status: int, body: Any) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[path] = lambda: (status, text)

    def where(self, **given: Any) -> CatalogTable:
        connection = Connection("catalog", host=self.url, kind="iceberg", **given)
        place = {"base": "file:///lake", "catalog": "catalog", "catalog_name": "tidemark", "table": "lake.orders"}
        return located(lambda _: connection, place)


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found.asked.append((self.path, self.headers["Authorization"]))
            status, body = found.answers[path]() if path in found.answers else (404, json.dumps(_NO_TABLE).encode())
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Catalog(f"http://127.0.0.1:{server.server_address[1]}")
    found.says("/v1/config", 200, {"defaults": {}, "overrides": {}})
    with running(server):
        yield found


def error(kind: str) -> dict[str, Any]:
    return {"error": {"message": "words of the server", "type": kind, "code": 1}}


@pytest.mark.covers("I6")
@pytest.mark.parametrize(
    ("path", "status", "body", "raised", "said"),
    [
        (TABLE, 401, error("NotAuthorizedException"), AuthenticationFailed, "refuses this login.*words of the server"),
        (TABLE, 403, error("ForbiddenException"), NotAuthorized, "does not allow this.*words of the server"),
        (TABLE, 503, error("ServiceUnavailableException"), Unreachable, "could not answer.*words of the server"),
        (TABLE, 500, b"<html>", Unreachable, "could not answer"),
        (TABLE, 429, b"", Unreachable, "could not answer"),
        (TABLE, 200, b"<html>", WrongUse, "does not answer as a REST catalog does; look at the address"),
        ("/v1/config", 404, b"<html>", WrongUse, "does not answer as a REST catalog does; look at the address"),
        ("/v1/config", 200, b"<html>", WrongUse, "does not answer as a REST catalog does; look at the address"),
    ],
)
def test_an_answer_that_gives_no_table(
    catalog: Catalog, path: str, status: int, body: Any, raised: type[TidemarkError], said: str
) -> None:
    catalog.says(path, status, body)
    with pytest.raises(raised, match=f"the REST catalog at {catalog.url} {said}") as refused:
        opened(catalog.where())
    assert type(refused.value) is raised


@pytest.mark.covers("I6")
def test_no_table_and_no_answer(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(catalog.where()) is None

    def late() -> tuple[int, bytes]:
        time.sleep(2)
        return 200, b"{}"

    catalog.answers[TABLE] = late
    monkeypatch.setattr(rest, "_ANSWER_SECONDS", 0.1)
    with pytest.raises(Unreachable, match="did not answer"):
        opened(catalog.where())


@pytest.mark.covers("I6")
def test_the_login_that_a_server_gets(catalog: Catalog) -> None:
    """None; a token; or one that is asked for once, and again when it has expired. Nobody is sent what it is not for."""
    insecure = {"allow_insecure": True}
    opened(catalog.where())
    assert {login for _, login in catalog.asked} == {None}
    catalog.asked.clear()
    opened(catalog.where(password="a-token", extra=insecure))
    assert {login for _, login in catalog.asked} == {"Bearer a-token"}
    catalog.asked.clear()

    tokens, accepted = iter(range(10)), {"Bearer t-0", "Bearer t-1"}
    catalog.answers[TOKENS] = lambda: (
        200,
        json.dumps({"access_token": f"t-{next(tokens)}", "token_type": "bearer"}).encode(),
    )
    catalog.answers[TABLE] = lambda: (
        (404, json.dumps(_NO_TABLE).encode())
        if catalog.asked[-1][1] in accepted
        else (401, json.dumps(error("NotAuthorizedException")).encode())
    )
    where = catalog.where(login="me", password="secret", extra={**insecure, "warehouse": "w1"})
    for _ in range(3):
        assert opened(where) is None
    config = [path for path, _ in catalog.asked if path.startswith("/v1/config")]
    assert config == ["/v1/config?warehouse=w1"]
    # One for the settings, and one for what follows.
    assert len([path for path, _ in catalog.asked if path == TOKENS]) == 2
    accepted.clear()
    accepted.add("Bearer t-2")
    assert opened(where) is None
    assert catalog.asked[-1][1] == "Bearer t-2"


@pytest.mark.covers("I6")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "catalog:8181"}, "catalog:8181 is no address of a REST catalog"),
        ({"host": "http://catalog"}, "it asks http://catalog by http://, where others can change the answers"),
        (
            {"host": "https://catalog", "login": "me", "password": "x", "extra": {"oauth2-server-uri": "http://who"}},
            "it asks http://who by http://, where others can read its password",
        ),
        ({"host": "https://catalog", "login": "me"}, "has a login without a password"),
        ({"host": "https://me:x@catalog"}, "login and password stand in its fields"),
        ({"host": "https://catalog", "extra": {"sigv4": "true"}}, "sets sigv4 among its extras"),
        ({}, "has no host"),
    ],
)
def test_a_connection_that_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        rest_catalog(Connection("catalog", kind="iceberg", **given))
