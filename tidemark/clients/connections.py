"""Servers' addresses: named connections, kept by Airflow or in the environment, never in a stream file.

A stream file names a connection. Inside Airflow, Airflow's own Connections have it. Other programs read the variables
that Airflow reads too (`AIRFLOW_CONN_KAFKA_DEFAULT` for `kafka_default`), as JSON or as a URI.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

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
    # Airflow's type of the connection: `postgres`, `mysql`. Most clients of Tidemark go by its use instead.
    kind: str = ""

    def to_json(self) -> str:
        """The connection as the environment variable of a started program holds it. Holds secrets."""
        known = {name: getattr(self, name) for name in FIELDS}
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
        unused = [name for name in FIELDS if name not in fields and getattr(self, name) not in (None, "")]
        unused += [f"{name} among its extras" for name in self._set() if name not in extras]
        if unused:
            among = f"among its extras {', '.join(sorted(extras))}" if extras else ""
            known = "; ".join(part for part in (", ".join(fields), among) if part)
            more = "".join(f" {reasons[name]}" for name in self._set() if name not in extras and name in reasons)
            raise WrongUse(
                f"connection {self.name} sets {', '.join(unused)}: Tidemark does not use that in a connection to {kind}, and "
                f"ignores nothing. Take it out. Such a connection may set: {known}.{more}"
            )

    def secrets(self) -> list[str]:
        """The texts that must be masked wherever they might be shown."""
        return [*([self.password] if self.password else []), *secret_texts(self.extra)]

    def _set(self) -> list[str]:
        return sorted(name for name, value in self.extra.items() if value is not None)

    def allow_in_the_clear(self, servers: Iterable[str], what: str, remedy: str, *, secret: bool) -> None:
        """Raises WrongUse for a connection without TLS that leaves this machine, or carries a secret.

        The extra `allow_insecure` allows both. `what` others can read or change there; `remedy` says how to encrypt it.
        """
        if (secret or not on_this_machine(servers)) and not self.flag("allow_insecure"):
            raise WrongUse(
                f'connection {self.name}: {what}: {remedy} (or say {{"allow_insecure": true}} among its extras, on '
                "loopback or in a network that you trust)"
            )

    def url(self) -> str:
        """The host with the port, without a slash at the end. Raises WrongUse for no host, and for two ports.

        `check_url` says whether it is a URL.
        """
        host = str(self.required("host", self.host)).rstrip("/")
        if self.port is None or not (parts := _split(host)).netloc:
            return host
        if ":" in parts.netloc.rpartition("@")[2].rpartition("]")[2]:
            raise WrongUse(
                f"connection {self.name}: the host has a port, and so has the field port: give it in one of them"
            )
        return f"{parts.scheme}://{parts.netloc}:{self.port}{parts.path}"

    def check_url(self, url: str, expected: str, field: str, what: str, remedy: str, *, secret: bool) -> None:
        """Raises WrongUse for a URL of another scheme than `https` or `http`, with a login in it, or in the clear.

        `expected` says which URL is right, `field` what holds it; `what` and `remedy` as of `allow_in_the_clear`.
        """
        parts = _split(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise WrongUse(f"connection {self.name}: {expected}")
        if parts.username is not None:
            raise WrongUse(f"connection {self.name}: login and password stand in its fields, not in {field}")
        if parts.scheme == "http":
            self.allow_in_the_clear([parts.hostname], what, remedy, secret=secret)

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


def _split(url: str) -> SplitResult:
    """The parts of a URL; none of a text that cannot be one, such as `http://[::1`."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


Connections = Callable[[str], Connection]

# Airflow's other fields: the type of a connection matters to databases alone.
FIELDS = ("host", "port", "schema", "login", "password")


class AirflowConnection(Protocol):
    """The attributes of Airflow's own Connection that `connection_from_airflow` reads, without importing Airflow."""

    host: str | None
    port: int | None
    schema: str | None
    login: str | None
    password: str | None
    extra: str | None
    conn_type: str | None

    @property
    def extra_dejson(self) -> Mapping[str, Any]: ...


def connection_from_airflow(name: str, stored: AirflowConnection) -> Connection:
    """Raises WrongUse for extras that are no JSON object; Airflow ignores such extras."""
    extra = stored.extra_dejson
    if not isinstance(extra, Mapping) or (stored.extra and not extra and not _is_empty_object(stored.extra)):
        raise WrongUse(f"connection {name}: its extras are not a JSON object")
    kind = stored.conn_type or ""
    return Connection(name, stored.host, stored.port, stored.login, stored.password, extra, stored.schema, kind)


def _is_empty_object(text: str) -> bool:
    try:
        return not text.strip() or json.loads(text) == {}
    except ValueError:
        return False


def variable(name: str) -> str:
    """The environment variable that holds a connection."""
    return f"AIRFLOW_CONN_{name.upper()}"


def keep_quiet(library: str) -> None:
    """Keep a library's debug messages from the log: they may hold secrets of connections."""
    logger = logging.getLogger(library)
    logger.setLevel(max(logger.getEffectiveLevel(), logging.INFO))
