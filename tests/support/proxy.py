"""A connection that loses answers: a TCP proxy before a real server.

The proxy forwards everything until a request has the words that it waits for. It forwards that request and drops the
answer (applied), or it does not forward the request at all (not applied). In both cases it closes the client's connection.
Before that, it may do something: end the server, for example. While no server answers, its clients are hung up on.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class LossyProxy:
    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._waiting: tuple[bytes, ...] | None = None
        self._applied = False
        self._meanwhile: Callable[[], None] = _nothing
        self._answer_is_awaited = True
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next(
        self, *words: bytes, applied: bool, meanwhile: Callable[[], None] | None = None, awaited: bool = True
    ) -> None:
        """Lose the answer to the next request that has all the words.

        `meanwhile` is done when the server has answered or, if the answer is not `awaited`, when it has the request.
        """
        self._applied, self._meanwhile, self._answer_is_awaited = applied, meanwhile or _nothing, awaited
        self._waiting = words

    def close(self) -> None:
        # Closing alone does not end the wait for a client: the next one, after its server has ended, would be taken.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server))
            except ConnectionRefusedError:
                client.close()
                continue
            losing, lost = threading.Event(), threading.Event()
            threading.Thread(target=self._requests, args=(client, server, losing, lost), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, losing, lost), daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, losing: threading.Event, lost: threading.Event
    ) -> None:
        with client, server:
            while data := _received(client):
                if self._waiting is not None and all(word in data for word in self._waiting):
                    self._waiting = None
                    self.lost += 1
                    if self._applied:
                        # From now on, the other direction drops what comes, and notes it.
                        losing.set()
                        server.sendall(data)
                        if self._answer_is_awaited:
                            lost.wait(30)
                        self._meanwhile()
                    client.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(data)

    def _answers(
        self, client: socket.socket, server: socket.socket, losing: threading.Event, lost: threading.Event
    ) -> None:
        while data := _received(server):
            if losing.is_set():
                lost.set()
                return
            try:
                client.sendall(data)
            except OSError:
                return


def _nothing() -> None: ...


def _received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 20)
    except OSError:
        return b""


@contextmanager
def lossy(port: int) -> Iterator[LossyProxy]:
    proxy = LossyProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
