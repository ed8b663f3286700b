"""HBase's Thrift server in memory, for tables of newest rows: `tests.simulation.hbase` behind a gateway."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation.hbase import Cluster, Connection
from tidemark.clients.hbase.gateway import Gateway
from tidemark.sinks.hbase.latest import table as latest_table

# By the host that a connection names.
CLUSTERS: dict[str, Cluster] = defaultdict(Cluster)


class GatewayInMemory(Gateway):
    """A gateway to the cluster that its endpoint names."""

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        yield Connection(CLUSTERS[self.endpoint.gateways[0][0]])


@pytest.fixture
def hbase_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of newest rows are in memory, of a cluster for each host."""
    monkeypatch.setattr(latest_table, "Gateway", GatewayInMemory)
