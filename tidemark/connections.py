"""Where servers are: named connections, kept by Airflow or in the environment, never in a stream file.

A connection is looked up by the name that a stream file gives it. Inside Airflow its own Connections are asked; other
programs read the variables that Airflow reads too (`AIRFLOW_CONN_KAFKA_DEFAULT` for `kafka_default`), JSON or URI.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemark.errors import ConnectionMissing, WrongUse


@dataclass(frozen=True)
class Connection:
    """What is known of one connection. Its password and extras are never shown."""

    name: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> str:
        """The connection as its environment variable holds it, for a program that is started with it. Holds secrets."""
        known = {"host": self.host, "port": self.port, "login": self.login, "password": self.password}
        return json.dumps({"conn_type": "generic", **known, "extra": dict(self.extra)})

    def required(self, what: str, value: Any) -> Any:
        if value in (None, ""):
            raise WrongUse(f"connection {self.name} has no {what}; give it one in Airflow or in {variable(self.name)}")
        return value


Connections = Callable[[str], Connection]

# What means something else in a path of Spark's, or of delta-rs.
_TAKEN = "*?[]{}^\\%"


class AirflowConnection(Protocol):
    """What Airflow's own Connection has; in this shape it becomes one of ours without an import of Airflow."""

    host: str | None
    port: int | None
    login: str | None
    password: str | None

    @property
    def extra_dejson(self) -> Mapping[str, Any]: ...


def of_airflow(name: str, found: AirflowConnection) -> Connection:
    return Connection(name, found.host, found.port, found.login, found.password, found.extra_dejson)


def variable(name: str) -> str:
    """The environment variable that holds a connection."""
    return f"AIRFLOW_CONN_{name.upper()}"


def from_environment(name: str) -> Connection:
    """The connection in the environment. Raises ConnectionMissing, or WrongUse when the variable does not parse."""
    text = os.environ.get(variable(name))
    if not text:
        raise ConnectionMissing(f"there is no connection {name}: set {variable(name)}, as JSON or as a URI")
    try:
        return _from_json(name, text) if text.lstrip().startswith("{") else _from_uri(name, text)
    except (ValueError, TypeError) as problem:
        # Only the kind of the problem: its text may quote the value, which may hold a password.
        raise WrongUse(
            f"{variable(name)} is neither JSON nor a URI that can be read ({type(problem).__name__})"
        ) from None


def _from_json(name: str, text: str) -> Connection:
    values = json.loads(text)
    extra = values.get("extra") or {}
    extra = json.loads(extra) if isinstance(extra, str) else extra
    port = values.get("port")
    return Connection(
        name,
        values.get("host"),
        None if port is None else int(port),
        values.get("login"),
        values.get("password"),
        extra,
    )


def _from_uri(name: str, text: str) -> Connection:
    parts = urlsplit(text)
    if not parts.scheme:
        raise ValueError("no scheme")
    extra = dict(parse_qsl(parts.query))
    extra = json.loads(extra["__extra__"]) if "__extra__" in extra else extra
    host, login, password = (
        unquote(part) if part else None for part in (parts.hostname, parts.username, parts.password)
    )
    return Connection(name, host, parts.port, login, password, extra)


@dataclass(frozen=True)
class HBaseEndpoint:
    """Host and port of an HBase Thrift gateway, and of `others` that stand before the same HBase."""

    host: str
    port: int
    others: tuple[tuple[str, int], ...] = ()

    @property
    def gateways(self) -> tuple[tuple[str, int], ...]:
        return ((self.host, self.port), *self.others)

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.gateways)


def hbase_endpoint(connection: Connection) -> HBaseEndpoint:
    """The Thrift 1 gateways: `host` is one, or several with commas between, each with a port of its own or the connection's."""
    return _gateways(connection, connection.required("host", connection.host))


def hbase2_endpoint(connection: Connection) -> HBaseEndpoint:
    """The Thrift 2 gateways: `thrift2` among the extras, `host:port` with commas between."""
    return _gateways(connection, str(connection.required("thrift2 among its extras", connection.extra.get("thrift2"))))


def _gateways(connection: Connection, hosts: str) -> HBaseEndpoint:
    found = []
    for one in hosts.split(","):
        host, _, port = one.strip().partition(":")
        number = port or str(connection.required("port", connection.port))
        if not host or not number.isdecimal():
            raise WrongUse(f"connection {connection.name} names the gateway {one!r}; expected host or host:port")
        found.append((host, int(number)))
    return HBaseEndpoint(*found[0], tuple(found[1:]))


@dataclass(frozen=True)
class ZooKeeperEndpoint:
    """An ensemble: `host:port` with commas between, and the login that owns the nodes; None for nodes open to all."""

    hosts: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.hosts


def zookeeper_endpoint(connection: Connection) -> ZooKeeperEndpoint:
    """Raises WrongUse for a connection without login and password, unless its extras say `allow_insecure`."""
    hosts = connection.required("host", connection.host)
    if "," not in hosts and ":" not in hosts:
        hosts = f"{hosts}:{connection.port or 2181}"
    if connection.login and connection.password:
        return ZooKeeperEndpoint(hosts, connection.login, connection.password)
    if connection.extra.get("allow_insecure") is True:
        return ZooKeeperEndpoint(hosts)
    raise WrongUse(
        f"connection {connection.name} has no login and password, and without them everybody could change the nodes: "
        f'give it both in Airflow or in {variable(connection.name)} (or say {{"allow_insecure": true}} among its extras)'
    )


def kafka_bootstrap(connection: Connection) -> str:
    """The brokers to ask first, `host:port` with commas between.

    The connection has the shape that Airflow's Kafka provider gives it: everything in its extras, with dots. Other keys
    are refused rather than passed on or forgotten.
    """
    other = connection.extra.keys() - {"bootstrap.servers"}
    if other:
        raise WrongUse(
            f"connection {connection.name} sets {', '.join(sorted(other))}; Tidemark knows only bootstrap.servers so far"
        )
    return str(connection.required("bootstrap.servers among its extras", connection.extra.get("bootstrap.servers")))


@dataclass(frozen=True)
class RegistryEndpoint:
    """Where a schema registry is, without a slash at the end, and who asks it; None for a registry that asks nobody."""

    url: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)


def registry_endpoint(connection: Connection) -> RegistryEndpoint:
    """Host with `http://` or `https://` before it, as of Airflow's HTTP connections. Raises WrongUse for any other."""
    host = str(connection.required("host", connection.host)).rstrip("/")
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongUse(f"connection {connection.name}: expected a host that begins with http:// or https://")
    if parts.username is not None:
        raise WrongUse(f"connection {connection.name}: login and password stand in its fields, not in the host")
    url = host if connection.port is None else f"{parts.scheme}://{parts.netloc}:{connection.port}{parts.path}"
    return RegistryEndpoint(url, connection.login, connection.password)


def lake_folder(connection: Connection) -> str:
    """The folder or URI below which file sinks write: the `path` among the extras, as of Airflow's File connections.

    Raises WrongUse for a relative one, since every program starts in a folder of its own, and for what not all of them take.
    """
    path = str(connection.required("path among its extras", connection.extra.get("path")))
    if not path.startswith("/") and "://" not in path:
        raise WrongUse(
            f"connection {connection.name}: the path {path!r} among its extras is relative; expected one from the root, "
            "like /data/lake, or a URI"
        )
    if found := [letter for letter in path if letter in _TAKEN]:
        raise WrongUse(
            f"connection {connection.name}: the path {path!r} among its extras has {found[0]!r}, which has a meaning there"
        )
    return path.rstrip("/")
