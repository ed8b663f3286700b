"""HBase's Thrift server in memory, for tables of newest rows: `tests.simulation.hbase` behind a gateway."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.simulation.hbase import Cluster, Connection
from tidemark.clients.hbase.gateway import Gateway

# By the host that a connection names.
CLUSTERS: dict[str, Cluster] = defaultdict(Cluster)


class GatewayInMemory(Gateway):
    """A gateway to the cluster that its endpoint names."""

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        yield Connection(CLUSTERS[self.endpoint.gateways[0][0]])
