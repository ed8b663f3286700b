"""Connections in the environment, in the variables that Airflow reads too, as JSON or as a URI."""

from __future__ import annotations

import json
import os
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemark.clients import on_one_machine
from tidemark.clients.connections import FIELDS, Connection, variable
from tidemark.errors import WrongUse

_OTHERS = ("conn_type", "description", "extra")


def from_environment(name: str) -> Connection:
    """The connection in the environment, or its stand-in on one machine.

    Raises ConnectionMissing, or WrongUse when the variable does not parse.
    """
    missing = f"there is no connection {name}: set {variable(name)} to JSON such as '{example(name)}', or to a URI"
    return on_one_machine.connection_or_stand_in(name, _of_variable, missing)


# What a connection of a kind says, by the beginning of its usual name.
_EXAMPLES: dict[str, dict[str, object]] = {
    "kafka": {"conn_type": "kafka", "extra": {"bootstrap.servers": "localhost:9092"}},
    "sql": {
        "conn_type": "postgres",
        "host": "localhost",
        "port": 5432,
        "schema": "tidemark",
        "login": "tidemark",
        "password": "...",
    },
    "lake": {"conn_type": "fs", "extra": {"path": "/data/lake"}},
    "spark": {"conn_type": "spark", "host": "local[*]"},
    "hbase": {"conn_type": "hbase", "host": "localhost", "port": 9090},
    "zookeeper": {"conn_type": "zookeeper", "host": "localhost", "port": 2181},
    "registry": {"conn_type": "http", "host": "http://localhost:8081"},
}


def example(name: str) -> str:
    """The JSON of a connection, as it is written into the environment; of an unknown kind, its fields."""
    kind = next((kind for kind in _EXAMPLES if kind in name), None)
    known = {"conn_type": "...", "host": "...", "port": 0, "login": "...", "password": "...", "extra": {}}
    return json.dumps(known if kind is None else _EXAMPLES[kind])


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
    if unknown := sorted(values.keys() - {*FIELDS, *_OTHERS}):
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
