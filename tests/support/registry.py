"""A schema registry with all requests that Tidemark makes: `GET /schemas/ids/N`, versions of subjects, and a list in pages.

It can also redirect, be slow, or answer too much. What is registered there is answered, too.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.serving import running

LOGIN, PASSWORD = "tidemark", "a password: with colons"


# The answer for each number: the fields of the JSON, a status, or a misbehaviour.
Answers = Mapping[int, "dict[str, Any] | int | Misbehaviour"]
Misbehaviour = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    # More than Tidemark asks for at once. What finds no room is only sent again after a second.
    request_queue_size = 64


class Registry:
    """`schemas` by number, `versions` by `SUBJECT/N`, in which the subject is quoted.

    `subjects`: the numbers of what was registered, by subject and text. `refuses`: why it takes no new schema.

    `asked`: the paths of all requests. `credentials`: what each request showed.

    `pages`: the most schemas on a page of the list of all. 0: offset and limit are ignored. None: there is no list.
    """

    def __init__(self, schemas: Answers, port: int) -> None:
        self.schemas = schemas
        self.versions: dict[str, Any] = {}
        self.subjects: dict[str, dict[str, int]] = {}
        self.refuses: str | None = None
        self.port = port
        self.asked: list[str] = []
        self.credentials: list[str | None] = []
        self.pages: int | None = 1_000

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, asked: dict[str, list[str]]) -> list[dict[str, Any]]:
        """A page of the list of all, as Confluent's: by subject, so a schema of two subjects is there twice."""
        listed = [
            {"subject": f"{subject}-{number}", "version": 1, "id": number, "schema": ""}
            for subject in ("a", "b")
            for number in sorted(self.schemas)
        ]
        if not self.pages:
            return listed
        offset = int(asked["offset"][0])
        return listed[offset : offset + min(int(asked["limit"][0]), self.pages)]

    def registered(self, path: str, schema: str) -> tuple[int, dict[str, Any]]:
        """The answer to a POST of a schema: registered, or looked up."""
        _, _, subject, *versions = path.split("/")
        known = self.subjects.setdefault(unquote(subject), {})
        if schema not in known:
            if not versions:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            if self.refuses is not None:
                return 409, {"error_code": 409, "message": self.refuses}
            numbers = [number for one in self.subjects.values() for text, number in one.items() if text == schema]
            known[schema] = numbers[0] if numbers else 70_000 + sum(map(len, self.subjects.values()))
        return 200, {"id": known[schema]}


@contextmanager
def serving(  # noqa: C901  (an answer of each kind)
    schemas: Answers, port: int = 0, *, with_login: bool = False
) -> Iterator[Registry]:
    wanted = f"Basic {base64.b64encode(f'{LOGIN}:{PASSWORD}'.encode()).decode()}" if with_login else None

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.credentials.append(self.headers["Authorization"])
            number = self.path.removeprefix("/schemas/ids/")
            found = registry.schemas.get(int(number)) if number.isdecimal() else 404
            of_subject = re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)\?deleted=true", self.path)
            if of_subject is not None:
                found = registry.versions.get("/".join(of_subject.groups()), 404)
            if wanted is not None and self.headers["Authorization"] != wanted:
                self._answer(401, {"error_code": 401})
            elif self.path.startswith("/schemas?") and registry.pages is not None:
                self._answer(200, registry.page(parse_qs(urlsplit(self.path).query)))
            elif found is None:
                self._answer(404, {"error_code": 40403, "message": f"Schema {number} not found"})
            elif isinstance(found, int):
                self._answer(found, {"message": "something else"})
            elif callable(found):
                with suppress(OSError):  # whoever asked has gone
                    found(self)
            else:
                self._answer(200, found)

        def do_POST(self) -> None:
            registry.asked.append(self.path)
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.startswith("/subjects/"):
                self._answer(*registry.registered(self.path, given["schema"]))
            else:
                self._answer(404, {"message": "something else"})

        def _answer(self, status: int, fields: Any) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.end_headers()
            self.wfile.write(json.dumps(fields).encode())

        def log_message(self, *_: object) -> None:
            """Log nothing: tests look at `asked`."""

    server = Server(("127.0.0.1", port), Handler)
    registry = Registry(schemas, server.server_address[1])
    with running(server):
        yield registry


def redirect(to: str, status: int = 302) -> Misbehaviour:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Location", to)
        request.end_headers()

    return answer


def drip(begin: bytes, piece: bytes, pause_seconds: float, pieces: int) -> Misbehaviour:
    """An answer that comes in pieces, with a pause before each."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(begin)
        for _ in range(pieces):
            request.wfile.flush()
            time.sleep(pause_seconds)
            request.wfile.write(piece)

    return answer
