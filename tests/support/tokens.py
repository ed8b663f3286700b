"""An endpoint that gives tokens for client id and secret, over HTTPS on loopback."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import parse_qsl

import jwt

from tests.support.serving import running


class Tokens:
    """`asked`: the forms of all requests. `seconds`: the lifetime of a token."""

    def __init__(self, port: int, seconds: int) -> None:
        self.url = f"https://127.0.0.1:{port}/token"
        self.asked: list[dict[str, str]] = []
        self.seconds = seconds


@contextmanager
def serving(
    secrets: dict[str, str],
    certificate: Path,
    answer: tuple[int, bytes] | None = None,
    *,
    signed_with: Path | None = None,
    seconds: int = 300,
) -> Iterator[Tokens]:
    """`secrets` by client id. `answer`: status and body of the answer instead of a token."""
    numbers = count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            served.asked.append(form)
            scheme, _, words = self.headers["Authorization"].partition(" ")
            client, _, secret = base64.b64decode(words).decode().partition(":")
            if answer is not None:
                self._answer(*answer)
            elif scheme != "Basic" or secrets.get(client) != secret:
                self._answer(401, b'{"error": "invalid_client"}')
            else:
                token = {"access_token": self._token(client), "expires_in": seconds, "token_type": "Bearer"}
                self._answer(200, json.dumps(token).encode())

        def _token(self, client: str) -> str:
            if signed_with is None:
                return f"token {next(numbers)}"
            now = int(time.time())
            claims = {"sub": client, "aud": "kafka", "scope": "kafka", "iat": now, "exp": now + seconds}
            return jwt.encode(claims, signed_with.read_text(), "RS256", headers={"kid": "tests"})

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Location", served.url)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: tests look at `asked`."""

        def handle(self) -> None:
            try:
                super().handle()
            except (ssl.SSLError, ConnectionError):
                # A client that does not trust us goes away.
                return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    served = Tokens(server.server_address[1], seconds)
    with running(server):
        yield served
