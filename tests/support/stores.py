"""The ledger stores, for the tests that every one of them has to pass."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from services import control
from tidemark.clients.connections import Connection
from tidemark.clients.environment import from_environment
from tidemark.clients.zookeeper import ZooKeeperEndpoint
from tidemark.ledger.stores.contract import LedgerStore
from tidemark.ledger.stores.kind import LedgerSettings, RequestTimeouts
from tidemark.ledger.stores.kinds import ledger_store
from tidemark.streams.model import AnyLedger

# What a stream file says of them.
SETTINGS: dict[str, dict[str, Any]] = {
    "hbase": {"type": "hbase", "table": "ledger", "offsets_table": "offsets"},
    "zookeeper": {"type": "zookeeper", "storm": "/storm"},
    "postgresql": {"type": "sql"},
    "mariadb": {"type": "sql", "sql": "mysql_default"},
    "sqlite": {"type": "sql", "sql": "sqlite_default"},
}


@dataclass(frozen=True)
class Stores:
    """Makes ledger stores of one kind. `port`: that of a proxy before the server of the connection."""

    settings: LedgerSettings

    @property
    def kind(self) -> str:
        return self.settings.type

    @property
    def port(self) -> int:
        port = from_environment(self.settings.connection).port
        assert port is not None
        return port

    @property
    def _by_mysql(self) -> bool:
        return from_environment(self.settings.connection).kind == "mysql"

    def sent(self, value: bytes) -> bytes:
        """How a value stands in a request."""
        return value.hex().encode() if self._by_mysql else value

    def settling(self, head: bytes) -> bytes:
        """What the request has that settles a commit of this head: MySQL has a transaction of several."""
        return b"\x03COMMIT" if self._by_mysql else head

    def make(
        self, stream: str, *, port: int | None = None, timeout: float = 30.0, patience: float = 30.0
    ) -> LedgerStore:
        def connections(name: str) -> Connection:
            found = from_environment(name)
            return replace(found, port=port) if port else found

        return ledger_store(self.settings, stream, connections, RequestTimeouts(timeout, patience))

    def new(self, *, port: int | None = None) -> LedgerStore:
        """A prepared ledger of an unused stream."""
        made = self.make(new_stream(), port=port)
        made.prepare()
        return made


def new_stream() -> str:
    return f"s_{secrets.token_hex(4)}"


def stores_of(said: Mapping[str, Any]) -> Stores:
    """What a stream file says under `ledger`."""
    return Stores(TypeAdapter(AnyLedger).validate_python(said))


def zookeeper_at(port: int) -> ZooKeeperEndpoint:
    """ZooKeeper, with the login that its connection in the environment has."""
    connection = json.loads(os.environ["AIRFLOW_CONN_ZOOKEEPER_DEFAULT"])
    return ZooKeeperEndpoint(f"127.0.0.1:{port}", connection["login"], connection["password"])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "ledger_settings" in metafunc.fixturenames:
        given = metafunc.config.getoption("--ledger")
        said = {given["type"]: given} if given else SETTINGS
        if "servers" in metafunc.fixturenames:
            said = {name: settings for name, settings in said.items() if name != "sqlite"}
        metafunc.parametrize("ledger_settings", said.values(), ids=said.keys())


@pytest.fixture
def servers(stores: Stores) -> Stores:
    """As `stores`, without SQLite, which is a file: no proxy can stand before it."""
    return stores


@pytest.fixture
def stores(ledger_settings: Mapping[str, Any], request: pytest.FixtureRequest) -> Stores:
    """Each kind of ledger store in turn, or the one of `--ledger`."""
    if not request.config.getoption("--ledger"):
        _start(ledger_settings, request)
    return stores_of(ledger_settings)


def _start(said: Mapping[str, Any], request: pytest.FixtureRequest) -> None:
    """The servers that a ledger needs, and its connection in the environment."""
    if said.get("sql") == "sqlite_default":
        file = request.getfixturevalue("tmp_path_factory").getbasetemp() / "ledger.db"
        variables = {"AIRFLOW_CONN_SQLITE_DEFAULT": json.dumps({"conn_type": "sqlite", "host": str(file)})}
        request.getfixturevalue("monkeypatch").setenv(*variables.popitem())
        return
    site = request.getfixturevalue("site")
    if said["type"] == "sql":
        control.up(site, ["mariadb" if said.get("sql") == "mysql_default" else "postgresql"])
