"""The ledger stores on their real servers, for the tests that every one of them has to pass."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass

import pytest

from services.site import Site
from tidemark.connections import HBaseEndpoint, ZooKeeperEndpoint
from tidemark.hbase.gateway import Gateway
from tidemark.ledger.hbase import HBaseLedgerStore
from tidemark.ledger.store import LedgerStore
from tidemark.ledger.zookeeper import OffsetLayouts, ZooKeeperLedgerStore
from tidemark.zookeeper import ZooKeeper

KINDS = ("hbase", "zookeeper")


@dataclass(frozen=True)
class Stores:
    """Makes ledger stores of one kind; `port` is that of the server, or of a proxy before it."""

    kind: str
    site: Site

    @property
    def port(self) -> int:
        return self.site.port("thrift" if self.kind == "hbase" else "zookeeper")

    def make(
        self, stream: str, *, port: int | None = None, timeout: float = 30.0, patience: float = 30.0
    ) -> LedgerStore:
        port = port or self.port
        if self.kind == "hbase":
            endpoint = HBaseEndpoint("127.0.0.1", port)
            gateway = Gateway(endpoint, timeout_ms=int(timeout * 1000), patience=patience)
            return HBaseLedgerStore(gateway, "ledger", stream, "offsets")
        zookeeper = ZooKeeper(zookeeper_at(port), timeout_seconds=timeout, patience=patience)
        return ZooKeeperLedgerStore(zookeeper, "/tidemark", stream, OffsetLayouts(stream, "/consumers", "/storm"))

    def new(self, *, port: int | None = None) -> LedgerStore:
        """A ledger of a stream that nobody has used, prepared."""
        made = self.make(new_stream(), port=port)
        made.prepare()
        return made


def new_stream() -> str:
    return f"s_{secrets.token_hex(4)}"


def zookeeper_at(port: int) -> ZooKeeperEndpoint:
    """ZooKeeper, with the login that its connection in the environment has."""
    connection = json.loads(os.environ["AIRFLOW_CONN_ZOOKEEPER_DEFAULT"])
    return ZooKeeperEndpoint(f"127.0.0.1:{port}", connection["login"], connection["password"])


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, site: Site) -> Stores:
    """Each kind of ledger store in turn."""
    return Stores(request.param, site)
