"""A ZooKeeper ensemble as seen by one program: bounded waits, one session per process, closed to other logins.

Kazoo's calls without a time-out wait as long as the ensemble is away. Every call here ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL

from tidemark.clients.connections import Connection, variable
from tidemark.clients.server_lists import joined, servers_in
from tidemark.errors import Unreachable, WrongUse
from tidemark.offsets import time_limit


@dataclass(frozen=True)
class Certificates:
    """The own and trusted certificates of a TLS client, as files. The client always checks certificates and host names."""

    ca: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    keyfile_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ZooKeeperEndpoint:
    """An ensemble: `host:port` separated by commas, and the login that owns the nodes; None if the nodes are open to all."""

    hosts: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    # None if the connection is not encrypted.
    tls: Certificates | None = None

    def __str__(self) -> str:
        return self.hosts


_ZOOKEEPER_FILES = ("ca", "certfile", "keyfile")


_ZOOKEEPER_TLS = (*_ZOOKEEPER_FILES, "keyfile_password")


_ZOOKEEPER_CHECKS = ("verify_certs", "check_hostname")


def zookeeper_endpoint(connection: Connection) -> ZooKeeperEndpoint:
    """Raises WrongUse for a connection without login and password, or without TLS, unless it says `allow_insecure`."""
    extras = ("allow_insecure", "use_ssl", *_ZOOKEEPER_CHECKS, *_ZOOKEEPER_TLS)
    connection.only("ZooKeeper", "host", "port", "login", "password", extras=extras)
    hosts = connection.required("host", connection.host)
    if ("," in hosts or ":" in hosts) and connection.port is not None:
        raise WrongUse(f"connection {connection.name} has ports in its host and another port besides: take that out")
    # Behind the servers may stand the node below which all others are.
    servers, slash, below = hosts.partition("/")
    try:
        hosts = joined(servers_in(servers, port=connection.port or 2181)) + slash + below
    except ValueError as problem:
        raise WrongUse(f"connection {connection.name}: host: {problem}") from None
    tls = _zookeeper_tls(connection)
    if connection.login and connection.password:
        if tls is None:
            connection.allow_in_the_clear(
                hosts.split(","),
                "its password goes to ZooKeeper without TLS, and everybody on the way could read it",
                'say "use_ssl": true',
                secret=True,
            )
        return ZooKeeperEndpoint(hosts, connection.login, connection.password, tls)
    if connection.login or connection.password:
        raise WrongUse(f"connection {connection.name} has only one of login and password: give it both")
    if connection.flag("allow_insecure"):
        return ZooKeeperEndpoint(hosts, tls=tls)
    raise WrongUse(
        f"connection {connection.name} has no login and password, and without them everybody could change the nodes: "
        f'give it both in Airflow or in {variable(connection.name)} (or say {{"allow_insecure": true}} among its extras)'
    )


def _zookeeper_tls(connection: Connection) -> Certificates | None:
    for name in _ZOOKEEPER_CHECKS:
        if connection.extra.get(name) is not None and not connection.flag(name):
            raise WrongUse(
                f"connection {connection.name}: {name} among its extras is false, and any server that answers would be "
                "trusted; give the certificate authority as `ca` instead"
            )
    given = {name: connection.text(name) for name in _ZOOKEEPER_TLS}
    if not connection.flag("use_ssl"):
        if named := [name for name in (*_ZOOKEEPER_TLS, *_ZOOKEEPER_CHECKS) if connection.extra.get(name) is not None]:
            raise WrongUse(f'connection {connection.name} sets {", ".join(named)} without "use_ssl": true')
        return None
    if (given["certfile"] is None) != (given["keyfile"] is None):
        raise WrongUse(f"connection {connection.name}: certfile and keyfile among its extras go together")
    if given["keyfile_password"] and not given["keyfile"]:
        raise WrongUse(f"connection {connection.name}: keyfile_password among its extras goes with keyfile")
    for name in _ZOOKEEPER_FILES:
        if (path := given[name]) is not None and not Path(path).is_file():
            raise WrongUse(f"connection {connection.name}: there is no file {path}, the {name} among its extras")
    return Certificates(**given)


# ZooKeeper answers in milliseconds. A call that takes longer than this has lost its server.
TIMEOUT_SECONDS = 15.0
SESSION_SECONDS = 10.0
# How long reads are retried: an ensemble elects a new leader within seconds.
PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
# A connection on this machine is there within milliseconds.
_LOOK_SECONDS = 0.01

# The errors when the ensemble is away or slow. All of them leave a write in doubt.
TROUBLE = (
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    OSError,
)


# So that two threads which ask for the first time get one client.
_making = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_making=threading.Lock()))


class ZooKeeper:
    """One ensemble. A program has one session per endpoint, however many of these objects it has."""

    def __init__(
        self,
        endpoint: ZooKeeperEndpoint,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._patience = patience

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the endpoint travels to Spark's workers.
        return ZooKeeper, (self.endpoint,)

    @property
    def client(self) -> KazooClient:
        """This process's session. It recovers by itself after a lost connection or an expired session.

        Raises Unreachable when there is no session in time; nothing was sent then.
        """
        with _making:
            client = _client(self.endpoint, os.getpid())
        deadline = time.monotonic() + self._timeout_seconds
        while not client.connected:
            if time.monotonic() > deadline:
                raise Unreachable(f"ZooKeeper at {self.endpoint} did not answer within {self._timeout_seconds:.0f} s")
            time.sleep(_LOOK_SECONDS)
        return client

    def once(self, *calls: Callable[[KazooClient], Any]) -> Any:
        """Send some requests together, in this order, and return the last one's answer.

        Each call returns kazoo's IAsyncResult. Raises what kazoo raises; see TROUBLE. Raises WrongUse when the nodes
        belong to another login.
        """
        client = self.client
        try:
            waiting = [call(client) for call in calls]
            return [reply.get(timeout=self._timeout_seconds) for reply in waiting][-1]
        except (NoAuthError, AuthFailedError) as problem:
            raise WrongUse(
                f"ZooKeeper at {self.endpoint} refuses this login: the nodes belong to another one. "
                "Use the login that made them, or another path."
            ) from problem

    def repeated(self, what: str, *calls: Callable[[KazooClient], Any]) -> Any:
        """Send requests that may be made twice, as `once`; repeat them until an answer comes. Raises Unreachable."""
        deadline = time.monotonic() + self._patience
        while True:
            time_limit.look()
            try:
                return self.once(*calls)
            except (*TROUBLE, Unreachable) as problem:
                if time.monotonic() > deadline:
                    raise Unreachable(
                        f"ZooKeeper at {self.endpoint} did not answer a {what} within {self._patience:.0f} s: {reason(problem)}"
                    ) from problem
            time.sleep(_PAUSE_SECONDS)


def reason(problem: BaseException) -> str:
    """Kazoo's errors often have no text of their own."""
    return str(problem) or type(problem).__name__


@cache
def _client(endpoint: ZooKeeperEndpoint, process: int) -> KazooClient:
    """The client of one process: a forked process needs a session of its own."""
    del process
    tls = {} if endpoint.tls is None else {"use_ssl": True, "check_hostname": True, **asdict(endpoint.tls)}
    login = [("digest", f"{endpoint.login}:{endpoint.password}")] if endpoint.login else None
    client = KazooClient(
        hosts=endpoint.hosts,
        timeout=SESSION_SECONDS,
        auth_data=login,
        **tls,
        # Only the login that made a node may read or change it. Without a login, the connection has allowed open nodes.
        default_acl=CREATOR_ALL_ACL if login else None,
        # Without a limit, the pause between two attempts grows to an hour.
        connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0},
    )
    # From now on the client connects and reconnects in a thread of its own.
    client.start_async()
    return client
