"""A schema registry that speaks all that is asked of one: `GET /schemas/ids/N`."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOGIN, PASSWORD = "tidemark", "a password: with colons"


class Registry:
    """`schemas` by number: what is answered, as the fields of the JSON, or a status. `asked` are the paths of all requests."""

    def __init__(self, schemas: dict[int, dict[str, Any] | int], port: int) -> None:
        self.schemas = schemas
        self.port = port
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(schemas: dict[int, dict[str, Any] | int], port: int = 0, *, with_login: bool = False) -> Iterator[Registry]:
    wanted = f"Basic {base64.b64encode(f'{LOGIN}:{PASSWORD}'.encode()).decode()}" if with_login else None

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            number = self.path.removeprefix("/schemas/ids/")
            found = registry.schemas.get(int(number)) if number.isdecimal() else 404
            if wanted is not None and self.headers["Authorization"] != wanted:
                self._answer(401, {"error_code": 401})
            elif found is None:
                self._answer(404, {"error_code": 40403, "message": f"Schema {number} not found"})
            elif isinstance(found, int):
                self._answer(found, {"message": "something else"})
            else:
                self._answer(200, found)

        def _answer(self, status: int, fields: dict[str, Any]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.end_headers()
            self.wfile.write(json.dumps(fields).encode())

        def log_message(self, *_: object) -> None:
            """Nothing: the tests ask what was asked."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    registry = Registry(schemas, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
