"""HBase's Thrift 2 interface, with which a table can be created with its regions.

`hbase2.thrift` is HBase 2.6's own file, from the hbase-thrift jar.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

import thriftpy2
from thriftpy2.rpc import make_client

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.endpoint import hbase2_endpoint
from tidemark.clients.hbase.gateway import MISTAKE, TIMEOUT_MS, Gateway

# On a cluster's executors, this package is inside an archive.
with as_file(files("tidemark.clients.hbase") / "hbase2.thrift") as _file:
    thrift: Any = thriftpy2.load(str(_file), module_name="tidemark_hbase2_thrift")


def table_name(table: str) -> Any:
    """A table's name in the parts that Thrift 2 has."""
    namespace, _, name = table.rpartition(":")
    return thrift.TTableName(ns=namespace.encode() or None, qualifier=name.encode())


class _Connection:
    """A connection as happybase's: `client` and `close`."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def close(self) -> None:
        self.client.close()


class Gateway2(Gateway):
    """The Thrift 2 gateways of one HBase."""

    _mistakes = (*MISTAKE, thrift.TIllegalArgument)
    _server = "HBase's second Thrift server (`hbase thrift2 start`): `thrift2` among the extras"

    @staticmethod
    def _dial(host: str, port: int, timeout_ms: int) -> _Connection:
        return _Connection(make_client(thrift.THBaseService, host, port, timeout=timeout_ms))


def gateway2(connections: Connections, name: str, timeout_ms: int = TIMEOUT_MS) -> Gateway2:
    """The Thrift 2 gateway of a connection. This call asks no server."""
    return Gateway2(hbase2_endpoint(connections(name)), timeout_ms=timeout_ms)
