"""Whether a cluster admits us, and why not, found with one connection.

When a login or a certificate is refused, kafka-python tries again until its time is up. Then it says only that it could
not connect, and the server may have locked the user out. So this module makes the first connection of a process itself.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kafka.errors import (
    AuthorizationError,
    KafkaConnectionError,
    KafkaError,
    NoError,
    SaslAuthenticationFailedError,
    for_code,
)
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tidemark.clients.kafka.clients import python_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.errors import AuthenticationFailed, NotAuthorized, Unreachable

_TIMEOUT_SECONDS = 10.0


def check_admission(endpoint: KafkaEndpoint, *, again: bool = False) -> None:
    """Raises AuthenticationFailed when a broker does not admit us, or when we do not trust the broker.

    A broker that cannot be reached is no error here. A process asks once per endpoint that admitted it, unless `again`.
    """
    if endpoint.protocol == "PLAINTEXT" or (endpoint in _let_in and not again):
        return
    _let_in.discard(endpoint)
    settings = python_settings(endpoint)
    for server in settings["bootstrap_servers"]:
        host, _, port = server.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            _enter(endpoint, host, int(port), settings)
        except (OSError, ValueError, KafkaError):
            # A broker that is just restarting ends the connection without an answer; that is no error either.
            continue
        _let_in.add(endpoint)
        return


_let_in: set[KafkaEndpoint] = set()


@contextmanager
def kafka_errors(endpoint: KafkaEndpoint) -> Iterator[None]:
    """Kafka's errors as Tidemark's. Raises AuthenticationFailed, NotAuthorized, Unreachable."""
    try:
        check_admission(endpoint)
        yield
    except AuthorizationError as problem:
        raise NotAuthorized(f"Kafka at {endpoint} does not allow that to {endpoint.principal}: {problem}") from problem
    except KafkaError as problem:
        # A login may have become invalid, and the clients do not say so.
        check_admission(endpoint, again=True)
        raise Unreachable(f"Kafka at {endpoint} did not answer: {problem}") from problem


def lacking(endpoint: KafkaEndpoint, right: str, resource: str) -> NotAuthorized:
    """The error for a missing right; `right` and `resource` are in the words of Kafka's rules (ACLs)."""
    return NotAuthorized(
        f"Kafka at {endpoint}: {endpoint.principal} lacks the right {right} on {resource}. "
        "Nothing was changed; give it that right, and run again"
    )


def _enter(endpoint: KafkaEndpoint, host: str, port: int, settings: dict[str, Any]) -> None:
    # Wrapping for TLS takes the file descriptor out of the socket, so both objects are closed.
    with ExitStack() as opened:
        plain = opened.enter_context(socket.create_connection((host, port), _TIMEOUT_SECONDS))
        exchange = _shake_hands(endpoint, plain, opened, f"{host}:{port}", settings)
        if endpoint.login:
            try:
                _log_in(exchange, host, settings)
            except KafkaConnectionError as problem:
                raise Unreachable(f"no token for Kafka at {host}:{port}: {problem}") from None
            except (_Refused, SaslAuthenticationFailedError) as problem:
                raise AuthenticationFailed(
                    f"Kafka at {host}:{port} does not let in {endpoint.principal} by {endpoint.login.mechanism}: "
                    f"{_reason(problem)}. Correct the connection; nothing was asked"
                ) from None


def _shake_hands(
    endpoint: KafkaEndpoint, plain: socket.socket, opened: ExitStack, server: str, settings: dict[str, Any]
) -> _Exchange:
    connection = plain
    try:
        if endpoint.tls:
            # The handshake follows later, so that the socket is closed when the handshake fails.
            context = settings["ssl_context"]
            name = server.rpartition(":")[0]
            connection = context.wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False)
            opened.enter_context(connection)
            connection.do_handshake()
        exchange = _Exchange(connection)
        # Only now does a server say that it wants a certificate, or another one.
        exchange.ask(ApiVersionsRequest[0]())
    except ssl.SSLCertVerificationError as problem:
        raise AuthenticationFailed(
            f"Kafka at {server} shows a certificate that is not trusted: {problem.verify_message}. Give its authority as "
            "ssl.ca.location, and name the brokers as their certificates do"
        ) from None
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        raise
    except ssl.SSLError as problem:
        shown = endpoint.principal if endpoint.tls and endpoint.tls.certificate else "no certificate"
        raise AuthenticationFailed(
            f"Kafka at {server} ends the TLS connection, in which we showed {shown}: {_reason(problem)}. Either it asks for "
            "another certificate, or it speaks no TLS there"
        ) from None
    return exchange


def _log_in(exchange: _Exchange, host: str, settings: dict[str, Any]) -> None:
    name = str(settings["sasl_mechanism"])
    shaken = exchange.ask(SaslHandshakeRequest[1](name))
    if for_code(shaken.error_code) is not NoError:
        raise _Refused(f"it offers {', '.join(sorted(shaken.mechanisms))}")
    mechanism = get_sasl_mechanism(name)(host=host, **settings)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not mechanism.is_done() and time.monotonic() < deadline:
        answer = exchange.ask(SaslAuthenticateRequest[1](mechanism.auth_bytes()))
        if for_code(answer.error_code) is not NoError:
            raise _Refused(answer.error_message)
        try:
            mechanism.receive(answer.auth_bytes)
        except ValueError as problem:
            # The server's answer does not fit the login, as from a server that does not know the password.
            raise _Refused(str(problem)) from None


class _Refused(Exception):
    pass


class _Closed(OSError):
    pass


class _Exchange:
    """Questions and answers, one after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._protocol = KafkaProtocol(client_id="tidemark")

    def ask(self, request: Any) -> Any:
        self._protocol.send_request(request)
        self._connection.sendall(self._protocol.send_bytes())
        while True:
            received = self._connection.recv(65536)
            if not received:
                raise _Closed
            for _, answer in self._protocol.receive_bytes(received):
                return answer


def _reason(problem: BaseException) -> str:
    return str(getattr(problem, "reason", None) or problem)
