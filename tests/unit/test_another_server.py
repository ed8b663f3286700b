"""A connection that leads to a server of another kind: what answers there is named, and nobody waits for it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.hbase.thrift2 import Gateway2, thrift
from tidemark.errors import EXIT_WRONG_USE, AnotherServer, Unreachable

# What servers say to a call that they do not understand.
ANSWERS = {
    "a web server": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "Kafka": struct.pack(">iih", 10, 1, 35) + bytes(6),
    "ZooKeeper": struct.pack(">i", 40) + bytes(40),
    "TLS": bytes.fromhex("15030100020246"),
    "framed Thrift": struct.pack(">i", 30) + bytes.fromhex("80010002") + bytes(30),
    "another version": b"\xff" * 64,
}


class Answering:
    """A server that answers whatever it is asked with the same bytes, and closes the connection."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.asked = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client:
                client.recv(4096)
                self.asked += 1
                client.sendall(self._answer)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[Answering]:
    server = Answering(request.param)
    yield server
    server.close()


@pytest.mark.parametrize("answering", ANSWERS.values(), ids=ANSWERS, indirect=True)
def test_a_port_of_another_server_is_wrong_use_at_the_first_answer(answering: Answering) -> None:
    gateway = Gateway(HBaseEndpoint("127.0.0.1", answering.port))
    with pytest.raises(AnotherServer, match=rf"127\.0\.0\.1:{answering.port} is another server .*`hbase thrift start`"):
        gateway.repeated("list its tables", lambda client: client.getTableNames())
    with pytest.raises(AnotherServer) as raised:
        gateway.once(lambda client: client.getTableNames())
    assert raised.value.exit_code == EXIT_WRONG_USE
    assert answering.asked == 2
    second = Gateway2(HBaseEndpoint("127.0.0.1", answering.port))
    with pytest.raises(AnotherServer, match=r"`hbase thrift2 start`.*`thrift2` among the extras"):
        second.repeated("look", lambda client: client.exists(b"table", thrift.TGet(row=b"row")))


@pytest.mark.parametrize("answering", [b"", b"N"], ids=["closes", "half an answer"], indirect=True)
def test_a_server_that_hangs_up_may_be_down_for_a_moment(answering: Answering) -> None:
    gateway = Gateway(HBaseEndpoint("127.0.0.1", answering.port), patience=0.1)
    with pytest.raises(Unreachable, match="did not list its tables"):
        gateway.repeated("list its tables", lambda client: client.getTableNames())
