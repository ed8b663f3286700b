"""Where servers are: named connections, kept by Airflow or in the environment, never in a stream file.

A stream file names a connection. Inside Airflow, Airflow's own Connections have it. Other programs read the variables
that Airflow reads too (`AIRFLOW_CONN_KAFKA_DEFAULT` for `kafka_default`), as JSON or as a URI.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemark.clients import on_one_machine
from tidemark.clients.secrets import on_this_machine, secret_texts
from tidemark.errors import WrongUse


@dataclass(frozen=True)
class Connection:
    """One connection. Its password and extras are never shown."""

    name: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    schema: str | None = None
    # What Airflow calls the type of a connection: `postgres`, `mysql`. Most clients of Tidemark are known by their use.
    kind: str = ""

    def to_json(self) -> str:
        """The connection as the environment variable of a started program holds it. Holds secrets."""
        known = {name: getattr(self, name) for name in _FIELDS}
        return json.dumps({"conn_type": self.kind or "generic", **known, "extra": dict(self.extra)})

    def required(self, what: str, value: Any) -> Any:
        if value in (None, ""):
            raise WrongUse(f"connection {self.name} has no {what}; give it one in Airflow or in {variable(self.name)}")
        return value

    def only(
        self,
        kind: str,
        *fields: str,
        extras: Collection[str] = (),
        reasons: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Check that the connection sets only these fields and extras. Raises WrongUse naming all others.

        Users who have set `use_ssl` or a password rely on it. `reasons` say for some extras what to do instead. An empty
        field counts as not set, and so does an extra that is null.
        """
        unused = [name for name in _FIELDS if name not in fields and getattr(self, name) not in (None, "")]
        unused += [f"{name} among its extras" for name in self._set() if name not in extras]
        if unused:
            known = [*fields, *(f"{name} among its extras" for name in extras)]
            more = "".join(f" {reasons[name]}" for name in self._set() if name not in extras and name in reasons)
            raise WrongUse(
                f"connection {self.name} sets {', '.join(unused)}: Tidemark does not use that in a connection to {kind}, and "
                f"ignores nothing. Take it out. Such a connection may set: {', '.join(known)}.{more}"
            )

    def secrets(self) -> list[str]:
        """The texts that must be masked wherever they might be shown."""
        return [*([self.password] if self.password else []), *secret_texts(self.extra)]

    def _set(self) -> list[str]:
        return sorted(name for name, value in self.extra.items() if value is not None)

    def allow_in_the_clear(self, servers: Iterable[str], what: str, remedy: str, *, secret: bool) -> None:
        """Raises WrongUse for a line without TLS that leaves this machine, or that carries a secret.

        The extra `allow_insecure` allows both. `what` others can read or change there; `remedy` says how to encrypt it.
        """
        if (secret or not on_this_machine(servers)) and not self.flag("allow_insecure"):
            raise WrongUse(
                f'connection {self.name}: {what}: {remedy} (or say {{"allow_insecure": true}} among its extras, on '
                "loopback or in a network that you trust)"
            )

    def flag(self, name: str) -> bool:
        """An extra that is true or false; false when the extra is missing. Raises WrongUse for any other value."""
        value = self.extra.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise WrongUse(f"connection {self.name}: {name} among its extras is neither true nor false")

    def text(self, name: str) -> str | None:
        """An extra that is a text; None when the extra is missing or empty. Raises WrongUse for any other value."""
        value = self.extra.get(name)
        if value is None or isinstance(value, str):
            return value or None
        raise WrongUse(f"connection {self.name}: {name} among its extras is not a text")


Connections = Callable[[str], Connection]

# Airflow's other fields: the type of a connection matters to databases alone.
_FIELDS = ("host", "port", "schema", "login", "password")
_OTHERS = ("conn_type", "description", "extra")

# Characters with a meaning of their own in a path of Spark or of delta-rs.
_TAKEN = "*?[]{}^\\%"
_OF_FILES = ("path", "hadoop")
# As Airflow's Amazon provider names them.
OBJECT_STORE = "aws"
_OF_BUCKETS = ("endpoint_url", "region_name", "aws_session_token", "allow_insecure")
_ROLES = "Give a key's id as login and its secret as password, or neither: then the machine's own role is used."
_NO_ROLES = dict.fromkeys(("role_arn", "assume_role_method", "assume_role_kwargs", "profile_name"), _ROLES)


class AirflowConnection(Protocol):
    """The attributes of Airflow's own Connection. With them, `of_airflow` converts one without importing Airflow."""

    host: str | None
    port: int | None
    schema: str | None
    login: str | None
    password: str | None
    extra: str | None
    conn_type: str | None

    @property
    def extra_dejson(self) -> Mapping[str, Any]: ...


def of_airflow(name: str, found: AirflowConnection) -> Connection:
    """Raises WrongUse for extras that are no JSON object; Airflow ignores such extras."""
    extra = found.extra_dejson
    if not isinstance(extra, Mapping) or (found.extra and not extra and not _is_empty_object(found.extra)):
        raise WrongUse(f"connection {name}: its extras are not a JSON object")
    kind = found.conn_type or ""
    return Connection(name, found.host, found.port, found.login, found.password, extra, found.schema, kind)


def _is_empty_object(text: str) -> bool:
    try:
        return not text.strip() or json.loads(text) == {}
    except ValueError:
        return False


def variable(name: str) -> str:
    """The environment variable that holds a connection."""
    return f"AIRFLOW_CONN_{name.upper()}"


def from_environment(name: str) -> Connection:
    """The connection in the environment, or what stands in for it on one machine.

    Raises ConnectionMissing, or WrongUse when the variable does not parse.
    """
    missing = f"there is no connection {name}: set {variable(name)}, as JSON or as a URI"
    return on_one_machine.found(name, _of_variable, missing)


def _of_variable(name: str) -> Connection | None:
    text = os.environ.get(variable(name))
    if not text:
        return None
    try:
        return _from_json(name, text) if text.lstrip().startswith("{") else _from_uri(name, text)
    except (ValueError, TypeError) as problem:
        # Only the kind of the problem: the problem's text may quote the value, which may hold a password.
        raise WrongUse(
            f"{variable(name)} is neither JSON nor a URI that can be read ({type(problem).__name__})"
        ) from None


def _from_json(name: str, text: str) -> Connection:
    values = json.loads(text)
    extra = values.get("extra") or {}
    extra = json.loads(extra) if isinstance(extra, str) else extra
    if not isinstance(extra, dict):
        raise TypeError("extra is no object")
    if unknown := sorted(values.keys() - {*_FIELDS, *_OTHERS}):
        raise WrongUse(f"{variable(name)} sets {', '.join(unknown)}, which no connection has")
    port = values.get("port")
    return Connection(
        name,
        values.get("host"),
        None if port in (None, "") else int(port),
        values.get("login"),
        values.get("password"),
        extra,
        values.get("schema"),
        str(values.get("conn_type") or ""),
    )


def _from_uri(name: str, text: str) -> Connection:
    parts = urlsplit(text)
    if not parts.scheme:
        raise ValueError("no scheme")
    extra = dict(parse_qsl(parts.query, keep_blank_values=True))
    extra = json.loads(extra["__extra__"]) if "__extra__" in extra else extra
    if not isinstance(extra, dict):
        raise TypeError("extra is no object")
    host, login, password, schema = (
        unquote(part) if part else None
        for part in (parts.hostname, parts.username, parts.password, parts.path.removeprefix("/"))
    )
    if not host and parts.path:
        # As Airflow's provider for SQLite writes it: `sqlite:////var/lib/ledger.db`.
        host, schema = unquote(parts.path.removeprefix("/")), None
    return Connection(name, host, parts.port, login, password, extra, schema, parts.scheme.replace("-", "_"))


_NO_HBASE_TLS = (
    "The clients of HBase's Thrift gateways speak no TLS here: put a gateway on each host, listening on loopback, or a "
    "tunnel that does it, as stunnel, and name its near end."
)


@dataclass(frozen=True)
class HBaseEndpoint:
    """Host and port of an HBase Thrift gateway, and of `others` that serve the same HBase."""

    host: str
    port: int
    others: tuple[tuple[str, int], ...] = ()

    @property
    def gateways(self) -> tuple[tuple[str, int], ...]:
        return ((self.host, self.port), *self.others)

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.gateways)


def hbase_endpoint(connection: Connection) -> HBaseEndpoint:
    """The Thrift 1 gateways: `host` has one or several, separated by commas. A gateway without a port has the connection's."""
    _only_gateways(connection)
    return _gateways(connection, connection.required("host", connection.host))


def hbase2_endpoint(connection: Connection) -> HBaseEndpoint:
    """The Thrift 2 gateways: `thrift2` among the extras, `host:port` separated by commas."""
    _only_gateways(connection)
    return _gateways(connection, str(connection.required("thrift2 among its extras", connection.text("thrift2"))))


def _only_gateways(connection: Connection) -> None:
    if connection.extra.get("use_ssl") is False:
        # `use_ssl: false` says how it is.
        return connection.only("HBase", "host", "port", extras=("thrift2", "use_ssl"))
    return connection.only("HBase", "host", "port", extras=("thrift2",), reasons={"use_ssl": _NO_HBASE_TLS})


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
class Certificates:
    """What a TLS client of ZooKeeper shows and trusts, as files. The client always checks certificates and host names."""

    ca: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    keyfile_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ZooKeeperEndpoint:
    """An ensemble: `host:port` separated by commas, and the login that owns the nodes. None: the nodes are open to all."""

    hosts: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    # None: the connection is not encrypted.
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
    if "," not in hosts and ":" not in hosts:
        hosts = f"{hosts}:{connection.port or 2181}"
    elif connection.port is not None:
        raise WrongUse(f"connection {connection.name} has ports in its host and another one beside: take that out")
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


@dataclass(frozen=True)
class RegistryEndpoint:
    """A schema registry's address, without a slash at the end, and the login. None: the registry needs no login."""

    url: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.url


def registry_endpoint(connection: Connection) -> RegistryEndpoint:
    """The host begins with `https://` or `http://`, as in Airflow's HTTP connections.

    Raises WrongUse for any other host. Plain `http://` needs `allow_insecure` among the extras: others could read and
    change requests, and read a password. A registry on this machine without a password does not need it.
    """
    connection.only("a schema registry", "host", "port", "login", "password", extras=("allow_insecure",))
    host = str(connection.required("host", connection.host)).rstrip("/")
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongUse(f"connection {connection.name}: expected a host that begins with https:// or http://")
    if parts.username is not None:
        raise WrongUse(f"connection {connection.name}: login and password stand in its fields, not in the host")
    secret = bool(connection.login or connection.password)
    if parts.scheme == "http":
        read = "its password" if secret else "and change the answers"
        connection.allow_in_the_clear(
            [parts.hostname],
            f"it asks a schema registry by http://, where others can read {read}",
            "give it a host that begins with https://",
            secret=secret,
        )
    url = host if connection.port is None else f"{parts.scheme}://{parts.netloc}:{connection.port}{parts.path}"
    return RegistryEndpoint(url, connection.login, connection.password)


def lake_folder(connection: Connection) -> str:
    """The folder or URI below which file sinks write: the `path` among the extras, as in Airflow's File connections.

    Raises WrongUse for a relative path, since every program starts in a folder of its own. Raises WrongUse too for
    characters that not all programs take.
    """
    _only_files(connection)
    path = str(connection.required("path among its extras", connection.text("path")))
    if not path.startswith("/") and "://" not in path:
        raise WrongUse(
            f"connection {connection.name}: the path {path!r} among its extras is relative; expected one from the root, "
            "like /data/lake, or a URI"
        )
    if found := [letter for letter in path if letter in _TAKEN]:
        raise WrongUse(
            f"connection {connection.name}: the path {path!r} among its extras has {found[0]!r}, which has a meaning there"
        )
    if connection.kind == OBJECT_STORE and not path.startswith("s3a://"):
        raise WrongUse(
            f"connection {connection.name} is of the type {OBJECT_STORE}, and the path {path!r} among its extras is in no "
            "bucket: expected s3a://BUCKET/FOLDER"
        )
    return path.rstrip("/")


def _only_files(connection: Connection) -> None:
    if connection.kind == OBJECT_STORE:
        extras = (*_OF_FILES, *_OF_BUCKETS)
        return connection.only("a bucket", "login", "password", extras=extras, reasons=_NO_ROLES)
    return connection.only("files", extras=_OF_FILES)


def file_system_settings(connection: Connection) -> dict[str, str]:
    """Hadoop's settings for the file system of `path`: `hadoop` among the extras, names that begin with `fs.`.

    Raises WrongUse for any other name, and for a value that is no text. The error never quotes a value.
    """
    _only_files(connection)
    given = connection.extra.get("hadoop") or {}
    if not isinstance(given, Mapping):
        raise WrongUse(f"connection {connection.name}: hadoop among its extras is no map of settings")
    for name, value in given.items():
        if not str(name).startswith("fs.") or not isinstance(value, str):
            raise WrongUse(
                f"connection {connection.name}: hadoop among its extras sets {name}; expected settings of a file system, "
                "whose names begin with fs., each with a text"
            )
    return dict(given)


def keep_quiet(library: str) -> None:
    """Keep a library's debug messages from the log: they may hold secrets of connections."""
    logger = logging.getLogger(library)
    logger.setLevel(max(logger.getEffectiveLevel(), logging.INFO))
