"""A connection that loses answers: a TCP proxy before a real server.

The proxy forwards everything until a request has the words that it waits for. It forwards that request and drops the
answer (applied), or it does not forward the request at all (not applied). In both cases it closes the client's connection.
Before that, it may do something: end the server, for example. While no server answers, its clients are hung up on.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress


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


# How a request begins that changes something.
_CHANGES = (b"PUT ", b"POST ", b"DELETE ")


class _Fatal(LossyProxy):
    """A proxy before a server of HTTP that kills a group of processes at a certain change that one of them asks for."""

    def __init__(self, port: int) -> None:
        self._left, self._group = 0, 0
        super().__init__(port)

    def end_at(self, number: int, group: int, *, applied: bool) -> None:
        self._left, self._group, self._applied = number, group, applied

    def _requests(
        self, client: socket.socket, server: socket.socket, losing: threading.Event, lost: threading.Event
    ) -> None:
        with client, server, suppress(OSError):
            while data := _received(client):
                if data.startswith(_CHANGES) and self._left:
                    self._left -= 1
                    if not self._left:
                        if not self._applied:
                            os.killpg(self._group, signal.SIGKILL)
                            return
                        # The rest of it may come later: what follows goes on to the server.
                        losing.set()
                server.sendall(data)

    def _answers(
        self, client: socket.socket, server: socket.socket, losing: threading.Event, lost: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := _received(server):
                if losing.is_set() and not data.startswith(b"HTTP/1.1 100"):
                    os.killpg(self._group, signal.SIGKILL)
                    return
                client.sendall(data)
            # The server has closed an idle connection.
            client.shutdown(socket.SHUT_RDWR)


class FatalProxy:
    """Such a proxy in a process of its own: delta-rs keeps Python's lock while it waits for some answers."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program
        self.port = int(self._said())

    def end_at(self, number: int, group: int, *, applied: bool) -> None:
        """Kill the group at the change of this number, from 1; 0: at none.

        Before the server gets it or, if it is `applied`, once the server has answered.
        """
        assert self._program.stdin is not None
        self._program.stdin.write(f"{number} {group} {int(applied)}\n")
        self._program.stdin.flush()
        self._said()

    def _said(self) -> str:
        assert self._program.stdout is not None
        return self._program.stdout.readline()


@contextmanager
def fatal(port: int) -> Iterator[FatalProxy]:
    command = [sys.executable, "-m", __name__, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        yield FatalProxy(program)


def _nothing() -> None: ...


def _received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 20)
    except OSError:
        return b""


@contextmanager
def lossy(port: int) -> Iterator[LossyProxy]:
    with closing(LossyProxy(port)) as proxy:
        yield proxy


if __name__ == "__main__":
    proxy = _Fatal(int(sys.argv[1]))
    print(proxy.port, flush=True)
    # Until the test closes the pipe.
    for line in sys.stdin:
        what = [*map(int, line.split())]
        proxy.end_at(what[0], what[1], applied=bool(what[2]))
        print(flush=True)
